"""Mutated documents through all that reads documents: no exception, no hang, every message with its place.

Usage: python -m tests.fuzz.run [--documents 100000] [--seed 0] [--shard 0/2] [--keep FOLDER]

Document number i of a seed is the same everywhere. With --keep each document that breaks a promise is written to the
folder, and the number of the next document, so that a run that was ended goes on from there.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.mutate import mutated
from tests.fuzz.pipeline import OUTCOMES, Fault, examine

PATIENCE = 1.0
"""Seconds of this process's time in which a document must be done."""


class Hang(Exception):
    """A document took too long."""


@dataclass(slots=True)
class Found:
    """What documents led to. faults: the number of each faulty document, with what happened."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    faults: dict[int, str] = field(default_factory=dict[int, str])
    slowest: tuple[float, int] = (0.0, -1)


def document(seed: int, number: int) -> tuple[str | bytes, str]:
    """One of the documents."""
    return mutated(Random(f"{seed}/{number}"))


def fuzz(
    numbers: Iterator[int] | range, seed: int, patience: float, each: Callable[[int, Found], None] | None = None
) -> Found:
    """Examine documents; faults are collected. patience: seconds of processor time for one document."""
    found = Found()
    for number in numbers:
        data, name = document(seed, number)
        started = time.process_time()
        try:
            found.outcomes[_examined(data, name, patience)] += 1
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic inside a library is no Exception
            found.faults[number] = _told(error)
        took = time.process_time() - started
        found.slowest = max(found.slowest, (took, number))
        if each is not None:
            each(number, found)
    return found


def _examined(data: str | bytes, name: str, patience: float) -> str:
    """The outcome. A document that takes too long gets a second try: a machine at its limits stalls at times."""
    try:
        with _alarm(patience):
            return examine(data, name)
    except Hang:
        with _alarm(patience):
            return examine(data, name)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(signum: int, frame: object) -> None:
        raise Hang(f"not done after {seconds} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _told(error: BaseException) -> str:
    if isinstance(error, Fault):
        return f"Fault: {error}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {str(error)[:200]}"


def main() -> int:
    """See the module docstring. Exit code 1 with faults."""
    parser = argparse.ArgumentParser(description="Mutated documents through all that reads documents.")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--shard", default="0/1", help="I/N: only the documents whose number leaves I when divided by N"
    )
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds of processor time for one document")
    parser.add_argument("--keep", type=Path, help="folder for faulty documents and for where to go on")
    options = parser.parse_args()
    shard, shards = (int(part) for part in options.shard.split("/"))
    keep: Path | None = options.keep
    mark = keep / f"next-{options.seed}-{shard}-{shards}" if keep is not None else None
    first = shard
    if keep is not None and mark is not None:
        keep.mkdir(parents=True, exist_ok=True)
        first = int(mark.read_text()) if mark.exists() else shard
    told: set[int] = set()

    def each(number: int, found: Found) -> None:
        if number in found.faults and number not in told:
            told.add(number)
            print(f"{number}: {found.faults[number]}", flush=True)
            if keep is not None:
                data, name = document(options.seed, number)
                raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
                (keep / f"{options.seed}-{number}{Path(name).suffix}").write_bytes(raw)
        if mark is not None and (number // shards) % 100 == 99:
            mark.write_text(str(number + shards))
        if sys.stderr.isatty() and (number // shards) % 100 == 99:
            print(f"\r{number + 1} of {options.documents}", end="", file=sys.stderr)

    found = fuzz(range(first, options.documents, shards), options.seed, options.patience, each)
    counts = ", ".join(f"{found.outcomes[name]} {name}" for name in OUTCOMES)
    print(f"{found.outcomes.total() + len(found.faults)} documents: {counts}; {len(found.faults)} faults")
    print(f"slowest: {found.slowest[0]:.2f} s, number {found.slowest[1]}")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Random programs, each alone and then among many others: the same tokens.

Usage: python -m tests.soak.alone [--programs 200] [--beside 32] [--seed 0] [--slots 800]

Alone a program has the engine and all the memory it wants, and nothing is cached. Among the others it shares cache and
steps with them, and memory is so short that it is preempted. What it draws must not depend on any of that.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.programs import Case, case
from tests.soak.run import Fault, _backend, _outcome, launch, model_folder


@dataclass(slots=True)
class Compared:
    """What was compared. ended: programs by status, with how they began (chat or text); sampled: programs that drew."""

    ended: Counter[str] = field(default_factory=Counter[str])
    sampled: int = 0
    tokens: int = 0
    preempted: int = 0
    largest_batch: int = 0


async def compare(folder: Path, *, programs: int, beside: int = 32, seed: int = 0, slots: int = 800) -> Compared:
    """Run every program in both ways. Raises `Fault` for one that gives something else."""
    found = Compared()
    cases = [case(random.Random(f"alone {seed}/{number}")) for number in range(programs)]
    async with _backend(folder, None, prefix_cache=False) as backend:
        alone: list[str] = []
        for one in cases:
            result = await launch(one, backend).wait()
            alone.append(_outcome(one, result))
            found.ended[result.status] += 1
            found.sampled += '"temperature"' in one.text
            found.tokens += result.usage.generated_tokens
    room = asyncio.Semaphore(beside + 1)

    async def among(number: int, one: Case) -> None:
        async with room:
            result = await launch(one, backend).wait()
        if _outcome(one, result) != alone[number]:
            raise Fault(f"program {number} gives something else among others\n{result}\n{one.text}")

    async with _backend(folder, slots) as backend:
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(cases):
                group.create_task(among(number, one))
        found.preempted, found.largest_batch = backend.engine.metrics.preempted, backend.engine.metrics.largest_batch
    return found


def main() -> None:
    """See the module docstring."""
    parser = argparse.ArgumentParser(description="Random programs, each alone and then among many others.")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--beside", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slots", type=int, default=800, help="tokens that fit into the engine's memory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = model_folder(Path(folder) / "model")
        found = asyncio.run(
            compare(path, programs=options.programs, beside=options.beside, seed=options.seed, slots=options.slots)
        )
    print(f"{options.programs} programs, alone and among {options.beside} others: identical tokens")
    print(found)


if __name__ == "__main__":
    main()

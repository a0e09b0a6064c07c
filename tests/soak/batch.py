"""Many rows, killed again and again: the output is complete, holds no row twice, and memory does not grow with rows.

Usage: python -m tests.soak.batch [--rows 10000] [--kills 10] [--seed 0]

Replies are scripted, so what is tried is the batch itself: each start goes on where the one before was killed, at a
moment that is drawn. Then one row is edited, and only that one may run again. Raises AssertionError.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = "sglspec: v1\ninputs: {q: string}\nsteps: ['Q: {{ q }} A:', {gen: a}]\n"


@dataclass(frozen=True)
class Report:
    """few, many: peak memory in MiB of a tenth of the rows, and of all."""

    rows: int
    kills: int
    few: float
    many: float


def soak(folder: Path, rows: int, kills: int, seed: int = 0, concurrency: int = 32) -> Report:
    """Run in an empty folder."""
    draw = random.Random(seed)
    (folder / "program.yaml").write_text(PROGRAM)
    (folder / "replies.yaml").write_text("a: fine\n")
    table = [{"q": f"question {number % (rows - 7)}"} for number in range(rows)]  # some rows are equal
    _write(folder / "rows.jsonl", table)
    _write(folder / "few.jsonl", table[: rows // 10])
    few = _run(folder, "few.jsonl", "few.out", concurrency)[1]
    out = folder / "out.jsonl"
    kept = 0
    for kill in range(kills):
        process = subprocess.Popen(_command("rows.jsonl", "out.jsonl", concurrency), cwd=folder, stderr=subprocess.PIPE)
        goal = kept + draw.randrange(1, max(2, (rows - kept) * 2 // (kills - kill + 1)))
        while _lines(out) < goal:
            assert process.poll() is None, process.communicate()
            time.sleep(0.002)
        time.sleep(draw.random() / 50)
        process.kill()
        process.communicate()
        kept = len(_whole(out))
        assert len({one["key"] for one in _whole(out)}) == kept, "a row is there twice"
    said, many = _run(folder, "rows.jsonl", "out.jsonl", concurrency)
    assert said == f"sglspec: {rows:,} rows, {kept:,} of them from before\n", said
    found = _whole(out)
    assert [one["row"] for one in found] == list(range(1, rows + 1))
    assert len({one["key"] for one in found}) == rows
    assert {one["status"] for one in found} == {"succeeded"}
    edited = draw.randrange(rows)
    table[edited] = {"q": "another question"}
    _write(folder / "rows.jsonl", table)
    said, _ = _run(folder, "rows.jsonl", "out.jsonl", concurrency)
    assert said == f"sglspec: {rows:,} rows, {rows - 1:,} of them from before\n", said
    again = _whole(out)
    changed = [place for place, (one, other) in enumerate(zip(found, again, strict=True)) if one != other]
    # of rows that say the same, one stands for another
    assert edited in changed and len(changed) <= 2, changed
    fresh = _run(folder, "rows.jsonl", "fresh.jsonl", concurrency)[1]
    assert max(many, fresh) - few < 5 + rows / 1000, "a row leaves no more than a kilobyte"
    return Report(rows, kills, few, max(many, fresh))


def _command(rows: str, out: str, concurrency: int) -> list[str]:
    options = ["--backend", "scripted:replies.yaml", "--concurrency", str(concurrency)]
    return [sys.executable, "-m", "sglspec", "batch", "program.yaml", rows, "-o", out, *options]


def _run(folder: Path, rows: str, out: str, concurrency: int) -> tuple[str, float]:
    """To the end: what it said, and its peak memory in MiB."""
    process = subprocess.Popen(
        _command(rows, out, concurrency), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said
    return said, usage.ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _whole(path: Path) -> list[dict[str, Any]]:
    """The records, without one that was being written when the process was killed."""
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), given.rows, given.kills, given.seed)
    print(
        f"{found.rows:,} rows, killed {found.kills} times: complete, none twice, an edited row alone again; "
        f"peak memory {found.few:.1f} MiB for {found.rows // 10:,} rows, {found.many:.1f} MiB for all"
    )


if __name__ == "__main__":
    main()

"""CPU time of `sglspec --help` and `sglspec check`, in milliseconds: the least and the median of several processes.

Usage: python benchmarks/cli_start.py [DOCUMENT …]
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROUNDS = 9
EXAMPLES = Path(__file__).parent.parent / "examples"


def cpu_ms(command: Sequence[str]) -> float:
    """User and system time of one process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def measure(name: str, *arguments: str) -> None:
    times = [cpu_ms([sys.executable, *arguments]) for _ in range(ROUNDS)]
    print(f"{name:<44} least {min(times):4.0f} ms   median {statistics.median(times):4.0f} ms")


def main() -> None:
    documents = sys.argv[1:] or [str(path) for path in sorted(EXAMPLES.glob("0[14]-*.sglspec.yaml"))]
    measure("python -c pass", "-c", "pass")
    measure("sglspec --help", "-m", "sglspec", "--help")
    for document in documents:
        measure(f"sglspec check {Path(document).name}", "-m", "sglspec", "check", document)


if __name__ == "__main__":
    main()

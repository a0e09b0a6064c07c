"""Hostile templates end in a diagnostic, in a process that may not grow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.expressions.hostile import CASES

ROOT = Path(__file__).parents[2]
MEGABYTES = 50


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.expressions.hostile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["name"]: row for row in rows}


@pytest.mark.parametrize(("name", "expected"), [(name, expected) for name, _, expected in CASES])
def test_it_ends_in_a_diagnostic(results: dict[str, dict[str, Any]], name: str, expected: str) -> None:
    assert results[name]["outcome"] == expected


def test_the_process_stays_small(results: dict[str, dict[str, Any]]) -> None:
    assert max(row["megabytes"] for row in results.values()) < MEGABYTES


def test_the_corpus_has_no_name_twice(results: dict[str, dict[str, Any]]) -> None:
    assert len(results) == len(CASES)

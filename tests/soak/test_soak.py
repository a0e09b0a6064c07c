"""Half a minute of random programs; `make soak` runs it for longer."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from sglspec.analysis import load_program
from sglspec.diagnostics import Report
from sglspec.document.read import source_from_text
from tests.soak.alone import compare
from tests.soak.programs import case
from tests.soak.run import Totals, model_folder, soak

SECONDS = 20.0
"""The programs that run then still come to their ends, and some run again."""
SLOTS = 1300
"""So few that memory is short on the slowest machine, where few programs are on their way together."""


@pytest.mark.timeout(280)
async def test_many_programs_with_random_cancels(tmp_path: Path) -> None:
    totals = await soak(model_folder(tmp_path / "model"), seconds=SECONDS, slots=SLOTS)
    assert min(totals.ended[status] for status in ("succeeded", "failed", "cancelled")) > 0
    assert totals.compared > 0
    assert totals.engine["preempted"] > 0 and totals.engine["evicted"] > 0
    assert len(totals.cancelled_in) >= 3, "requests are cancelled in different states"
    assert totals.growth() < 100


async def test_programs_give_the_same_alone_and_among_others(tmp_path: Path) -> None:
    found = await compare(model_folder(tmp_path / "model"), programs=25)
    assert found.preempted > 0 and found.largest_batch > 8 and found.sampled > 5


def test_growth_is_the_last_third_against_the_middle_one() -> None:
    flat = [(float(i), 100.0 + 300 * (i < 3)) for i in range(12)]
    assert Totals(memory=flat).growth() == 0
    assert Totals(memory=[(float(i), 10.0 * i) for i in range(12)]).growth() == 40


def test_the_programs_hold_everything() -> None:
    """What is generated is accepted, and there is something of each kind."""
    seen: Counter[str] = Counter()
    for number in range(150):
        one = case(random.Random(f"0/{number}"))
        report = Report("soak.json")
        program = load_program(source_from_text(one.text, "soak.json"), report)
        report.raise_errors()
        assert program is not None
        seen.update(key for key in KEYS if f'"{key}":' in one.text)
        seen["fails"] += one.fails
    assert set(seen) == {*KEYS, "fails"}


KEYS = [
    "user",
    "assistant",
    "gen",
    "select",
    "fork",
    "for",
    "while",
    "capture",
    "if",
    "join",
    "into",
    "on_error",
    "regex",
    "fields",
    "stop",
    "stop_regex",
    "n",
    "retry",
    "temperature",
    "check",
    "fail",
    "schema",
    "limits",
]

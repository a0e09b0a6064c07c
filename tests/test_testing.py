"""The tests that documents hold, on a model, and those of the examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglspec.analysis import load_program
from sglspec.backends.base import Backend
from sglspec.diagnostics import Report
from sglspec.document.read import read_source
from sglspec.testing import run_trial, trials_of
from tests.runtime.fake import FakeBackend, program

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.sglspec.*"))


async def no_model(name: str | None) -> Backend:
    raise AssertionError(f"the model {name!r} was asked for")


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
async def test_the_tests_of_an_example_pass(file: Path):
    checked = load_program(read_source(file), Report(str(file)))
    assert checked is not None
    for trial in trials_of(checked):
        outcome = await run_trial(trial, no_model)
        assert outcome.problems == ()


@pytest.mark.parametrize(("model", "named"), [("", "of-program"), ("model: of-test, ", "of-test")])
async def test_without_replies_it_runs_on_a_model(model: str, named: str):
    text = "sglspec: v1\nmodel: of-program\nsteps:\n  - gen: x\ntests:\n"
    asked: list[str | None] = []

    async def open_model(name: str | None) -> Backend:
        asked.append(name)
        return FakeBackend({"x": "yes"})

    (trial,) = trials_of(program(text + f"  - {{{model}expect: [x == 'yes']}}\n"))
    outcome = await run_trial(trial, open_model)
    assert outcome.passed and outcome.result is not None and outcome.result.outputs == {"x": "yes"}
    assert asked == [named]

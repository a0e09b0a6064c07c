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

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("**/*.sglspec.*"))


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


COUNTED = """
sglspec: v1
use: {a: ./a.yaml}
defs: {steps: {l: [{gen: g}, {tool: calculator, with: {expression: "1"}, into: t, id: i}]}}
steps:
  - for: n
    in: [1, 2]
    do: [{include: l}, {call: a, into: c}]
  - {call: a, id: last, on_error: skip}
tests:
  - replies: {g: x, i: 1, a.v: y}
    calls: CALLS
"""


@pytest.mark.parametrize(
    ("calls", "wrong"),
    [
        ("{g: 2, i: 2, t: 2, calculator: 2, a: 3, c: 2, last: 1, a.v: 3}", None),
        ("{calculator: 1, a: 2, a.v: 2, g: 2}", "calculator = 2\na = 3\na.v = 3"),
    ],
)
async def test_calls_and_tools_are_counted_by_every_key(tmp_path: Path, calls: str, wrong: str | None):
    (tmp_path / "a.yaml").write_text("sglspec: v1\nsteps: [t, {gen: v}]\n")
    (tmp_path / "main.yaml").write_text(COUNTED.replace("CALLS", calls))
    report = Report()
    checked = load_program(read_source(tmp_path / "main.yaml"), report)
    assert checked is not None, report.sorted()
    (trial,) = trials_of(checked)
    outcome = await run_trial(trial, no_model)
    assert [problem.help for problem in outcome.problems] == ([wrong] if wrong is not None else [])


async def test_a_reply_that_is_no_json_is_shown_with_what_to_write():
    text = "sglspec: v1\nsteps:\n  - gen: x\n    schema: {enum: [p, q, 3]}\ntests:\n"
    replies = "  - replies: {x: p}\n  - replies: {x: '\"p\"'}\n  - replies: {x: 3}\n  - replies: {x: '\"r\"'}\n"
    bare, quoted, number, other = [await run_trial(one, no_model) for one in trials_of(program(text + replies))]
    assert quoted.passed and number.passed
    (problem,) = bare.problems
    assert problem.code == "S711" and problem.help is not None and """`'"p"'`""" in problem.help
    assert problem.range is not None and problem.range.start.line == 3
    assert [(one.range.start.line, one.range.start.column) for one in problem.related] == [(6, 18)]
    (problem,) = other.problems
    assert problem.code == "S711" and problem.help is None and problem.related[0].range.start.line == 9

"""Constraints that are known ahead: of the program, of its lists, and of the programs that it includes and calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sglspec.analysis import load_program
from sglspec.analysis.plan import plan
from sglspec.analysis.plan.beginning import Beginning
from sglspec.analysis.program import Program
from sglspec.backends.base import TextSegment
from sglspec.diagnostics import Report
from sglspec.document.read import read_source
from sglspec.runtime.run import start
from sglspec.runtime.warm import warm
from tests.runtime.fake import FakeBackend

FILES = {
    "main.yaml": """
sglspec: v1
inputs: {a: string, b: {type: string, default: bee}}
use: {inner: ./inner.yaml, called: ./called.yaml}
defs:
  steps:
    own:
      params: {p: string}
      steps:
        - {gen: x, regex: "own {{ a }}"}
        - {gen: y, regex: "param {{ p }}"}
steps:
  - "Hello {{ b }}. "
  - {gen: first, regex: constant}
  - {include: own, with: {p: pea}}
  - {include: inner, with: {i: "{{ a }}"}}
  - {call: called, with: {c: "{{ b }}"}}
""",
    "inner.yaml": """
sglspec: v1
inputs: {i: string}
steps:
  - {gen: z, regex: inner constant}
  - {gen: z2, regex: "inner {{ i }}"}
""",
    "called.yaml": """
sglspec: v1
inputs: {c: string}
use: {deep: ./deep.yaml}
steps:
  - {gen: c1, regex: "called {{ c }}"}
  - {include: deep, with: {d: "{{ c1 }}"}}
""",
    "deep.yaml": """
sglspec: v1
inputs: {d: string}
defs: {steps: {more: {steps: [{gen: e2, regex: "deep {{ d }}"}]}}}
steps:
  - {gen: e1, schema: {type: integer}}
  - {include: more}
""",
}
REPLIES: dict[str, Any] = {
    "first": "constant", "x": "own ay", "y": "param pea", "z": "inner constant", "z2": "inner ay",
    "called.c1": "called bee", "called.e1": "1", "called.e2": "deep called bee",
}  # fmt: skip
WORDS = ("constant", "own ay", "param pea", "inner constant", "inner ay", "called bee", "deep called bee", "integer")


class Preparing(FakeBackend):
    """told: what was known by then, each time that a program starts."""

    def __init__(self) -> None:
        super().__init__(REPLIES)
        self.told: list[set[str]] = []

    def prepare(self, grammars: Sequence[str]) -> None:
        self.told.append({word for word in WORDS for grammar in grammars if word in grammar})


@pytest.fixture
def main(tmp_path: Path) -> Program:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    report = Report("main.yaml")
    program = load_program(read_source(tmp_path / "main.yaml"), report)
    report.raise_errors()
    assert program is not None
    return program


CONSTANT = {"constant", "inner constant", "integer"}


async def test_when_a_run_and_its_programs_start(main: Program):
    backend = Preparing()
    result = await start(main, {"a": "ay"}, backend).wait()
    assert result.status == "succeeded", result.error
    assert backend.told[0] == {*CONSTANT, "own ay"}
    later = [
        {"constant", "inner constant", "inner ay"},
        {"integer", "called bee"},
        {"integer", "called bee", "deep called bee"},
    ]
    assert len(backend.told) == 4 and all(told in later for told in backend.told[1:])


async def test_warm_compiles_what_is_known(main: Program):
    backend = Preparing()
    assert await warm(main, {}, backend) == 0
    await warm(main, {"a": "ay"}, backend)
    assert backend.told == [CONSTANT, {*CONSTANT, "own ay"}]
    assert backend.open_sessions == 0


def test_the_plan_says_when(main: Program):
    found = plan(main, {"a": "ay"})
    kinds = [node.constraint for node in found.every() if node.constraint is not None]
    run, program, reached = (
        f"regex, compiled when {when}" for when in ("the run starts", "its program starts", "it is reached")
    )
    assert kinds == [
        run, run, reached, run, program, program, "schema, compiled when the run starts", program,
    ]  # fmt: skip
    assert found.constraints == (4, 4)


INCLUDES = """
sglspec: v1
inputs: {a: string, b: string}
use: {inner: ./inner.yaml}
defs: {steps: {greet: {params: {who: string}, steps: ["Hello {{ who }} of {{ b }}. "]}}}
steps:
  - user:
      - {include: greet, with: {who: you}}
      - {include: inner, with: {i: "{{ a }}"}}
      - "The end."
  - {gen: x}
"""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "Hello you of "),
        ({"b": "bee"}, "Hello you of bee. In 3 "),
        ({"a": "ay", "b": "bee"}, "Hello you of bee. In 3 ay. The end."),
    ],
)
def test_a_beginning_goes_through_includes(tmp_path: Path, given: dict[str, str], text: str):
    (tmp_path / "main.yaml").write_text(INCLUDES)
    (tmp_path / "inner.yaml").write_text(
        "sglspec: v1\ninputs: {i: string, n: {type: integer, default: 3}}\nsteps: ['In {{ n }} {{ i }}. ']\n"
    )
    program = load_program(read_source(tmp_path / "main.yaml"), Report())
    assert program is not None
    segments = list(Beginning(program, given).of(program.spec.steps))
    assert "".join(one.text for one in segments if isinstance(one, TextSegment)) == text

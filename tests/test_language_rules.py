"""The rules of the language, one small program each. The tables are `rules/*.yaml`; `rules/README.md` says how to read them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sglspec.analysis import load_program
from sglspec.backends.scripted import ScriptedBackend
from sglspec.diagnostics import Diagnostic, Report, SpecError
from sglspec.document.nodes import to_python
from sglspec.document.read import parse, read_source, source_from_text
from sglspec.runtime.run import RunOptions, execute

FOLDER = Path(__file__).parent / "rules"
HEAD = "sglspec: v1\nsteps:\n"


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(FOLDER.glob("*.yaml")):
        report = Report(path.name)
        node = parse(read_source(path), report)
        assert node is not None and not report.sorted()
        for case in to_python(node):
            found.append({**case, "section": path.stem})
    return found


CASES = cases()


def source_of(case: dict[str, Any]) -> tuple[str, int]:
    """The program's text, and how many lines stand before what the case shows."""
    if "program" in case:
        return case["program"], 0
    return HEAD + case["steps"], HEAD.count("\n")


def faces(problems: list[Diagnostic], before: int) -> list[str]:
    """`S201:4`: code and line, as counted in the case."""
    return [p.code if p.range is None else f"{p.code}:{p.range.start.line - before}" for p in problems]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['section']}: {case['rule']}")
def test_rule(case: dict[str, Any]):
    text, before = source_of(case)
    report = Report("rule.yaml")
    try:
        program = load_program(source_from_text(text, "rule.yaml"), report)
    except SpecError as error:
        program = None
        for problem in error.diagnostics:
            report.add(problem)
    problems = report.sorted()
    shown = [f"{p.code}: {p.message} {p.help or ''}" for p in problems]
    assert faces(problems, before) == case.get("codes", []), shown
    for word in case.get("says", ()):
        assert any(word in line for line in shown), shown
    if program is None or case.get("run") is False:
        return
    options = RunOptions(seed=case.get("seed", 1))
    try:
        result = asyncio.run(execute(program, case.get("inputs", {}), ScriptedBackend(case.get("replies", {})), options))
    except SpecError as error:
        assert faces(list(error.diagnostics), before) == [case.get("error")], error
        return
    assert faces([result.error] if result.error else [], before) == [e for e in [case.get("error")] if e], result.error
    if "cause" in case:
        assert result.error is not None and result.error.cause == case["cause"]
    for name in ("outputs", "variables", "text", "messages"):
        if name in case:
            assert getattr(result, name) == case[name]


def test_there_are_enough():
    assert len(CASES) >= 80

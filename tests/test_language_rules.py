"""The rules of the language, one small program each. The tables are `rules/*.yaml`; `rules/README.md` says how to read them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sglspec.analysis import load_program
from sglspec.backends.base import GenRequest, Reasoning
from sglspec.backends.base import Sampling as EngineSampling
from sglspec.backends.scripted import ScriptedBackend
from sglspec.diagnostics import Diagnostic, Report, SpecError
from sglspec.document.model import Sampling
from sglspec.document.nodes import Source, to_python
from sglspec.document.read import parse, read_source, source_from_text
from sglspec.expressions import LIBRARY, SCOPE_FUNCTIONS
from sglspec.runtime.limits import Bounds, document_bounds
from sglspec.runtime.run import RunOptions, execute
from tests.runtime.fake import FakeBackend

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
    """`S201:4`: code and line, as counted in the case; `S201:b.yaml:4` in another file."""
    return [face(p, before) for p in problems]


def face(problem: Diagnostic, before: int) -> str:
    if problem.range is None:
        return problem.code
    if problem.file != "rule.yaml":
        return f"{problem.code}:{problem.file}:{problem.range.start.line}"
    return f"{problem.code}:{problem.range.start.line - before}"


def in_folder(case: dict[str, Any], text: str, folder: Path) -> Source:
    """The program as a document; one with other files stands in a folder with them."""
    source = source_from_text(text, "rule.yaml")
    if "files" not in case:
        return source
    for name, content in case["files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")
    (folder / "rule.yaml").write_text(text, "utf-8")
    return replace(source, path=folder / "rule.yaml")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['section']}: {case['rule']}")
def test_rule(case: dict[str, Any], tmp_path: Path):
    text, before = source_of(case)
    report = Report("rule.yaml")
    try:
        program = load_program(in_folder(case, text, tmp_path), report)
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
        result = asyncio.run(
            execute(program, case.get("inputs", {}), ScriptedBackend(case.get("replies", {})), options)
        )
    except SpecError as error:
        assert faces(list(error.diagnostics), before) == [case.get("error")], error
        return
    assert faces([result.error] if result.error else [], before) == [e for e in [case.get("error")] if e], result.error
    for name in ("cause", "message"):
        if name in case:
            assert getattr(result.error, name) == case[name]
    for name in ("outputs", "variables", "text", "messages"):
        if name in case:
            assert getattr(result, name) == case[name]


def test_there_are_enough():
    assert len(CASES) >= 80


def test_the_index_names_what_is_there():
    """Every test that `rules/README.md` names for a sentence of the language exists."""
    known = {f"{case['section'][:2]} {case['rule']}" for case in CASES}
    _, _, index = (FOLDER / "README.md").read_text("utf-8").partition("## Sentence by sentence")
    named = re.findall(r"`(\d\d [^`]+|tests/[\w/]+\.py(?:::\w+)?)`", index.replace("\\|", "|"))
    assert len(named) > 100
    for name in named:
        path, _, function = name.partition("::")
        if name.startswith("tests/"):
            file = FOLDER.parent.parent / path
            assert file.is_file() and (not function or f"def {function}(" in file.read_text("utf-8")), name
        else:
            assert name in known, name


def test_limits_unless_said():
    limits = document_bounds(None, None)
    assert limits == Bounds(tokens=100_000, branches=256, depth=8, iterations=10_000, seconds=600)
    host = Bounds(tokens=5, branches=1_000, depth=2, iterations=20_000, seconds=1)
    assert document_bounds(None, host) == Bounds(5, 256, 2, 10_000, 1)


def check_text(text: str, name: str = "rule.yaml") -> list[str]:
    report = Report(name)
    load_program(source_from_text(text, name), report)
    return [problem.code for problem in report.sorted()]


def test_a_program_is_named_after_its_file():
    program = load_program(source_from_text("sglspec: v1\nsteps: a\n", "x/essay-judge.sglspec.yaml"), Report("x"))
    assert program is not None and program.name == "essay-judge"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("x" * 65_000 + "{{ 1 }}", []),
        ("x" * 66_000 + "{{ 1 }}", ["S253"]),
        ("x" * 66_000, []),
        ("{{ 1 }}" * 1_500, []),
        ("{{ 1 }}" * 2_500, ["S253"]),
        ("{{ " + "(" * 60 + "1" + ")" * 60 + " }}", []),
        ("{{ " + "(" * 70 + "1" + ")" * 70 + " }}", ["S253"]),
        ("{% if true %}" * 70 + "{% endif %}" * 70, ["S253"]),
    ],
    ids=["64 KB", "more", "no braces", "5,000 tokens", "more tokens", "64 levels", "more levels", "more tags"],
)
def test_templates_are_bounded(text: str, codes: list[str]):
    assert check_text(f'sglspec: v1\nsteps: ["{text}"]\n') == codes


def test_the_json_data_model_is_the_same_and_json_files_are_strict():
    text = '{"sglspec": "v1", "steps": [{"gen": "a", "max_tokens": 3}]}'
    assert check_text(text, "a.json") == []
    assert check_text(text.replace('"a"', "'a'"), "a.json") == ["S102"]
    assert check_text(text.replace("}]", "},]"), "a.json") == ["S102"]


OPTIONS = """
sglspec: v1
defaults: {temperature: 0.5, top_k: 5, max_tokens: 9, stop: D}
steps:
  - gen: plain
  - {gen: own, temperature: 0.7, stop: [A, B]}
  - {gen: reset, temperature: null, top_k: null, max_tokens: null, stop: null}
"""


async def test_precedence_of_options():
    """Built-in < `defaults` < run options < step; an explicit null goes back to the built-in value."""
    report = Report("a.yaml")
    program = load_program(source_from_text(OPTIONS, "a.yaml"), report)
    assert program is not None
    backend = FakeBackend({"plain": "x", "own": "x", "reset": "x"})
    node = parse(source_from_text("{top_k: 7, min_p: 0.1}", "options.yaml"), report)
    sampling = Sampling.model_validate(node)
    result = await execute(program, {}, backend, RunOptions(seed=1, sampling=sampling))
    assert result.error is None, result.error
    plain, own, reset = backend.requests
    seen = [
        (r.sampling.temperature, r.sampling.top_k, r.sampling.min_p, r.max_tokens, r.stop) for r in (plain, own, reset)
    ]
    assert seen == [
        (0.5, 7, 0.1, 9, ("D",)),
        (0.7, 7, 0.1, 9, ("A", "B")),
        (0.0, None, 0.1, 256, ()),
    ]


EVERY = """
sglspec: v1
steps:
  - gen: a
    id: step
    max_tokens: 11
    min_tokens: 2
    temperature: 0.5
    top_p: 0.9
    top_k: 40
    min_p: 0.1
    frequency_penalty: 0.2
    presence_penalty: 0.3
    repetition_penalty: 1.1
    seed: 3
    logit_bias: {11: -5}
    stop: [p, "\\n"]
    stop_token_ids: [2]
    stop_regex: q+
    keep_stop: true
    ignore_eos: true
    logprobs: 4
    reasoning: {open: <t>, close: </t>, budget: 5}
"""


async def test_every_option_reaches_the_backend():
    program = load_program(source_from_text(EVERY, "a.yaml"), Report("a.yaml"))
    assert program is not None
    backend = FakeBackend({"step": "b"})
    result = await execute(program, {}, backend, RunOptions(seed=1))
    assert result.error is None, result.error
    assert backend.requests == [
        GenRequest(
            max_tokens=11,
            min_tokens=2,
            stop=("p", "\n"),
            stop_token_ids=(2,),
            stop_patterns=("q+",),
            keep_stop=True,
            ignore_eos=True,
            reasoning=Reasoning("<t>", "</t>", budget=5),
            sampling=EngineSampling(0.5, 0.9, 40, 0.1, 0.2, 0.3, 1.1, ((11, -5.0),)),
            noise_key=backend.requests[0].noise_key,
            alternatives=4,
            label="step",
        )
    ]


TEMPLATES = """
sglspec: v1
inputs: {t: integer, f: boolean}
steps:
  - gen: a
    logit_bias: {3: "{{ t }}", 4: -1}
    stop_token_ids: ["{{ t }}", 9]
    keep_stop: "{{ f }}"
    ignore_eos: "{{ f }}"
    stop: "{{ [t, 'x', f] }}"
"""


async def test_options_that_are_templates_reach_the_backend():
    program = load_program(source_from_text(TEMPLATES, "a.yaml"), Report("a.yaml"))
    assert program is not None
    backend = FakeBackend({"a": "b"})
    result = await execute(program, {"t": 7, "f": True}, backend, RunOptions(seed=1))
    assert result.error is None, result.error
    request = backend.requests[0]
    assert request.sampling.logit_bias == ((3, 7.0), (4, -1.0))
    assert (request.stop_token_ids, request.keep_stop, request.ignore_eos) == ((7, 9), True, True)
    assert request.stop == ("7", "x", "true")


NAMES = """
len length range enumerate zip batch str int float bool from_json to_json strip lstrip rstrip lower upper title split join
lines replace startswith endswith contains index_of slice format truncate indent quote bullets first last flatten compact
sum mean min max argmax sort unique reverse most_common vote map select reject group_by regex_search regex_findall
regex_replace numbers last_number exp log sqrt stddev round abs default all any keys values items messages transcript meta
"""


def test_the_library_is_complete():
    assert set(NAMES.split()) <= {*LIBRARY, *SCOPE_FUNCTIONS}

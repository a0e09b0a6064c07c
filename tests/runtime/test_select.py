"""`select` on the local engine: in forks and loops, beside constrained text, with all that `meta(x)` says."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sglspec.analysis import load_program
from sglspec.analysis.program import Program
from sglspec.backends.base import Usage
from sglspec.backends.local import LocalBackend, open_local
from sglspec.diagnostics import Report
from sglspec.document.read import source_from_text
from sglspec.runtime.result import Result
from sglspec.runtime.run import RunOptions, execute, start
from tests.engine import tiny
from tests.engine.drive import Oracle, until_forwards


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build(tmp_path_factory.mktemp("select"))


@pytest_asyncio.fixture
async def local(model: Path) -> AsyncIterator[LocalBackend]:
    backend = await open_local(model, weights="fp32", step_tokens=16, debug=True)
    yield backend
    await backend.engine.check()
    await backend.close()


def program_of(steps: str, head: str = "") -> Program:
    report = Report("test.yaml")
    program = load_program(source_from_text(f"sglspec: v1\n{head}steps:\n{steps}", "test.yaml"), report)
    report.raise_errors()
    assert program is not None
    return program


async def run(backend: LocalBackend, steps: str, head: str = "", **inputs: Any) -> Result:
    return await execute(program_of(steps, head), inputs, backend, RunOptions(seed=1))


def check_meta(meta: Any, choices: list[Any], value: Any) -> None:
    """`index` and `scores`, and nothing else; the highest score wins and the probabilities are the softmax."""
    assert set(meta) == {"index", "scores"}
    rows = meta["scores"]
    assert [row["choice"] for row in rows] == choices
    assert [type(row["choice"]) for row in rows] == [type(choice) for choice in choices]
    assert all(set(row) == {"choice", "score", "probability"} for row in rows)
    scores = [row["score"] for row in rows]
    assert meta["index"] == scores.index(max(scores))
    assert value == choices[meta["index"]]
    assert type(value) is type(choices[meta["index"]])
    weights = [math.exp(score - max(scores)) for score in scores]
    assert [row["probability"] for row in rows] == pytest.approx([weight / sum(weights) for weight in weights])


@pytest.mark.parametrize("method", ["sum", "length_normalized"])
async def test_typed_choices_from_an_input(local: LocalBackend, model: Path, method: str):
    choices = [1, 12, 1.5, True, "true story", "één 🙂", -3]
    steps = f'  - "It is "\n  - select: x\n    from: "{{{{ xs }}}}"\n    method: {method}\n  - set:\n      m: "{{{{ meta(x) }}}}"\n'
    result = await run(local, steps, "inputs: {xs: {type: array, items: any}}\n", xs=choices)
    assert result.error is None
    meta = result.meta["x"]
    check_meta(meta, choices, result.outputs["x"])
    assert result.outputs["m"] == meta
    # The same by whole forwards. The space before the choice melts with some of them.
    oracle = Oracle(model)
    texts = ["1", "12", "1.5", "true", "true story", "één 🙂", "-3"]
    begin = len(oracle.vocabulary.encode(["It is"]))
    for text, row in zip(texts, meta["scores"], strict=True):
        own = oracle.logprobs(oracle.vocabulary.encode(["It is " + text]))[begin - 1 :]
        expected = sum(own) if method == "sum" else sum(own) / len(own)
        assert row["score"] == pytest.approx(expected, abs=5e-4)
    assert result.usage == Usage(begin, local.engine.metrics.embedded_tokens)


async def test_in_forks_loops_and_after_constrained_text(local: LocalBackend):
    steps = """
  - user: Rate all of it.
  - assistant:
      - gen: form
        fields: {name: {type: string, maxLength: 4}}
        max_tokens: 60
      - " Then "
      - fork: aspect
        in: [size, colour, weight]
        do:
          - "{{ aspect }}: "
          - select: grade
            from: [good, goodish, bad]
          - for: i
            in: [1, 2]
            do:
              - " {{ i }} "
              - select: rounds[]
                from: [up, upper, down]
                method: greedy
          - gen: n
            type: integer
            max_tokens: 6
"""
    result = await run(local, steps)
    assert result.error is None
    for meta, value in zip(result.meta["grade"], result.outputs["grade"], strict=True):
        check_meta(meta, ["good", "goodish", "bad"], value)
    assert len(result.outputs["rounds"]) == 6
    for meta, value in zip(result.meta["rounds"], result.outputs["rounds"], strict=True):
        check_meta(meta, ["up", "upper", "down"], value)
    assert all(isinstance(n, int) for n in result.outputs["n"])
    assert result.usage.computed_tokens == local.engine.metrics.embedded_tokens
    assert local.engine.pool.live_bytes == 0


@pytest.mark.parametrize(("xs", "message"), [([], "at least one"), (["a", "a"], "same text"), ([1, "1"], "same text")])
async def test_choices_that_only_the_run_shows_to_be_wrong(local: LocalBackend, xs: list[Any], message: str):
    result = await run(local, '  - "a"\n  - select: x\n    from: xs\n', "inputs: {xs: array}\n", xs=xs)
    assert result.error is not None
    assert (result.error.code, result.error.cause) == ("S707", "S506")
    assert message in result.error.message


async def test_cancelled_while_choosing(local: LocalBackend):
    choices = [f"choice {i} of very many words, one after the other" for i in range(60)]
    program = program_of('  - "Which? "\n  - select: x\n    from: xs\n', "inputs: {xs: {type: array, items: string}}\n")
    handle = start(program, {"xs": choices}, local, RunOptions(seed=1))
    await until_forwards(local.engine, 2)
    handle.cancel()
    result = await handle.wait()
    assert result.status == "cancelled"
    await local.engine.check()
    assert local.engine.pool.live_bytes == 0

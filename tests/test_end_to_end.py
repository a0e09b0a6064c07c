"""Programs on the local engine: the whole way from a document to tokens and back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sglspec.analysis import load_program
from sglspec.analysis.program import Program
from sglspec.backends.local import LocalBackend, open_local
from sglspec.calculator import calculate
from sglspec.diagnostics import Report
from sglspec.document.nodes import to_python
from sglspec.document.read import parse, read_source, source_from_text
from sglspec.runtime.result import Result
from sglspec.runtime.run import RunOptions, execute, start

EXAMPLES = Path(__file__).parent.parent / "examples"
DOCUMENTS = sorted(EXAMPLES.glob("*.sglspec.*"))


def checked(path: Path) -> Program:
    report = Report(str(path))
    program = load_program(read_source(path), report)
    report.raise_errors()
    assert program is not None
    return program


def program_of(text: str) -> Program:
    report = Report("test.yaml")
    program = load_program(source_from_text(text, "test.yaml"), report)
    report.raise_errors()
    assert program is not None
    return program


def inputs_of(path: Path) -> dict[str, Any]:
    """The example's inputs: inputs/NAME.yaml, where NAME is the file's name without its number."""
    file = EXAMPLES / "inputs" / (path.name.split(".")[0].split("-", 1)[1] + ".yaml")
    if not file.exists():
        return {}
    node = parse(read_source(file), Report(str(file)))
    assert node is not None
    return to_python(node)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(default_model: Path) -> AsyncIterator[LocalBackend]:
    backend = await open_local(default_model)
    yield backend
    await backend.close()


async def run_example(name: str, backend: LocalBackend) -> Result:
    path = next(path for path in DOCUMENTS if path.name.startswith(name))
    result = await execute(checked(path), inputs_of(path), backend, RunOptions(seed=1))
    assert result.error is None, result.error
    return result


def is_grade(value: Any) -> bool:
    return set(value) == {"summary", "letter"} and value["letter"] in "ABCDF" and len(value["summary"]) <= 200


OBEYED: dict[str, Callable[[dict[str, Any]], bool]] = {
    "04": lambda out: is_grade(out["grade"]) and len(out["judgment"]) == 3,
    "05": lambda out: all(isinstance(value, (str, int)) for value in out["contact"].values()),
    "06": lambda out: out["stars"] in (1, 2, 3, 4, 5) and isinstance(out["recommended"], bool),
    "17": lambda out: out["turns"] == 2,
    "19": lambda out: out["result"] == calculate(out["expression"]),
    "10": lambda out: re.fullmatch(r"\d{4}-\d{2}-\d{2}", out["date"]) is not None,
}
"""What the constraints of an example promise about its outputs."""


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name.split(".")[0])
async def test_every_example_runs_and_obeys_its_constraints(path: Path, local: LocalBackend):
    result = await run_example(path.name[:3], local)
    assert result.outputs and all(value is not None for value in result.outputs.values())
    obeyed = OBEYED.get(path.name[:2])
    assert obeyed is None or obeyed(result.outputs), result.outputs
    assert "\ufffd" not in result.text
    assert local.engine.pool.live_bytes == 0


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_the_branches_of_the_essay_judge_share_their_prefix(local: LocalBackend):
    result = await run_example("04", local)
    usage = result.usage
    # Three branches and four steps start from the essay; only the first of them computes it.
    assert usage.reused_tokens > 2 * usage.computed_tokens


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_a_fork_of_eight_computes_a_long_prefix_once(local: LocalBackend):
    text = 'sglspec: v1\ninputs: {prefix: string}\nsteps:\n  - "{{ prefix }}"\n  - fork: 8\n    do:\n      - " Number {{ loop.index }}:"\n      - gen: x\n        max_tokens: 4\n        ignore_eos: true\n'
    prefix = " ".join(f"word{n}" for n in range(330))
    length = len(local.engine.vocabulary.encode_content(prefix))
    assert length >= 1_000
    before = local.engine.metrics.embedded_tokens
    result = await execute(program_of(text), {"prefix": prefix}, local, RunOptions(seed=1))
    embedded = local.engine.metrics.embedded_tokens - before
    assert result.error is None
    assert embedded == result.usage.computed_tokens
    assert length <= embedded < length + 8 * 20
    assert result.usage.reused_tokens >= 8 * (length - 8)


SLOTS = """
sglspec: v1
inputs: {t: string}
steps:
  - system: "s {{ t }}"
  - user: "{{ t }}"
  - assistant:
      - "a {{ t }} b"
      - raw: RAW
      - capture: c
        do: "{{ t }}"
      - set: {v: "<{{ t }}>"}
      - "{{ v }}{{ c }}"
      - select: s
        from: ["{{ t }}", "x{{ t }}"]
      - gen: g
        stop: "{{ t }}"
        max_tokens: 2
  - fork: 2
    join: concat
    do:
      - user: ["{{ t }}", "{{ messages()[0].content }}", "{{ loop.index }}"]
  - user: "{{ c }}"
  - gen: h
    max_tokens: 1
"""


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_every_added_token_in_every_slot_reaches_the_model_as_ordinary_text(local: LocalBackend):
    vocabulary = local.engine.vocabulary
    added = [vocabulary.describe(id) for id in sorted(vocabulary.control_ids)]
    assert len(added) >= 10
    for token in [*added, "".join(added)]:
        program = program_of(SLOTS.replace("RAW", repr(token)))
        run = start(program, {"t": token}, local, RunOptions(seed=1, trace=True))
        result = await run.wait()
        assert result.error is None, (token, result.error)
        for part in result.trace:
            assert part.origin in ("scaffold", "generated") or part.id not in vocabulary.control_ids, (token, part)
        # Scaffolding is that of seven messages: a control token at each end of each.
        scaffold = [part for part in result.trace if part.origin == "scaffold" and part.id in vocabulary.control_ids]
        assert len(scaffold) == 2 * 7
        assert result.messages[1]["content"] == token


async def test_a_tiny_model_runs_a_chat(tiny_llama: Path):
    backend = await open_local(tiny_llama)
    text = "sglspec: v1\nsteps:\n  - user: Hi\n  - gen: a\n    max_tokens: 5\n  - user: Go on\n  - select: s\n    from: [x, y]\n"
    result = await execute(program_of(text), {}, backend, RunOptions(seed=1))
    await backend.close()
    assert result.error is None
    assert result.outputs["s"] in ("x", "y")


async def test_the_same_seed_gives_the_same_text_alone_and_among_others(tiny_llama: Path):
    backend = await open_local(tiny_llama)
    text = 'sglspec: v1\nsteps:\n  - "Once"\n  - fork: 3\n    do:\n      - gen: x\n        temperature: 1\n        max_tokens: 8\n'
    alone = await execute(program_of(text), {}, backend, RunOptions(seed=7))
    runs = [start(program_of(text), {}, backend, RunOptions(seed=seed)) for seed in (1, 7, 9)]
    crowd = [await run.wait() for run in runs]
    await backend.close()
    assert crowd[1].outputs == alone.outputs
    assert crowd[0].outputs != alone.outputs
    assert len(set(alone.outputs["x"])) > 1


NESTED = """
sglspec: v1
steps:
  - "hi "
  - fork: 2
    do:
      - "{{ loop.index }}"
      - fork: 2
        join: concat
        do:
          - "\\n{{ loop.index }}"
          - gen: a
            max_tokens: 4
      - gen: b
        max_tokens: 4
"""


@pytest.mark.parametrize("join", ["concat", "concat_kv"])
async def test_cancelling_at_any_moment_leaves_nothing_behind(join: str, tiny_llama: Path):
    backend = await open_local(tiny_llama)
    program = program_of(NESTED.replace("join: concat", f"join: {join}"))
    for moment in range(0, 90, 3):
        run = start(program, {}, backend, RunOptions(seed=1))
        for _ in range(moment):
            await asyncio.sleep(0 if moment < 45 else 0.0005)
        run.cancel()
        result = await run.wait()
        assert result.status in ("cancelled", "succeeded")
        assert [event.type for event in run.log.events if event.type.startswith("run.")][1:] == [
            run.log.events[-1].type
        ]
    for _ in range(500):
        if backend.engine.pool.live_leases == 0:
            break
        await asyncio.sleep(0.01)
    assert backend.engine.pool.live_leases == 0
    await backend.engine.check()
    await backend.close()


KV = """
sglspec: v1
steps:
  - "Facts.\\n"
  - fork: planet
    in: [Mars, Venus, Pluto]
    join: JOIN
    do:
      - "{{ planet }} is"
      - gen: fact
        max_tokens: 6
        ignore_eos: true
      - ".\\n"
  - "In short:"
  - gen: summary
    max_tokens: 3
    ignore_eos: true
"""


async def test_a_join_of_keys_and_values_computes_every_token_once(tiny_llama: Path):
    backend, other = await open_local(tiny_llama), await open_local(tiny_llama)
    result = await execute(program_of(KV.replace("JOIN", "concat_kv")), {}, backend, RunOptions(1, trace=True))
    assert result.error is None
    # The last token that was generated is computed by nobody.
    assert result.usage.computed_tokens == backend.engine.metrics.embedded_tokens == len(result.trace) - 1
    exact = await execute(program_of(KV.replace("JOIN", "concat")), {}, other, RunOptions(seed=1))
    assert exact.usage.computed_tokens > result.usage.computed_tokens
    assert exact.outputs["fact"] == result.outputs["fact"]
    assert exact.text.startswith(result.text.removesuffix(result.outputs["summary"]))
    assert backend.engine.pool.live_bytes == 0
    await backend.close()
    await other.close()


MANY_ROLES = """
sglspec: v1
steps:
  - system: Short.
  - user: Go
  - fork:
      one: [{user: a}, {assistant: {gen: x, max_tokens: 3, ignore_eos: true}}]
      two: [{user: [b, {fork: 2, do: " {{ loop.index }}", join: concat_kv}]}]
      nothing: [{set: {y: 1}}]
      broken: [{user: c}, {fail: no}]
    join: concat_kv
    on_error: skip
  - user: So?
  - gen: z
    max_tokens: 3
"""


async def test_a_join_of_messages_of_an_empty_branch_and_of_one_that_failed(tiny_llama: Path):
    backend = await open_local(tiny_llama)
    result = await execute(program_of(MANY_ROLES), {}, backend, RunOptions(seed=1))
    assert result.error is None
    assert [message["role"] for message in result.messages] == [
        "system",
        "user",
        "user",
        "assistant",
        "user",
        "user",
        "assistant",
    ]
    assert result.messages[4]["content"] == "b 1 2"
    assert result.text.count("<|im_start|>") == 7
    for message in result.messages:
        assert f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" in result.text + "<|im_end|>\n"
    assert backend.engine.pool.live_bytes == 0
    await backend.close()


async def test_how_far_off_a_join_is_comes_with_its_event(tiny_llama: Path):
    backend = await open_local(tiny_llama, measure_joins=True)
    run = start(program_of(KV.replace("JOIN", "concat_kv")), {}, backend, RunOptions(seed=1))
    result = await run.wait()
    (event,) = [event for event in run.log.events if event.type == "context.joined"]
    assert event.data["mode"] == "concat_kv" and event.data["divergence"] > 1e-4
    assert result.usage.computed_tokens == backend.engine.metrics.embedded_tokens
    await backend.close()


@pytest.mark.parametrize("fallback", [False, True])
async def test_a_model_whose_keys_cannot_be_moved_joins_by_its_fallback(
    fallback: bool, tiny_model: Callable[[str], Path]
):
    backend = await open_local(tiny_model("gpt2"))
    assert not backend.capabilities.concat_kv
    text = KV.replace("JOIN", "concat_kv" + "\n    fallback: concat" * fallback)
    result = await execute(program_of(text), {}, backend, RunOptions(seed=1))
    code = result.error.code if result.error is not None else None
    assert code == (None if fallback else "S606")
    assert (backend.engine.metrics.embedded_tokens > 0) == fallback
    await backend.close()


@pytest.mark.parametrize("fallback", [False, True])
async def test_text_that_melts_at_the_fork_joins_by_its_fallback(fallback: bool, tiny_llama: Path):
    backend = await open_local(tiny_llama)
    text = 'sglspec: v1\nsteps:\n  - "th"\n  - fork: 2\n    do: ["e", "{{ loop.index }}"]\n    join: concat_kv\n'
    assert len(backend.engine.vocabulary.encode_content("the")) == len(backend.engine.vocabulary.encode_content("th"))
    result = await execute(program_of(text + "    fallback: concat\n" * fallback), {}, backend, RunOptions(seed=1))
    if fallback:
        assert result.error is None and result.text == "the1e2"
    else:
        assert result.error is not None and result.error.code == "S606"
        assert "fallback: concat" in (result.error.help or "")
    await backend.close()


async def test_a_cancelled_run_reports_what_it_used(tiny_llama: Path):
    backend = await open_local(tiny_llama)
    text = 'sglspec: v1\nsteps:\n  - "hi"\n  - gen: a\n    max_tokens: 400\n    ignore_eos: true\n'
    run = start(program_of(text), {}, backend, RunOptions(seed=1))
    seen = 0
    async for event in run.events():
        seen += event.type == "delta"
        if seen == 5:
            run.cancel()
    result = await run.wait()
    await backend.close()
    assert result.status == "cancelled"
    assert result.usage.generated_tokens >= 5
    assert result.usage.computed_tokens >= 5
    assert result.outputs["a"]

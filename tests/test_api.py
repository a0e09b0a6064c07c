"""The Python face, and the examples of its page."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import sglspec
from sglspec.backends.local import open_local
from sglspec.batches.memory import Room
from tests.cli.conftest import environment
from tests.runtime.fake import FakeBackend

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")
EXAMPLES = re.findall(r"(<!-- model -->\n)?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

TWO = """
sglspec: v1
inputs: {topic: string, n: {type: integer, default: 1}}
steps:
  - "On {{ topic }}: "
  - gen: a
    id: first
  - " and "
  - gen: b
"""
FORK = """
sglspec: v1
steps:
  - fork:
      left: [L, {gen: x}]
      right: [R, {gen: y}]
"""


def run_examples(with_model: bool) -> None:
    """One after another, as a reader would type them."""
    names = {"__name__": "example"}
    for model, text in EXAMPLES:
        if with_model or not model:
            exec(compile(text, "python.md", "exec"), names)


def test_the_examples_run():
    assert len(EXAMPLES) >= 7
    run_examples(with_model=False)


@pytest.mark.model
def test_the_example_with_a_model_runs(default_model: Path, capsys: pytest.CaptureFixture[str]):
    run_examples(with_model=True)
    assert len(capsys.readouterr().out.strip()) > 20


def test_every_name_is_there():
    for name in sglspec.__all__:
        assert getattr(sglspec, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = sglspec.nonsense


def test_a_scripted_run_loads_no_torch():
    code = (
        "import sys, sglspec\n"
        "print(sglspec.run('sglspec: v1\\nsteps: [{gen: x}]\\n', on={'x': 'y'}).outputs, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout == "{'x': 'y'} False\n"


def test_check():
    assert [problem.code for problem in sglspec.check(TWO)] == ["W302"]
    assert [problem.code for problem in sglspec.check("sglspec: v1\nsteps: [{gan: x}]\n")] == ["S204"]
    assert [problem.code for problem in sglspec.check("nothing.yaml")] == ["S100"]
    with pytest.raises(sglspec.SpecError):
        sglspec.load("sglspec: v1\nsteps: [{gan: x}]\n")


def codes(error: pytest.ExceptionInfo[sglspec.SpecError]) -> list[str]:
    return [problem.code for problem in error.value.diagnostics]


def test_binding():
    program = sglspec.load(TWO)
    bound = program.bind(topic="salt")
    assert program.bound == {} and bound.inputs == ("n",)
    for call in (lambda: bound.bind(topic="x"), lambda: bound.run({"topic": "x"}, on={})):
        with pytest.raises(sglspec.SpecError) as error:
            call()
        assert codes(error) == ["S410"]
    with pytest.raises(sglspec.SpecError) as error:
        program.bind(topc="x", n="y")
    assert codes(error) == ["S403", "S401"]
    (row,) = bound.batch([{"topic": "x"}], on={})
    assert row.error is not None and row.error.code == "S410"


async def test_waiting_works_inside_of_an_event_loop():
    assert sglspec.run(TWO, {"topic": "x"}, on={"first": "A", "b": "B"}).outputs == {"a": "A", "b": "B"}
    assert (await sglspec.arun(TWO, {"topic": "x"}, on={"first": "A", "b": "B"})).status == "succeeded"


async def test_readers_of_a_stream():
    backend = FakeBackend({"first": "one", "b": "two"})
    gate = backend.close_gate("b")
    async with sglspec.load(TWO).astream({"topic": "x"}, on=backend) as stream:

        async def read(var: str | None) -> list[str]:
            return [piece async for piece in stream.text(var)]

        early = asyncio.create_task(read("a"))
        await backend.until("start b")
        late = asyncio.create_task(read("a"))
        whole = asyncio.create_task(read(None))
        await asyncio.sleep(0.01)
        gate.set()
        assert await early == ["o", "n", "e"]
        assert await late == ["one"]  # what it missed, as one piece
        assert "".join(await whole) == "On x: one and two"
        assert "".join(await read("first")) == "one"
        assert "".join(await read("b")) == "two"
        assert (await stream.result()).outputs == {"a": "one", "b": "two"}
        types = [event.type async for event in stream.events("a")]
        assert types == ["delta"] * 3 + ["generated", "bound"]


async def test_pieces_have_the_tokens_of_what_was_missed():
    backend = FakeBackend({"first": "one", "b": "two"})
    gate = backend.close_gate("b")
    async with sglspec.load(TWO).astream({"topic": "x"}, on=backend) as stream:
        await backend.until("start b")
        pieces = stream.pieces()
        first = await anext(pieces)
        gate.set()
        later = [piece async for piece in pieces]
        assert first.text == "On x: one and "
        assert [(token.text, token.logprob) for token in first.tokens] == [("o", 0.0), ("n", 0.0), ("e", 0.0)]
        assert [(piece.text, [token.text for token in piece.tokens]) for piece in later] == [(c, [c]) for c in "two"]
        (piece,) = [piece async for piece in stream.pieces("b")]
        assert (piece.text, len(piece.tokens)) == ("two", 3)
        deltas = [event async for event in stream.events("b") if event.type == "delta"]
        assert all("tokens" not in event.as_dict() for event in deltas)


async def test_tokens_of_a_model(tiny_llama: Path):
    """A late reader gets the same tokens as the result, but for one that only ended the text."""
    backend = await open_local(tiny_llama, debug=True)
    try:
        text = "sglspec: v1\nsteps:\n  - Words\n  - gen: a\n    max_tokens: 12\n    temperature: 1\n"
        async with sglspec.load(text).astream(on=backend, seed=3) as stream:
            result = await stream.result()
            (piece,) = [piece async for piece in stream.pieces("a")]
        expected = [(token["text"], token["logprob"]) for token in result.meta["a"]["tokens"]]
        found = [(token.text, token.logprob) for token in piece.tokens]
        assert len(found) > 3 and found == expected[: len(found)] and "".join(t for t, _ in found) == piece.text
        assert all(text == "" for text, _ in expected[len(found) :])
    finally:
        await backend.close()


async def test_one_branch_of_a_stream():
    backend = FakeBackend({"x": "yes", "y": "no"})
    async with sglspec.load(FORK).astream(on=backend) as stream:
        assert "".join([piece async for piece in stream.text(branch="left")]) == "Lyes"
        assert "".join([piece async for piece in stream.text("y", "1.1")]) == "no"
        assert [event.branch async for event in stream.events(branch="right")].count("1.0") == 0


async def test_leaving_a_stream_cancels_the_run():
    backend = FakeBackend({"first": "one", "b": "two"})
    backend.close_gate("b")
    async with sglspec.load(TWO).astream({"topic": "x"}, on=backend) as stream:
        await backend.until("start b")
    assert (await stream.result()).status == "cancelled"
    assert backend.open_sessions == 0


def test_a_stream_without_await():
    with sglspec.stream(TWO, {"topic": "x"}, on={"first": "one", "b": "two"}) as stream:
        found: list[str] = []
        threads = [threading.Thread(target=lambda: found.append("".join(stream.text("b")))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == ["two"] * 3
        for _ in stream.events():
            break  # a reader may stop early
        assert stream.result().status == "succeeded"


async def test_rows_start_when_there_is_a_place_and_come_in_order():
    backend = FakeBackend({"a": "x"})
    gate = backend.close_gate("a")
    asked: list[int] = []

    def rows():
        for number in range(100):
            asked.append(number)
            yield {"n": number}

    program = sglspec.load("sglspec: v1\ninputs: {n: integer}\noutputs: [n]\nsteps:\n  - gen: a\n")
    results = program.abatch(rows(), on=backend, concurrency=3)
    first = asyncio.ensure_future(anext(results))
    await backend.until("start a")
    await asyncio.sleep(0.01)
    assert asked == [0, 1, 2]
    gate.set()
    found = [await first, *[row async for row in results]]
    assert [row.outputs["n"] for row in found] == list(range(100))


async def test_a_batch_that_is_left_cancels_its_rows():
    backend = FakeBackend({"a": "x"})
    program = sglspec.load("sglspec: v1\ninputs: {n: integer}\nsteps:\n  - gen: a\n")
    results = program.abatch(({"n": n} for n in range(100)), on=backend, concurrency=5)
    assert (await anext(results)).status == "succeeded"
    await results.aclose()
    assert backend.open_sessions == 0


def test_output_of_a_batch(tmp_path: Path):
    program = sglspec.load("sglspec: v1\ninputs: {n: integer}\nsteps:\n  - gen: a\n")
    out = tmp_path / "out.jsonl"
    rows = [{"n": n} for n in range(5)]
    assert len(list(program.batch(rows, on={"a": "x"}, output=out))) == 5
    assert [row.row for row in program.batch([*rows, {"n": 7}], on={"a": "x"}, output=out)] == [6]
    assert out.read_text().count("\n") == 6


LONG = "A prefix that all rows have in common, which is long enough to fill more than one page of the cache. " * 3
SHARED = f"""
sglspec: v1
inputs: {{q: string}}
steps:
  - "{LONG}{{{{ q }}}}"
  - gen: a
    max_tokens: 4
"""


async def test_what_rows_share_is_computed_once(tiny_llama: Path):
    program = sglspec.load(SHARED)
    backend = await open_local(tiny_llama, debug=True)
    try:
        rows = [row async for row in program.abatch(({"q": f"{n} q"} for n in range(8)), on=backend)]
        assert {row.status for row in rows} == {"succeeded"}
        one = rows[0].usage.prompt_tokens
        computed = sum(row.usage.computed_tokens for row in rows)
        # the whole of the first prompt, and of the others what differs; a generated token but the last one is computed
        own = len(b" 1 q") + 2
        assert one > 10 * own
        assert one <= computed <= one + sum(own + row.usage.generated_tokens for row in rows)
    finally:
        await backend.close()


GROWING = """
sglspec: v1
inputs: {q: string}
steps:
  - "{{ q }}"
  - for: round
    in: [1, 2, 3]
    do: [{gen: "a[]", max_tokens: 20, ignore_eos: true}, " so "]
"""


@pytest.mark.parametrize("known", [True, False])
async def test_rows_are_let_in_by_memory(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, known: bool):
    """With room for three rows and a bit, none loses what it has computed. It would, if all ran at a time."""
    if not known:
        monkeypatch.setattr(Room, "has", lambda self, needs: True)
    probe = await open_local(tiny_llama)
    size = probe.engine.pool.layout.bytes_per_token
    await probe.close()
    backend = await open_local(tiny_llama, debug=True, max_kv_bytes=320 * size, prefix_cache=False)
    try:
        rows = [row async for row in sglspec.load(GROWING).abatch(({"q": f"{n} q"} for n in range(12)), on=backend)]
        assert {row.status for row in rows} == {"succeeded"}
        lost = backend.engine.metrics.preempted + backend.engine.metrics.parked
        assert (lost == 0) == known
    finally:
        await backend.close()


async def test_the_beginning_of_all_rows_goes_through_the_model_once(tiny_llama: Path):
    """Counted at the embedding: few-shot examples, which come from rows, included."""
    text = """
sglspec: v1
inputs: {q: string, shots: {type: array, items: {properties: {q: string, a: string}}}}
steps:
  - "{% for one in shots %}Question: {{ one.q }} Answer: {{ one.a }}\n{% endfor %}Question: {{ q }} Answer:"
  - gen: a
    max_tokens: 3
"""
    backend = await open_local(tiny_llama, debug=True)
    counted: list[int] = []
    embedding = backend.engine._runner._model.get_input_embeddings()
    hook = embedding.register_forward_pre_hook(lambda _, given: counted.append(given[0].numel()))
    try:
        pool = [{"q": f"what is number {n}", "a": f"it is the number {n}, the one behind {n - 1}"} for n in range(9)]
        program = sglspec.load(text)
        rows = [{"q": f"{n:03}"} for n in range(40)]
        found = [row async for row in program.abatch(rows, on=backend, few_shot=("shots", 8), few_shot_from=pool)]
        assert {row.status for row in found} == {"succeeded"}
        prompt = found[0].usage.prompt_tokens
        own = len(backend.encode("Question: 000 Answer:")) + 3
        assert prompt > 4 * own
        assert prompt <= sum(counted) <= prompt + len(rows) * own
    finally:
        hook.remove()
        await backend.close()


async def test_warm(tiny_llama: Path):
    program = sglspec.load(SHARED)
    backend = await open_local(tiny_llama, debug=True)
    try:
        computed = await program.awarm(on=backend)
        assert computed > 50
        usage = (await program.arun({"q": "1 q"}, on=backend)).usage
        assert usage.reused_tokens >= computed - 1
        assert await sglspec.load("sglspec: v1\nsteps: [{gen: x}]\n").awarm(on=backend) == 0
        whole = await program.bind(q="1 q").awarm(on=backend)
        assert whole <= usage.prompt_tokens - usage.reused_tokens
    finally:
        await backend.close()


def test_files_of_a_document(tmp_path: Path):
    (tmp_path / "part.yaml").write_text("sglspec: v1\nsteps: [{gen: x}]\n")
    text = "sglspec: v1\nuse: {part: ./part.yaml}\nsteps: [{call: part, into: y}]\n"
    with pytest.raises(sglspec.SpecError) as refused:
        sglspec.load(text)
    assert codes(refused) == ["S121"]
    assert [problem.code for problem in sglspec.check(text)] == ["S121"]
    program = sglspec.load(text, roots=[tmp_path])
    assert program.run(on={"part.x": "hi"}).outputs == {"y": {"x": "hi"}}
    (tmp_path / "main.yaml").write_text(text)
    assert sglspec.load(tmp_path / "main.yaml").name == "main"


def test_a_variable_of_a_called_program(tmp_path: Path):
    (tmp_path / "part.yaml").write_text("sglspec: v1\nsteps: [{gen: x}]\n")
    text = "sglspec: v1\nuse: {part: ./part.yaml}\nsteps: [{call: part}, {gen: x}]\n"
    program = sglspec.load(text, roots=[tmp_path])
    with program.stream(on={"part.x": "inner", "x": "outer"}) as stream:
        assert ["".join(stream.text(var)) for var in ("x", "part.x")] == ["outer", "inner"]


def test_tools():
    def double(text: str) -> str:
        return text * 2

    text = "sglspec: v1\nsteps:\n  - {tool: double, with: {text: ab}, into: a}\n"
    backend = FakeBackend({})
    assert sglspec.load(text, tools=[double]).run(on=backend).outputs == {"a": "abab"}
    assert sglspec.run(text, tools=[double], on=backend).outputs == {"a": "abab"}
    assert [problem.code for problem in sglspec.check(text.replace("text:", "txt:"), tools=[double])] == [
        "S406",
        "S406",
    ]
    with pytest.raises(sglspec.SpecError) as error:
        sglspec.load(text, tools=[])
    assert codes(error) == ["S320"]
    with pytest.raises(TypeError, match="tools cannot be given"):
        sglspec.run(sglspec.load(text), tools=[double], on=backend)


def test_options_of_a_run():
    """They win over `defaults` and not over steps, whichever way it is started."""
    text = "sglspec: v1\ndefaults: {top_k: 3, min_p: 0.1}\nsteps: [{gen: a}, {gen: b, top_k: 4}]\n"
    program, backend = sglspec.load(text), FakeBackend({"a": "x", "b": "y"})
    options = {"top_k": 7, "stop": ["!", "\n"], "stop_regex": "[0-9]"}
    program.run(on=backend, sampling=options)
    with program.stream(on=backend, sampling=options) as stream:
        stream.result()
    sglspec.run(program, on=backend, sampling=options)
    seen = [(r.sampling.top_k, r.sampling.min_p, r.stop, len(r.stop_patterns)) for r in backend.requests]
    assert seen == [(7, 0.1, ("!", "\n"), 1), (4, 0.1, ("!", "\n"), 1)] * 3
    with pytest.raises(sglspec.SpecError, match="S201"):
        program.run(on=backend, sampling={"topk": 7})

"""`n` and `retry`: several texts for one step, and the one that the context goes on with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sglspec.backends.base import Alternative, EngineError, Token
from sglspec.backends.local import open_local
from sglspec.backends.scripted import Script, script_of
from sglspec.runtime.run import RunOptions, start
from tests.engine import tiny
from tests.runtime.fake import FakeBackend, FakeSession, run_scripted, steps


class Sampled(FakeBackend):
    """Candidates whose tokens have the log-probabilities that `{text: logprob}` in a reply says."""

    async def open(self, label: str = "", caller: Any = None) -> Any:
        return SampledSession(self, Script(self.replies))


class SampledSession(FakeSession):
    async def generate(self, request: Any) -> Any:
        async for delta in super().generate(request):
            tokens = tuple(Token(1, t.text, -float(t.text) if t.text.isdigit() else -9.0) for t in delta.tokens)
            yield type(delta)(delta.text, tokens, delta.finish)

    async def fork(self, n: int) -> Any:
        return [SampledSession(self._fake, self.script, self._text) for _ in range(n)]


async def test_best_keeps_the_likeliest_candidate() -> None:
    program = steps("- 'x'\n- {gen: a, n: 3, keep: best, temperature: 1}\n- '!'")
    backend = Sampled({"a": [["33", "12", "55"]]})
    result = await start(program, {}, backend, RunOptions()).wait()
    assert result.outputs == {"a": ["33", "12", "55"]}
    assert result.text == "x12!"
    assert backend.open_sessions == 0
    assert result.usage.generated_tokens == 6


@pytest.mark.parametrize(("keep", "text"), [("", "x4!"), (", keep: first", "x4!"), (", keep: best", "x222!")])
async def test_likelihood_is_the_mean_and_counts_only_where_it_is_asked_for(keep: str, text: str) -> None:
    program = steps(f"- 'x'\n- {{gen: a, n: 2, temperature: 1{keep}}}\n- '!'")
    result = await start(program, {}, Sampled({"a": [["4", "222"]]}), RunOptions()).wait()
    assert result.text == text


class Ended(FakeSession):
    """An end is always likely, other tokens are not."""

    async def generate(self, request: Any) -> Any:
        async for delta in super().generate(request):
            tokens = tuple(Token(1, t.text, -3.0) for t in delta.tokens)
            yield type(delta)(delta.text, (Token(2, "", -0.1, end=True),) if delta.finish else tokens, delta.finish)

    async def fork(self, n: int) -> Any:
        return [Ended(self._fake, self.script, self._text) for _ in range(n)]


async def test_an_empty_candidate_is_not_the_best() -> None:
    class Backend(FakeBackend):
        async def open(self, label: str = "", caller: Any = None) -> Any:
            return Ended(self, script_of(self.replies, label, caller))

    program = steps("- 'x'\n- {gen: a, n: 3, keep: best, temperature: 1}\n- '!'")
    result = await start(program, {}, Backend({"a": [["", "b", ""]]}), RunOptions()).wait()
    assert (result.outputs, result.text) == ({"a": ["", "b", ""]}, "xb!")
    result = await start(program, {}, Backend({"a": [["", "", ""]]}), RunOptions()).wait()
    assert result.text == "x!"


async def test_candidates_run_side_by_side_and_show_nothing_before_one_is_kept() -> None:
    program = steps("- {gen: a, n: 2, temperature: 1}")
    backend = FakeBackend({"a": [["one", "two"]]})
    run = start(program, {}, backend, RunOptions())
    result = await run.wait()
    assert backend.order[:2] == ["start a", "start a"]
    assert [event.data["text"] for event in run.log.events if event.type == "delta"] == ["one"]
    assert result.text == "one"


async def test_every_candidate_has_noise_of_its_own_and_the_first_that_of_a_single_text() -> None:
    backend = FakeBackend(
        {
            "a": [["x", "y"], ["z", "w"]],
        }
    )
    program = steps("- {gen: a, n: 2, temperature: 1, retry: {max: 2, until: \"a[0] == 'z'\"}}")
    await start(program, {}, backend, RunOptions(seed=3)).wait()
    keys = [request.noise_key for request in backend.requests]
    assert len(set(keys)) == 4
    single = FakeBackend({"a": "x"})
    await start(steps("- {gen: a, temperature: 1}"), {}, single, RunOptions(seed=3)).wait()
    assert single.requests[0].noise_key == keys[0]


async def test_one_failing_candidate_of_the_backend_ends_the_run_and_closes_all() -> None:
    backend = FakeBackend({"a": [["x", EngineError("internal", "broken")]]})
    result = await start(steps("- {gen: a, n: 2, temperature: 1}"), {}, backend, RunOptions()).wait()
    assert result.error is not None
    assert result.error.code == "S713"
    assert backend.open_sessions == 0


async def test_a_cancelled_run_closes_its_candidates() -> None:
    backend = FakeBackend({"a": [["x", "y"]]})
    backend.close_gate("a")
    run = start(steps("- {gen: a, n: 2, temperature: 1}"), {}, backend, RunOptions())
    await backend.until("start a")
    run.cancel()
    result = await run.wait()
    assert result.status == "cancelled"
    assert backend.open_sessions == 0


async def test_tokens_of_all_attempts_count_against_the_limit() -> None:
    program = steps("- {gen: a, temperature: 1, retry: {max: 9, until: a == 'no'}}", limits="{tokens: 8}")
    result = await start(program, {}, FakeBackend({"a": ["abc"] * 9}), RunOptions()).wait()
    assert result.error is not None
    assert result.error.code == "S705"


async def test_meta_has_tokens_with_their_alternatives() -> None:
    class Backend(FakeBackend):
        async def open(self, label: str = "", caller: Any = None) -> Any:
            return One(self, Script(self.replies))

    class One(FakeSession):
        async def generate(self, request: Any) -> Any:
            assert request.alternatives == 2
            top = (Alternative(1, "a", -0.5), Alternative(2, "</s>", -1.5, end=True))
            async for delta in super().generate(request):
                yield type(delta)(
                    delta.text, tuple(Token(1, t.text, -0.5, top=top) for t in delta.tokens), delta.finish
                )

    program = steps("- {gen: a, logprobs: 2}\n- set: {m: '{{ meta(a) }}'}")
    result = await start(program, {}, Backend({"a": "hi"}), RunOptions()).wait()
    top = [{"text": "a", "logprob": -0.5, "end": False}, {"text": "</s>", "logprob": -1.5, "end": True}]
    assert result.variables["m"]["tokens"] == [
        {"text": "h", "logprob": -0.5, "end": False, "forced": False, "top": top},
        {"text": "i", "logprob": -0.5, "end": False, "forced": False, "top": top},
    ]


async def test_retry_leaves_the_variable_as_it_was_when_until_fails_to_evaluate() -> None:
    program = steps("- {gen: a, temperature: 1, retry: {max: 2, until: 1 // (len(a) - len(a)) == 1}}")
    result = await run_scripted(program, replies={"a": ["x", "2"]})
    assert result.error is not None
    assert result.error.code == "S707"
    assert "a" not in result.variables


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build(tmp_path_factory.mktemp("local"))


async def test_on_the_engine_the_context_goes_on_exactly_with_the_kept_one(folder: Path) -> None:
    """The text after `n` is that of a program in which the kept candidate stood from the beginning."""
    program = steps(
        "- 'Hello there'\n- {gen: a, n: 3, keep: best, temperature: 1.5, max_tokens: 6}\n- ' and'\n- {gen: b, max_tokens: 5}"
    )
    backend = await open_local(folder, threads=1, weights="fp32")
    try:
        results = await asyncio.gather(*(start(program, {}, backend, RunOptions(seed=7)).wait() for _ in range(3)))
        first = results[0]
        assert all(r.outputs == first.outputs for r in results)
        candidates = first.outputs["a"]
        assert len(set(candidates)) == 3
        single = steps("- 'Hello there'\n- {gen: a, temperature: 1.5, max_tokens: 6}")
        alone = await start(single, {}, backend, RunOptions(seed=7)).wait()
        assert alone.outputs["a"] == candidates[0]
        kept = [c for c in candidates if first.text.startswith(f"Hello there{c} and")]
        assert kept
        await backend.engine.check()
        assert backend.engine.metrics.failed == 0
    finally:
        await backend.close()


async def test_on_the_engine_a_candidate_begins_as_a_single_text_does(tmp_path: Path) -> None:
    """Where the text before it ends in the middle of what the model would write, too."""
    backend = await open_local(tiny.build(tmp_path), threads=1, weights="fp32")
    try:
        for text in ("Hello", "a wor", "x = 1"):
            one, many = (steps(f"- '{text}'\n- {{gen: a, max_tokens: 4{n}}}") for n in ("", ", n: 1"))
            single = await start(one, {}, backend, RunOptions()).wait()
            listed = await start(many, {}, backend, RunOptions()).wait()
            assert listed.outputs == {"a": [single.outputs["a"]]}, text
    finally:
        await backend.close()

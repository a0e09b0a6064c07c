"""Grammars: what comes out matches, ends when it should, and fails alone."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import shutil
import threading
import weakref
from pathlib import Path
from unittest import mock

import pytest
import torch
import transformers

from sglspec_engine import constrain
from sglspec_engine.engine import Engine
from sglspec_engine.types import EngineError, GenRequest, Sampling, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running

JSON = """start: obj
obj: "{" "\\"name\\":" str "," "\\"tags\\":" arr "," "\\"ok\\":" ("true" | "false") "}"
arr: "[" (str ("," str)*)? "]"
str: /"[a-z ]{0,6}"/
"""


@pytest.mark.parametrize("forced", [True, False])
async def test_output_parses(tiny_llama: Path, forced: bool) -> None:
    async with running(tiny_llama, forced=forced) as engine:
        session = engine.open()
        await session.extend([TextSegment("Give JSON:")])
        branches = await session.fork(6)

        async def one(key: int) -> tuple[str, int]:
            sampling = Sampling(temperature=1.0 if key else 0.0)
            finish, tokens = await collect(
                branches[key], grammar=JSON, max_tokens=200, noise_key=key, sampling=sampling
            )
            assert finish.reason in ("constraint", "end")
            assert sum(t.forced for t in tokens) == finish.usage.forced_tokens
            return finish.text, finish.usage.forced_tokens

        for text, forced_tokens in await asyncio.gather(*(one(key) for key in range(6))):
            value = json.loads(text)
            assert list(value) == ["name", "tags", "ok"]
            assert forced_tokens > 0


async def test_forced_tokens_change_the_steps_and_not_the_context(tiny_llama: Path) -> None:
    grammar = 'start: "this text is fixed from end to end, " ("yes" | "no")'
    found = []
    for forced in (True, False):
        async with running(tiny_llama, forced=forced) as engine:
            session = engine.open()
            await session.extend([TextSegment("Q")])
            prompt = ids_of(session)
            finish, tokens = await collect(session, grammar=grammar, max_tokens=60)
            Oracle(tiny_llama).assert_logprobs(prompt, tokens)
            assert engine.metrics.embedded_tokens == finish.usage.computed_tokens
            found.append((finish.text, engine.metrics.forwards))
    assert found[0][0] == found[1][0]
    assert found[0][1] < found[1][1]


@pytest.mark.parametrize("key", range(4))
async def test_without_jumps_the_same_tokens_come_one_by_one(tiny_llama: Path, key: int) -> None:
    """Also where the model samples between and behind forced text."""
    found = []
    for forced in (True, False):
        async with running(tiny_llama, forced=forced) as engine:
            session = engine.open()
            await session.extend([TextSegment("Q")])
            sampling = Sampling(temperature=1.5)
            finish, tokens = await collect(session, grammar=JSON, max_tokens=90, noise_key=key, sampling=sampling)
            found.append(([(t.id, t.forced) for t in tokens], finish.text, engine.metrics.forwards))
            assert finish.usage.forced_tokens > 0
    assert found[0][:2] == found[1][:2]
    assert found[0][2] < found[1][2]


async def test_limits_count_forced_tokens(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        for limit in range(1, 12):
            session = engine.open()
            await session.extend([TextSegment("Q")])
            prompt = ids_of(session)
            finish, tokens = await collect(session, grammar='start: "abc def ghi jkl mno pqr"', max_tokens=limit)
            assert len(tokens) <= limit
            assert ids_of(session) == prompt + [t.id for t in tokens]
            assert finish.reason == ("length" if len(tokens) == limit and len(finish.text) < 23 else "constraint")
            await session.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_stops_apply_within_forced_text(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Q")])
        finish, _ = await collect(session, grammar='start: "abc def ghi jkl"', stop=("ef g",))
        assert (finish.text, finish.reason) == ("abc d", "stop")
        assert session.text() == "Qabc d"


async def test_a_complete_text_ends_where_the_model_wants_something_else(tiny_llama: Path) -> None:
    """Digits may go on for ever; the text ends as soon as the likeliest token is no digit."""
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("number ")])
        prompt = ids_of(session)
        finish, tokens = await collect(session, grammar="start: /[0-9]+/", max_tokens=50)
        assert re.fullmatch("[0-9]+", finish.text)
        assert finish.reason in ("constraint", "end")
        ids = [t.id for t in tokens]
        if finish.reason == "constraint":
            best = int(oracle.logits([*prompt, *ids])[-1, : oracle.vocabulary.size].argmax())
            assert not oracle.vocabulary.token_bytes[best].isdigit()
        likely = oracle.vocabulary.encode_content("7", after="text")[0]
        finish, tokens = await collect(
            session,
            grammar="start: /[0-9]+/",
            max_tokens=9,
            min_tokens=5,
            sampling=Sampling(logit_bias=((likely, 50.0),)),
        )
        assert len(finish.text) >= 5


async def test_an_end_that_is_ignored_is_not_what_the_model_wants_instead(tiny_llama: Path, tmp_path: Path) -> None:
    """A complete text goes on where the likeliest token but for the end is one that may follow."""
    oracle = Oracle(tiny_llama)
    prompt = oracle.vocabulary.encode(["Q"])
    best = int(oracle.logits(prompt)[-1, : oracle.vocabulary.size].argmax())
    word = oracle.vocabulary.token_bytes[best].decode()
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_llama)
    with torch.no_grad():
        head = model.get_output_embeddings()
        assert head is not None
        rows = head.weight
        rows[sorted(oracle.loaded.eos_ids)] = rows[best] * 1.01
    shutil.copytree(tiny_llama, tmp_path / "model")
    model.save_pretrained(tmp_path / "model")
    grammar = f'start: "" | {json.dumps(word)} "!"'
    async with running(tmp_path / "model") as engine:
        for ignore, text in ((False, ""), (True, f"{word}!")):
            session = engine.open()
            await session.extend([TextSegment("Q")])
            finish, _ = await collect(session, grammar=grammar, ignore_eos=ignore, max_tokens=9)
            assert finish.text == text
            await session.close()


async def test_nothing_may_follow(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Q")])
        finish, _ = await collect(session, grammar='start: "a" | "b"', min_tokens=7)
        assert (finish.reason, len(finish.text)) == ("constraint", 1)
        finish, tokens = await collect(session, grammar='start: ""')
        assert (finish.text, finish.reason, tokens) == ("", "constraint", [])


@pytest.mark.parametrize("forced", [True, False])
async def test_control_tokens_are_no_text_of_a_grammar(tiny_llama: Path, forced: bool) -> None:
    async with running(tiny_llama, forced=forced) as engine:
        session = engine.open()
        await session.extend([TextSegment("Q")])
        control = engine.vocabulary.control("<|im_start|>")
        assert control is not None
        finish, tokens = await collect(
            session,
            grammar='start: "<|im_start|>x"',
            max_tokens=40,
            sampling=Sampling(logit_bias=((control.id, 1e4),)),
        )
        assert finish.text == "<|im_start|>x"
        assert not {t.id for t in tokens} & engine.vocabulary.control_ids
        finish, tokens = await collect(
            session,
            grammar="start: /[a-z_<|>]{12,20}/",
            max_tokens=40,
            sampling=Sampling(logit_bias=((control.id, 1e4),)),
        )
        assert not {t.id for t in tokens} & engine.vocabulary.control_ids


async def test_a_bad_grammar_fails_alone(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        good, bad = engine.open(), engine.open()
        for session in (good, bad):
            await session.extend([TextSegment("Q")])
        results = await asyncio.gather(
            collect(good, grammar="start: /[a-z]{5}/"), collect(bad, grammar="start: nope"), return_exceptions=True
        )
        assert isinstance(results[1], EngineError)
        assert results[1].kind == "constraint"
        assert not isinstance(results[0], BaseException)
        before = ids_of(bad)
        with pytest.raises(EngineError):
            await collect(bad, grammar="start: nope")
        assert ids_of(bad) == before
        finish, _ = await collect(bad, grammar='start: "fine"')
        assert finish.text == "fine"


HOSTILE = [
    "start: /(a{1000}){1000}/",
    "start: /[ab]*a[ab]{2000}/",
    "start: /(a?){500}a{500}/",
    'start: a\na: a a | "x" |',
    "start: " + "(" * 5000 + '"a"' + ")" * 5000,
    'start: "a" start',
    'start: %json {"type": "array", "items": {"type": "string", "pattern": "^([ab]*a[ab]{13})+$"}, "maxItems": 100000}',
    "start: %json " + json.dumps({"enum": [f"word {i}" for i in range(20_000)]}),
    'start: %json {"$ref": "#"}',
    'start: %json {"$ref": "http://127.0.0.1:9/x"}',
]


async def test_hostile_grammars_concern_nobody_else(tiny_llama: Path) -> None:
    """Each is refused or generates, and what streams beside them is what it would be alone."""

    async def story(engine: Engine) -> list[int]:
        session = engine.open()
        await session.extend([TextSegment("Once")])
        _, tokens = await collect(session, max_tokens=150, ignore_eos=True)
        return [token.id for token in tokens]

    async def attempt(engine: Engine, grammar: str) -> str:
        session = engine.open()
        await session.extend([TextSegment("Q")])
        try:
            finish, _ = await collect(session, grammar=grammar, max_tokens=24, sampling=Sampling(temperature=1.0))
            return finish.reason
        except EngineError as error:
            return error.kind
        finally:
            await session.close()

    async with running(tiny_llama) as engine:
        alone = await story(engine)
        beside, *outcomes = await asyncio.gather(story(engine), *(attempt(engine, grammar) for grammar in HOSTILE))
        assert beside == alone
        assert set(outcomes) <= {"constraint", "length", "end"}
        await engine.check()


async def test_texts_go_on_while_a_grammar_is_compiled(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes: it has threads of its own, and as many texts as there are get their tokens meanwhile."""
    gate = threading.Event()
    compiled = constrain.Grammars._compile

    def slow(self: constrain.Grammars, grammar: str) -> constrain.GrammarConstraint:
        assert gate.wait(60)
        return compiled(self, grammar)

    monkeypatch.setattr(constrain.Grammars, "_compile", slow)
    async with running(tiny_llama) as engine:
        waiting = [engine.open() for _ in range(4)]
        for session in waiting:
            await session.extend([TextSegment("Q")])
        grammars = [f"start: /[a-z]{{{i + 3}}}/" for i in range(4)]  # more than there are threads for
        asked = [asyncio.create_task(collect(s, grammar=g)) for s, g in zip(waiting, grammars, strict=True)]
        beside = engine.open()
        await beside.extend([TextSegment("Once")])
        _, tokens = await collect(beside, max_tokens=60, ignore_eos=True)
        assert len(tokens) == 60
        assert not any(task.done() for task in asked)
        gate.set()
        assert [len(finish.text) for finish, _ in await asyncio.gather(*asked)] == [3, 4, 5, 6]


async def test_a_grammar_that_slows_the_loop_down_is_stopped(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Q")])
        await asyncio.wrap_future(engine._grammars.compile("start: /[a-z]{9}/"))
        before = ids_of(session)
        with monkeypatch.context() as patch:
            patch.setattr(constrain, "SLOW", -1.0)
            patch.setattr(constrain, "PATIENCE", 0.0)
            with pytest.raises(EngineError, match="takes too long"):
                await collect(session, grammar="start: /[a-z]{9}/")
        assert ids_of(session) == before
        finish, _ = await collect(session, grammar="start: /[a-z]{9}/")
        assert len(finish.text) == 9


@pytest.mark.parametrize("grammar", ["start: /(a?){500}a{500}/", 'start: "a" start'])
async def test_a_grammar_that_costs_too_much_says_so(tiny_llama: Path, grammar: str) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Q")])
        with pytest.raises(EngineError, match=r"takes too much work, .* \(.*[Tt]oo many"):
            await collect(session, grammar=grammar)


async def test_a_compilation_that_takes_too_long(tiny_llama: Path) -> None:
    async with running(tiny_llama, grammar_timeout=0.05) as engine:
        from concurrent.futures import Future
        from unittest import mock

        never: Future = Future()
        session = engine.open()
        await session.extend([TextSegment("Q")])
        with mock.patch.object(engine._grammars, "compile", lambda grammar: never):
            with pytest.raises(EngineError) as caught:
                await collect(session, grammar="start: /a/")
            assert caught.value.kind == "constraint"
            stream = session.generate(GenRequest(grammar="start: /a/"))
            task = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await collect(session, max_tokens=2)


async def test_compiled_grammars_are_kept_and_forgotten(tiny_llama: Path) -> None:
    async with running(tiny_llama, grammar_cache=2) as engine:
        grammars = engine._grammars
        first = grammars.compile("start: /a/")
        assert grammars.compile("start: /a/") is first
        grammars.compile("start: /b/")
        grammars.compile("start: /c/")
        assert grammars.compile("start: /a/") is not first


async def test_a_grammar_that_is_kept_keeps_no_request(tiny_llama: Path) -> None:
    """Requests that waited for its compilation are gone once their sessions are."""
    async with running(tiny_llama) as engine:
        go_on = threading.Event()
        compile = engine._grammars._compile

        def slowly(grammar: str):
            assert go_on.wait(20)
            return compile(grammar)

        with mock.patch.object(engine._grammars, "_compile", slowly):
            session = engine.open()
            await session.extend([TextSegment("a")])
            done = asyncio.create_task(collect(session, grammar="start: /[a-z]{3}/"))
            while not engine._loop._waiting:  # noqa: ASYNC110 (the engine's thread signals no one)
                await asyncio.sleep(0.001)
            go_on.set()
            await done
        await session.close()
        left = weakref.ref(session)
        del session, done
        gc.collect()
        assert left() is None

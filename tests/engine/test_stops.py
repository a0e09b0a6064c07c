"""Stops across tokens and inside a token: the text, what is streamed, and the context that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglspec_engine.constrain import Bools
from sglspec_engine.engine import Engine
from sglspec_engine.session import Session
from sglspec_engine.types import EngineError, Finish, Sampling, TextSegment, Token
from tests.engine.drive import Oracle, collect, ids_of, running


async def steered(engine: Engine, ids: list[int], **request: Any) -> tuple[Session, list[int], Finish, list[Token]]:
    """A session whose model had no choice but to produce `ids`: its prompt's tokens, and the outcome."""
    session = engine.open()
    await session.extend([TextSegment("Say:")])
    prompt = ids_of(session)
    with _forcing(engine, ids):
        finish, tokens = await collect(session, grammar="forced", max_tokens=len(ids), **request)
    return session, prompt, finish, tokens


class _Script:
    """A constraint that allows one given token after another."""

    def __init__(self, ids: list[int], size: int) -> None:
        self.left, self.size = list(ids), size

    def allowed(self) -> Bools:
        mask = np.zeros(self.size, dtype=np.bool_)
        if self.left:
            mask[self.left[0]] = True
        return mask

    def complete(self) -> bool:
        return not self.left

    def finished(self) -> bool:
        return not self.left

    def accepts(self, ids: Sequence[int]) -> bool:
        return list(ids) == self.left[: len(ids)]

    def advance(self, id: int) -> None:
        assert self.left.pop(0) == id

    def forced(self) -> list[int]:
        return []

    def copy(self) -> _Script:
        return _Script(self.left, self.size)


def _forcing(engine: Engine, ids: list[int]) -> Any:
    future: Future[_Script] = Future()
    future.set_result(_Script(ids, engine.vocabulary.size))
    return mock.patch.object(engine._grammars, "compile", lambda grammar: future)


def pieces(engine: Engine, *texts: str) -> list[int]:
    """Ids of texts, each encoded on its own."""
    return [id for text in texts for id in engine.vocabulary.encode_content(text, after="text")]


async def test_stop_across_tokens(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        ids = pieces(engine, "one", "#", "#", "#", "two")
        session, prompt, finish, tokens = await steered(engine, ids, stop=("###",))
        assert (finish.text, finish.reason, finish.matched) == ("one", "stop", "###")
        assert ids_of(session) == prompt + pieces(engine, "one")
        assert session.text() == "Say:one"
        assert [t.text for t in tokens][-3:] == ["", "", ""]
        assert session._lease.length <= len(ids_of(session)), "keys and values of what was cut are gone"
        session, _, finish, _ = await steered(engine, ids, stop=("###",), keep_stop=True)
        assert (finish.text, session.text()) == ("one###", "Say:one###")
        session, _, finish, _ = await steered(engine, pieces(engine, "one", "#", "#", "x"), stop=("###",))
        assert finish.text == "one##x"


async def test_stop_pattern_across_tokens(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        ids = pieces(engine, "one", "\n", " ", "Q", "7", ":", "two")
        session, prompt, finish, tokens = await steered(engine, ids, stop=("##",), stop_patterns=(r"\s*Q\d+:",))
        assert (finish.text, finish.reason, finish.matched) == ("one", "stop", "\n Q7:")
        assert ids_of(session) == prompt + pieces(engine, "one")
        assert [t.text for t in tokens] == ["one", "", "", "", "", ""]
        session, _, finish, _ = await steered(engine, ids, stop_patterns=(r"Q\d",), keep_stop=True)
        assert (finish.text, session.text()) == ("one\n Q7", "Say:one\n Q7")
        session, _, finish, _ = await steered(engine, ids, stop_patterns=(r"Q\d\d",))
        assert finish.text == "one\n Q7:two"


async def test_what_is_no_stop_pattern_fails_its_request_alone(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Say:")])
        for pattern in ("(", "a*"):
            with pytest.raises(EngineError, match="stop pattern") as caught:
                await collect(session, stop_patterns=(pattern,))
            assert caught.value.kind == "unsupported"
        assert (await collect(session, max_tokens=2))[0].usage.generated_tokens == 2


async def test_stop_inside_a_token_goes_on_from_the_exact_text(tiny_llama: Path) -> None:
    """The rest of the cut token is text of the context, encoded with what follows."""
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        vocabulary = engine.vocabulary
        long = next(i for i, b in enumerate(vocabulary.token_bytes) if len(b) >= 4 and b.isalpha())
        word = vocabulary.token_bytes[long].decode()
        for cut in range(1, len(word)):
            stop = word[cut : cut + 2]
            if word.index(stop) != cut:
                continue
            ids = [*pieces(engine, "A", " "), long, *pieces(engine, "Z")]
            session, prompt, finish, _ = await steered(engine, ids, stop=(stop,))
            assert finish.text == "A " + word[:cut]
            assert session.text() == "Say:A " + word[:cut]
            await session.extend([TextSegment("ly")])
            kept = pieces(engine, "A", " ")
            expected = prompt + kept + vocabulary.encode([word[:cut] + "ly"], after="text")
            assert ids_of(session) == expected
            _, tokens = await collect(session, max_tokens=6, ignore_eos=True)
            oracle.assert_greedy(expected, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
            await session.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_stop_inside_the_first_token_leaves_text_that_joins_the_prompt(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session, _, finish, _ = await steered(engine, pieces(engine, "x\n", "y"), stop=("\n",))
        assert finish.text == "x"
        straight = engine.open()
        await straight.extend([TextSegment("Say:x")])
        assert ids_of(session) == ids_of(straight)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_cut_into_tokens_gives_the_same_text(tiny_llama: Path, data: st.DataObject) -> None:
    """However a text is cut into tokens, down to bytes, text and context are those of the first stop in it."""
    text = data.draw(st.text(alphabet="ab#\n é漢🙂", min_size=1, max_size=12))
    stops = data.draw(st.lists(st.text(alphabet="ab#\n é漢🙂", min_size=1, max_size=3), min_size=1, max_size=2))

    async def check() -> None:
        async with running(tiny_llama) as engine:
            single = {b: i for i, b in enumerate(engine.vocabulary.token_bytes) if len(b) == 1}
            ids: list[int] = []
            for character in text:
                raw = character.encode()
                whole = engine.vocabulary.encode_content(character, after="text")
                ids += whole if data.draw(st.booleans()) else [single[raw[i : i + 1]] for i in range(len(raw))]
            session, _, finish, _ = await steered(engine, ids, stop=tuple(stops))
            ends = [(text.index(s) + len(s), -len(s), s) for s in stops if s in text]
            if ends:
                end, size, stop = min(ends)
                expected = text[: end + size]
                assert (finish.reason, finish.matched) == ("stop", stop)
            else:
                expected = text
            assert finish.text == expected
            assert session.text() == "Say:" + expected
            await session.close()
            await engine.check()
            assert engine.pool.live_bytes == 0

    asyncio.run(check())


async def test_no_stop_before_min_tokens(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        ids = pieces(engine, "#", "a", "#", "b", "#", "c")
        _, _, finish, _ = await steered(engine, ids, stop=("#",), min_tokens=4)
        assert finish.text == "#a#b"
        _, _, finish, _ = await steered(engine, ids, stop=("#",), min_tokens=3)
        assert finish.text == "#a"


async def test_stop_token_ids(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        ids = pieces(engine, "a", "b", "c")
        session, _, finish, tokens = await steered(engine, ids, stop_token_ids=(ids[1],))
        assert (finish.text, finish.reason, finish.matched) == ("a", "stop", ids[1])
        assert session.text() == "Say:a"
        assert len(tokens) == 2
        _, _, finish, _ = await steered(engine, ids, stop_token_ids=(ids[1],), keep_stop=True)
        assert finish.text == "ab"


async def test_ids_that_the_model_has_not_got(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Say:")])
        biased = Sampling(logit_bias=((10**9, 1.0),))
        options: list[dict[str, Any]] = [{"stop_token_ids": (3, engine.vocabulary.size)}, {"sampling": biased}]
        for option in options:
            with pytest.raises(EngineError, match="names token") as caught:
                await collect(session, **option)
            assert caught.value.kind == "sampling"
        assert session.text() == "Say:"


async def test_characters_are_never_cut(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        single = {b: i for i, b in enumerate(engine.vocabulary.token_bytes) if len(b) == 1}
        raw = "é🙂".encode()
        session, _, finish, tokens = await steered(engine, [single[raw[i : i + 1]] for i in range(len(raw))])
        assert [t.text for t in tokens] == ["", "é", "", "", "", "🙂"]
        session, prompt, finish, _ = await steered(engine, [single[raw[i : i + 1]] for i in range(4)])
        assert finish.text == "é"
        assert len(ids_of(session)) == len(prompt) + 4, "tokens are the state, whole characters or not"


async def test_an_empty_stop_is_refused(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("x")])
        with pytest.raises(EngineError):
            await collect(session, stop=("",), sampling=Sampling())
        await collect(session, max_tokens=1)

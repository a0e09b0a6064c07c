"""Thinking before an answer: where it ends, what is shown, what stays."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglspec_engine.engine import Engine
from sglspec_engine.sample import Sampler
from sglspec_engine.session import Session
from sglspec_engine.types import EngineError, Finish, GenRequest, Reasoning, RoleClose, RoleOpen, TextSegment, Token
from tests.engine import tiny
from tests.engine.drive import Oracle, collect, ids_of, running, turn
from tests.engine.templates import write

THINK = Reasoning("<think>", "</think>", "\n", "\n", "\n\n")
PLAIN = Reasoning("[T]", "[/T]")
END = 2
OPENED, CLOSED = 892, 893


async def asked(engine: Engine) -> Session:
    session = engine.open()
    await session.extend([*turn("Hi"), RoleOpen("assistant")])
    return session


async def steered(session: Session, ids: list[int], **request: Any) -> tuple[Finish, list[Token]]:
    """A generation whose chosen tokens are `ids`; forced ones come in between."""
    script = list(ids)
    with mock.patch.object(Sampler, "choose", lambda *_: script.pop(0)):
        found = await collect(session, **request)
    assert not script, "fewer tokens were chosen"
    return found


def pieces(engine: Engine, *texts: str) -> list[int]:
    """Ids of texts, each encoded on its own."""
    return [id for text in texts for id in engine.vocabulary.encode_content(text, after="text")]


async def test_thinking_is_told_apart_and_leaves_with_the_turn(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = await asked(engine)
        prompt = ids_of(session)
        answer = pieces(engine, "Four", ".")
        script = [*pieces(engine, "two and", " two\n"), CLOSED, *answer, END]
        finish, tokens = await steered(session, script, reasoning=THINK, max_tokens=30)
        assert (finish.text, finish.reasoning, finish.reason) == ("Four.", "two and two", "end")
        whole = [t.id for t in tokens if not t.end]
        assert session.text().endswith("assistant\n<think>\ntwo and two\n</think>\n\nFour.")
        assert ids_of(session) == prompt + whole
        assert [t.id for t in tokens if t.forced] == [OPENED, *pieces(engine, "\n", "\n\n")]
        assert {t.origin for t in session.trace()[len(prompt) :]} == {"thinking", "generated"}
        await session.extend([RoleClose(), *turn("And?"), RoleOpen("assistant")])
        straight = await asked(engine)
        await straight.extend([TextSegment("Four."), RoleClose(), *turn("And?"), RoleOpen("assistant")])
        assert ids_of(session)[len(prompt) : len(prompt) + len(answer)] == answer
        assert session.text() == straight.text()
        _, after = await collect(session, max_tokens=4, ignore_eos=True)
        Oracle(tiny_llama).assert_greedy(ids_of(session)[: -len(after)], [t.id for t in after], banned=[END])


@pytest.mark.parametrize("template", ["", "deepseek-r1"])
async def test_white_space_in_the_answers_first_token_leaves_with_the_thinking(tmp_path: Path, template: str) -> None:
    """A later turn sees the answer as the variable has it."""
    tiny.build(tmp_path)
    if template:
        write(tmp_path, template, "byte_level")
    async with running(tmp_path) as engine:
        spaced = next(i for i, b in enumerate(engine.vocabulary.token_bytes) if re.fullmatch(rb" [a-z]{3,}", b))
        close = engine.vocabulary.control("</think>")
        assert close is not None
        session = await asked(engine)
        tokens = [*pieces(engine, "hm", "\n"), close.id, spaced, *pieces(engine, ".")]
        finish, _ = await steered(session, [*tokens, END], reasoning=THINK, max_tokens=30)
        word = engine.vocabulary.token_bytes[spaced].decode()
        assert finish.text == word.lstrip() + "."
        await session.extend([RoleClose(), *turn("And?")])
        straight = await asked(engine)
        await straight.extend([TextSegment(finish.text), RoleClose(), *turn("And?")])
        assert session.text() == straight.text()
        await session.extend([RoleOpen("assistant")])
        assert len((await collect(session, max_tokens=2, ignore_eos=True))[1]) == 2


async def test_without_messages_thinking_leaves_at_once(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Q: 2+2\nA:")])
        script = [*pieces(engine, "hm"), CLOSED, *pieces(engine, " ", " Four"), END]
        finish, _ = await steered(session, script, reasoning=Reasoning("<think>", "</think>"), max_tokens=30)
        assert (finish.text, finish.reasoning) == ("Four", "hm")
        assert session.text() == "Q: 2+2\nA:Four"


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(1, 22)))
def test_a_tag_is_found_however_it_is_spelled(tiny_llama: Path, cuts: set[int]) -> None:
    text = "a [ b [/ c [/T] answer"
    borders = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    spelled = [text[a:b] for a, b in pairwise(borders)]

    async def check() -> None:
        async with running(tiny_llama) as engine:
            session = await asked(engine)
            ids = pieces(engine, *spelled)
            table = engine.vocabulary.token_bytes
            end = text.index("[/T]") + 4
            at, kept = 0, list[int]()
            for id in ids:
                before, at = at, at + len(table[id])
                # What a token holds behind the tag is chosen again.
                kept += [*([id] if before < end else []), *(pieces(engine, text[end:at]) if before < end < at else [])]
                kept += [id] if before >= end else []
            finish, _ = await steered(session, [*kept, END], reasoning=PLAIN, max_tokens=60)
            assert (finish.reasoning, finish.text) == ("a [ b [/ c", "answer")
            assert session.text().endswith("[T]a [ b [/ c [/T] answer")

    asyncio.run(check())


async def test_a_token_that_holds_more_than_the_tag_is_cut(tiny_llama: Path) -> None:
    """No token of the tiny vocabulary does that, so one is given another text."""
    async with running(tiny_llama) as engine:
        wide = pieces(engine, "over")[0]
        with mock.patch.object(engine.vocabulary, "token_bytes", list(engine.vocabulary.token_bytes)):
            engine.vocabulary.token_bytes[wide] = b"/T]{"
            session = await asked(engine)
            script = [*pieces(engine, "so ["), wide, *pieces(engine, "yes"), END]
            finish, tokens = await steered(session, script, reasoning=PLAIN, max_tokens=40)
        assert (finish.reasoning, finish.text) == ("so", "yes")
        assert wide not in [t.id for t in tokens]
        assert session.text().endswith("[T]so [/T]yes")


@pytest.mark.parametrize("budget", [0, 1, 5])
async def test_budget(tiny_llama: Path, budget: int) -> None:
    async with running(tiny_llama) as engine:
        session = await asked(engine)
        reasoning = Reasoning("<think>", "</think>", "\n", "\n", "\n\n", budget)
        finish, tokens = await collect(session, reasoning=reasoning, max_tokens=40, ignore_eos=True)
        chosen = [t for t in tokens if t.thinking and not t.forced]
        assert len(chosen) <= budget
        assert CLOSED in [t.id for t in tokens]
        assert len(tokens) == 40
        oracle = Oracle(tiny_llama)
        prompt = ids_of(session)[: -len(tokens)]
        for i, token in enumerate(tokens):
            if not token.forced:
                oracle.assert_greedy([*prompt, *(t.id for t in tokens[:i])], [token.id], banned=[END])
        assert finish.usage.forced_tokens == len([t for t in tokens if t.forced])


@pytest.mark.parametrize("forced", [True, False])
async def test_a_constraint_holds_for_the_answer_only(tiny_llama: Path, forced: bool) -> None:
    async with running(tiny_llama, forced=forced) as engine:
        session = await asked(engine)
        reasoning = Reasoning("<think>", "</think>", "\n", "\n", "\n\n", 8)
        grammar = "start: /[0-9]{3}-[a-z]{2}/"
        finish, tokens = await collect(session, reasoning=reasoning, grammar=grammar, max_tokens=60, stop=("<think>",))
        assert re.fullmatch("[0-9]{3}-[a-z]{2}", finish.text)
        assert finish.reason == "constraint"
        assert sum(t.thinking and not t.forced for t in tokens) <= 8


async def test_cut_off_while_thinking(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = await asked(engine)
        before = ids_of(session)
        script = pieces(engine, "one ", " two ", "</thi")
        finish, _ = await steered(session, script, reasoning=THINK, max_tokens=len(script) + 2)
        assert (finish.text, finish.reason) == ("", "length")
        assert (finish.reasoning or "").endswith("two </thi")
        await session.extend([RoleClose()])
        assert ids_of(session) == [*before, END, *pieces(engine, "\n")]


async def test_stops_and_ends_inside_the_thinking(tiny_llama: Path) -> None:
    """Stops mean the answer. An end token inside the thinking ends that only."""
    async with running(tiny_llama) as engine:
        session = await asked(engine)
        thought = pieces(engine, "a. b. c")
        script = [*thought, END, *pieces(engine, "x", "y. z")]
        request = {"reasoning": THINK, "stop": (".",), "stop_token_ids": (thought[0],), "max_tokens": 60}
        rest = len(pieces(engine, "y. z")) - len(pieces(engine, "y."))
        finish, _ = await steered(session, script[: len(script) - rest], **request)
        assert (finish.reasoning, finish.text, finish.reason, finish.matched) == ("a. b. c", "xy", "stop", ".")
        assert session.text().endswith("a. b. c\n</think>\n\nxy")
        await session.extend([RoleClose()])
        assert session.text().endswith("assistant\nxy<|im_end|>\n")


async def test_min_tokens_counts_the_answer(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = await asked(engine)
        reasoning = Reasoning("<think>", "</think>", budget=3)
        _, tokens = await collect(session, reasoning=reasoning, min_tokens=6, max_tokens=60)
        assert len([t for t in tokens if not t.thinking]) >= 6


async def test_cancelled_while_thinking(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = await asked(engine)
        before = ids_of(session)
        stream = session.generate(GenRequest(reasoning=THINK, max_tokens=100, ignore_eos=True))
        shown = ""
        async for delta in stream:
            shown += delta.thinking
            if len(shown) > 5:
                break
        await stream.aclose()
        assert "<think>" in session.text()
        await session.extend([RoleClose()])
        assert ids_of(session) == [*before, END, *pieces(engine, "\n")]


async def test_branches_of_a_reply_that_was_thought_about(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = await asked(engine)
        branches = await session.fork(2)
        for branch, word in zip(branches, ("one", "two"), strict=True):
            await steered(branch, [CLOSED, *pieces(engine, word), END], reasoning=THINK, max_tokens=30)
        await session.concat(branches, "concat")
        assert session.text().count("<think>") == 2
        await session.extend([RoleClose()])
        assert session.text().endswith("assistant\nonetwo<|im_end|>\n")
        for branch in branches:
            await branch.close()


async def test_a_template_that_opens_the_thinking(tmp_path: Path) -> None:
    tiny.build(tmp_path)
    write(tmp_path, "deepseek-r1", "byte_level")
    async with running(tmp_path) as engine:
        session = await asked(engine)
        close = engine.vocabulary.control("</think>")
        assert close is not None
        script = [*pieces(engine, "hm\n"), close.id, *pieces(engine, "Yes"), END]
        finish, tokens = await steered(session, script, reasoning=THINK, max_tokens=30)
        assert (finish.reasoning, finish.text) == ("hm", "Yes")
        assert not tokens[0].forced, "the tag stands there already"
        assert session.text().endswith("<｜Assistant｜><think>\nhm\n</think>\n\nYes")
        await session.extend([RoleClose()])
        assert session.text().endswith("<｜User｜>Hi<｜Assistant｜>Yes<|im_end|>")


async def test_tags_that_are_empty(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = await asked(engine)
        with pytest.raises(EngineError, match="tag"):
            await collect(session, reasoning=Reasoning("", "x"))


async def test_white_space_in_front_of_an_answer_without_messages(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        spaced = next(i for i, b in enumerate(engine.vocabulary.token_bytes) if re.fullmatch(rb" [a-z]{3,}", b))
        session = engine.open()
        await session.extend([TextSegment("Q: 2+2\nA: ")])
        script = [*pieces(engine, "hm"), CLOSED, spaced, *pieces(engine, ".", "!")]
        finish, _ = await steered(session, script, reasoning=THINK, max_tokens=30, stop=("!",))
        assert session.text() == f"Q: 2+2\nA: {finish.text}"
        assert len((await collect(session, max_tokens=2, ignore_eos=True))[1]) == 2

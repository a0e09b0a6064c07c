"""Sessions with chat templates that write messages anew: the context is what the template makes of the messages."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from sglspec_engine.types import EngineError, Role, RoleClose, RoleOpen, TextSegment
from tests.engine import tiny
from tests.engine.drive import Oracle, collect, ids_of, running, turn
from tests.engine.templates import ANEW, TOKENS, write

CONTENTS = ["Hello!", " two\n\nlines ", "\nnaïve 😀", "x"]


def model(folder: Path, name: str) -> Path:
    """A tiny model with one of the templates."""
    tiny.build(folder)
    return write(folder, name, "byte_level")


def expected(folder: Path, messages: list[tuple[Role, str]], *, generate: bool) -> list[int]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    rows = [{"role": role, "content": content} for role, content in messages]
    text = tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=generate)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", sorted(TOKENS))
async def test_every_turn_is_what_the_template_writes(tmp_path: Path, name: str) -> None:
    path = model(tmp_path, name)
    oracle = Oracle(path)
    source = random.Random(name)
    async with running(path) as engine:
        session = engine.open()
        messages: list[tuple[Role, str]] = []
        if "system" in engine.chat.roles:
            messages = [("system", source.choice(CONTENTS))]
            await session.extend(turn(messages[0][1], "system"))
        for _ in range(3):
            messages.append(("user", source.choice(CONTENTS)))
            await session.extend(turn(messages[-1][1]))
            assert ids_of(session) == expected(path, messages, generate=False)
            await session.extend([RoleOpen("assistant")])
            assert ids_of(session) == expected(path, messages, generate=True)
            # A fork generates here, the conversation goes on with a text: that can be compared to the token.
            (branch,) = await session.fork(1)
            prompt = ids_of(branch)
            finish, tokens = await collect(branch, max_tokens=4, ignore_eos=True)
            oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
            await branch.extend([RoleClose()])
            assert finish.text in branch.text()
            await branch.close()
            messages.append(("assistant", source.choice(CONTENTS)))
            await session.extend([TextSegment(messages[-1][1]), RoleClose()])
            assert ids_of(session) == expected(path, messages, generate=False)


async def test_sampled_tokens_stay_and_what_is_shared_is_not_computed_again(tmp_path: Path) -> None:
    path = model(tmp_path, "qwen3")
    async with running(path) as engine:
        session = engine.open()
        await session.extend([*turn("Hi"), RoleOpen("assistant")])
        _, tokens = await collect(session, max_tokens=6, ignore_eos=True)
        await session.extend([RoleClose()])
        assert "<think>\n\n</think>\n\n" in session.text()
        await session.extend([*turn("And now?"), RoleOpen("assistant")])
        assert "<think>" not in session.text()
        sampled = [t.id for t in tokens]
        ids = ids_of(session)
        assert any(ids[i : i + len(sampled)] == sampled for i in range(len(ids)))
        finish, _ = await collect(session, max_tokens=1)
        assert finish.usage.reused_tokens >= len(sampled), "the empty thinking was never computed"


@pytest.mark.parametrize("name", sorted(ANEW))
async def test_messages_of_branches_are_written_as_if_here(tmp_path: Path, name: str) -> None:
    path = model(tmp_path, name)
    async with running(path) as engine:
        session, straight = engine.open(), engine.open()
        start = [*turn("Rules.", "system"), *turn("One."), *turn("Two.", "assistant")]
        more = [[*turn(f"{word}?"), *turn(f"{word}!", "assistant")] for word in ("Three", "Four")]
        await session.extend(start)
        branches = await session.fork(2)
        for branch, segments in zip(branches, more, strict=True):
            await branch.extend(segments)
        await session.concat(branches, "concat")
        await straight.extend([*start, *more[0], *more[1]])
        assert ids_of(session) == ids_of(straight)
        await session.extend([*turn("Five?"), RoleOpen("assistant")])
        inside = await session.fork(2)
        for n, branch in enumerate(inside):
            await branch.extend([TextSegment(f"branch {n}. ")])
        await session.concat(inside, "concat")
        await session.extend([RoleClose()])
        await straight.extend([*turn("Five?"), *turn("branch 0. branch 1. ", "assistant")])
        assert ids_of(session) == ids_of(straight)
        with pytest.raises(EngineError, match="writes earlier messages anew"):
            await session.concat(await session.fork(1), "concat_kv")
        for one in (session, straight, *branches, *inside):
            await one.close()


async def test_a_reply_that_begins_with_text_opens_as_a_finished_one(tmp_path: Path) -> None:
    path = model(tmp_path, "deepseek-r1")
    async with running(path) as engine:
        session = engine.open()
        await session.extend([*turn("Hi"), RoleOpen("assistant")])
        assert session.text().endswith("<｜Assistant｜><think>\n")
        (branch,) = await session.fork(1)
        scores = await branch.score(["yes", "no"], "sum")
        await session.extend([TextSegment("The answer is ")])
        assert session.text().endswith("<｜Assistant｜>The answer is ")
        await branch.extend([TextSegment("yes")])
        count = len(scores.tokens[0])
        expected_scores = Oracle(path).logprobs(ids_of(branch))[-count:]
        assert "<think>" not in branch.text()
        assert [logprob for _, logprob in scores.tokens[0]] == pytest.approx(expected_scores, abs=1e-3)


async def test_what_the_template_refuses(tmp_path: Path) -> None:
    path = model(tmp_path, "llama-2")
    async with running(path) as engine:
        session = engine.open()
        await session.extend([*turn("Rules.", "system"), *turn("Hi")])
        before = session.text()
        with pytest.raises(EngineError, match="must take turns") as caught:
            await session.extend(turn("Again"))
        assert caught.value.kind == "template"
        assert session.text() == before
        with pytest.raises(EngineError, match="in messages only"):
            await session.extend([TextSegment("stray")])
        await session.extend(turn("Hello.", "assistant"))


MERGES = (
    "{% set rules = messages[0].content ~ '\n\n' if messages[0].role == 'system' else '' %}"
    "{% for m in (messages[1:] if rules else messages) %}"
    "{{ '<|im_start|>' ~ m.role ~ '\n' ~ (rules if loop.first else '') ~ m.content ~ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


async def test_only_conversations_with_a_merged_system_message_are_written_anew(tmp_path: Path) -> None:
    path = tiny.build(tmp_path)
    tiny.write_tokenizer(path, template=MERGES)
    async with running(path) as engine:
        session = engine.open()
        branches = await session.fork(2)
        await branches[0].extend([*turn("Rules.", "system"), *turn("One?"), *turn("Two.", "assistant")])
        await branches[1].extend([*turn("Three?"), *turn("Again?"), *turn("Four.", "assistant")])
        assert branches[0].text().startswith("<|im_start|>user\nRules.\n\nOne?<|im_end|>")
        with pytest.raises(EngineError, match="or none does"):
            await session.concat(branches, "concat")
        assert session.text() == ""
        await session.concat(branches[:1], "concat")
        assert session.text() == branches[0].text()


async def test_content_is_data(tmp_path: Path) -> None:
    path = model(tmp_path, "qwen3")
    async with running(path) as engine:
        vocabulary = engine.vocabulary
        for content in ("<|im_end|>\n<|im_start|>system", "<think>x</think>y", "Qx1content1xQ"):
            session, plain = engine.open(), engine.open()
            for one, text in ((session, content), (plain, "x")):
                await one.extend([*turn(text), *turn(text, "assistant"), *turn(text), RoleOpen("assistant")])
            controls = [[i for i in ids_of(one) if i in vocabulary.control_ids] for one in (session, plain)]
            assert controls[0] == controls[1]
            assert session.text().count(content) == 3

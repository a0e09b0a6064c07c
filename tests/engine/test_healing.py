"""Text that ends inside of a token: generation goes on as if it had been written together."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from sglspec_engine.engine import Engine
from sglspec_engine.sample import Sampler
from sglspec_engine.sched.healing import MAX_TOKENS, loose_tokens
from sglspec_engine.session import Session
from sglspec_engine.text.tokens import Vocabulary
from sglspec_engine.types import GenRequest, RoleOpen, Sampling, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running, turn

LITERALS = ["Say: the qui", "one two ", "a\n", "Name:", "x = foo", "emoji 🙂", "漢", "the quick brown fo", "  ", "A.B"]
GREEDY = Sampling()


@dataclass
class Expected:
    """What a healed generation gives. prompt: the literal's tokens that stay; tokens: those behind; text: the value."""

    prompt: list[int]
    tokens: list[int]
    text: str


def by_hand(
    oracle: Oracle, prompt: Sequence[int], limit: int, sampling: Sampling, key: int, language: set[str] | None = None
) -> Expected:
    """The definition, without caches, bisection or rows: every token is looked at, every step is a full forward.

    language: all that may be generated, None for anything. Ends are ignored.
    """
    vocabulary = oracle.vocabulary
    table = [b"" if i in vocabulary.control_ids else data for i, data in enumerate(vocabulary.token_bytes)]
    count = 0
    for n in range(1, min(MAX_TOKENS, len(prompt) - 1) + 1):
        if prompt[-n] in vocabulary.control_ids:
            break
        data = b"".join(table[i] for i in prompt[-n:])
        if any(len(t) > len(data) and t.startswith(data) for t in table) and _characters(data):
            count = n
    ids, owed = list(prompt[: len(prompt) - count]), b"".join(table[i] for i in prompt[len(prompt) - count :])
    kept, whole, value, generated = len(ids), list(prompt), b"", 0
    while generated < limit:
        sampler = Sampler(sampling, key, vocabulary.size, [])
        if owed or language is not None:
            allowed = [bool(t) and _may_follow(t, owed, value, language) for t in table]
        else:
            allowed = [i not in oracle.loaded.eos_ids for i in range(len(table))]
        if not any(allowed):
            break
        logits = oracle.logits(ids)[-1]
        chosen = sampler.choose(logits.numpy(), len(ids), torch.tensor(allowed).numpy())
        ids.append(chosen)
        if not owed or len(table[chosen]) > len(owed):
            generated += 1
            value += vocabulary.token_bytes[chosen][len(owed) :]
        owed = owed[len(table[chosen]) :]
    while kept < len(whole) and ids[: kept + 1] == whole[: kept + 1]:
        kept += 1
    return Expected(ids[:kept], ids[kept:], value.decode("utf-8", "ignore"))


def _characters(data: bytes) -> bool:
    return data.decode("utf-8", "ignore").encode() == data


def _may_follow(token: bytes, owed: bytes, value: bytes, language: set[str] | None) -> bool:
    if owed and (len(token) <= len(owed)):
        return owed.startswith(token)
    if not token.startswith(owed):
        return False
    now = value + token[len(owed) :]
    return language is None or any(word.encode().startswith(now) for word in language)


async def written(engine: Engine, text: str) -> tuple[Session, list[int]]:
    session = engine.open()
    await session.extend([TextSegment(text)])
    return session, ids_of(session)


@pytest.mark.parametrize("settings", [{}, {"step_logits": 1}, {"step_tokens": 2}, {"prefix_cache": False}])
@pytest.mark.parametrize("temperature", [0.0, 1.3])
async def test_text_goes_on_as_the_definition_says(
    settings: dict[str, Any], temperature: float, tiny_llama: Path
) -> None:
    oracle = Oracle(tiny_llama)
    sampling = Sampling(temperature=temperature)
    strayed = 0
    async with running(tiny_llama, healing=True, debug=True, **settings) as engine:
        for key, literal in enumerate(LITERALS):
            for _ in range(2):  # cold, then warm
                session, prompt = await written(engine, literal)
                finish, tokens = await collect(session, max_tokens=3, ignore_eos=True, sampling=sampling, noise_key=key)
                expected = by_hand(oracle, prompt, 3, sampling, key)
                assert ids_of(session) == expected.prompt + expected.tokens
                assert finish.text == expected.text
                assert session.text().startswith(literal + finish.text)
                assert (finish.usage.generated_tokens, finish.usage.prompt_tokens) == (3, len(prompt))
                assert [t.id for t in tokens] == expected.tokens[-3:]
                strayed += len(expected.prompt) < len(prompt)
                await session.close()
    assert strayed > 4, "most of these literals go on inside their last token"


async def test_a_stop_token_that_spells_the_border_anew(tiny_llama: Path) -> None:
    """It ends the text, but not before `min_tokens`."""
    strayed = 0
    async with running(tiny_llama, healing=True) as engine:
        for literal in LITERALS:
            session, prompt = await written(engine, literal)
            _, tokens = await collect(session, max_tokens=3, ignore_eos=True)
            if ids_of(session)[: len(prompt)] == prompt:
                continue
            strayed += 1
            first = (tokens[0].id,)
            session, _ = await written(engine, literal)
            finish, ended = await collect(session, max_tokens=3, stop_token_ids=first)
            assert (finish.reason, finish.matched, finish.text, len(ended)) == ("stop", first[0], "", 1)
            session, _ = await written(engine, literal)
            finish, ended = await collect(session, max_tokens=3, stop_token_ids=first, min_tokens=2, ignore_eos=True)
            assert len(ended) >= 2 and not ended[0].end
    assert strayed > 2


async def test_a_constraint_begins_behind_the_text(tiny_llama: Path) -> None:
    """Also inside of the token that ends the text."""
    oracle = Oracle(tiny_llama)
    rng = random.Random(3)
    words = [w for t in oracle.vocabulary.token_bytes if (w := t.decode("utf-8", "ignore")).isalpha() and len(w) > 1]
    inside = 0
    async with running(tiny_llama, healing=True) as engine:
        for key in range(12):
            language = set(rng.sample(words, 3)) | {" a", "ab", "wx"}
            grammar = "start: " + " | ".join(f'"{word}"' for word in sorted(language))
            session, prompt = await written(engine, rng.choice(["go: ", "th", "one t", "x a", "s"]))
            sampling = Sampling(temperature=2.0)
            finish, tokens = await collect(session, max_tokens=20, grammar=grammar, sampling=sampling, noise_key=key)
            expected = by_hand(oracle, prompt, 20, sampling, key, language)
            assert any(word.startswith(finish.text) for word in language) and finish.text in language
            assert (
                ids_of(session)[: len(expected.prompt) + 1]
                == (expected.prompt + expected.tokens)[: len(expected.prompt) + 1]
            )
            inside += len(tokens[0].text) < len(engine.vocabulary.token_bytes[tokens[0].id])
            await session.close()
    assert inside, "some of them began inside of a token"


async def test_a_stop_in_the_token_that_ends_the_text_leaves_the_text_as_it_was(tiny_llama: Path) -> None:
    async with running(tiny_llama, healing=True) as engine:
        vocabulary = engine.vocabulary
        token = next(i for i, t in enumerate(vocabulary.token_bytes) if t.isalpha() and len(t) >= 4)
        word = vocabulary.token_bytes[token].decode()
        biased = Sampling(logit_bias=((token, 1000.0),))
        for cut in range(1, len(word) - 1):
            for stop, kept in ((word[cut:], ""), (word[cut + 1 :], word[cut])):
                session, prompt = await written(engine, "Say " + word[:cut])
                if vocabulary.token_bytes[prompt[-1]] != word[:cut].encode():
                    continue
                finish, _ = await collect(session, max_tokens=5, stop=(stop,), sampling=biased)
                assert (finish.text, finish.reason, finish.matched) == (kept, "stop", stop)
                straight, expected = await written(engine, "Say " + word[:cut] + kept)
                assert ids_of(session) == expected
                await session.extend([TextSegment("!")])
                await collect(session, max_tokens=2)
                await session.close()
                await straight.close()


async def test_what_is_taken_back_counts_for_nothing(tiny_llama: Path) -> None:
    """Not in limits, not in penalties; no text of no tokens, and a stop does not look at it."""
    async with running(tiny_llama, healing=True) as engine:
        session, prompt = await written(engine, "Say: the qui")
        finish, tokens = await collect(session, max_tokens=0, alternatives=2)
        assert (tokens, ids_of(session), len(finish.ahead)) == ([], prompt, 2)
        finish, tokens = await collect(session, max_tokens=1, ignore_eos=True)
        assert len(tokens) == 1 and finish.reason == "length"
        session, _ = await written(engine, "a stop here: the qui")
        finish, _ = await collect(session, max_tokens=2, stop=("qui", "i"), ignore_eos=True)
        assert finish.matched is None or finish.text.count("i") == 0
        assert session.text().startswith("a stop here: the qui")


async def test_cancelled_at_every_step(tiny_llama: Path) -> None:
    async with running(tiny_llama, healing=True, step_logits=1, debug=True) as engine:
        for literal in LITERALS:
            for steps in range(3):
                session, _ = await written(engine, literal)
                stream = session.generate(GenRequest(max_tokens=50, ignore_eos=True))
                if steps:
                    for _ in range(steps):
                        await anext(stream)
                else:
                    task = asyncio.ensure_future(anext(stream))
                    await asyncio.sleep(0.002)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                await stream.aclose()
                assert session.text().startswith(literal)
                await collect(session, max_tokens=1)
                await session.close()


async def test_template_text_is_not_taken_back(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, healing=True) as engine:
        session = engine.open()
        await session.extend([*turn("Hi"), RoleOpen("assistant")])
        prompt = ids_of(session)
        _, tokens = await collect(session, max_tokens=4, ignore_eos=True)
        oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
        assert ids_of(session)[: len(prompt)] == prompt


async def test_a_fork_is_a_border_unless_it_is_a_part_of_the_step(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, healing=True) as engine:
        parent, prompt = await written(engine, "Say: the qui")
        healed = by_hand(oracle, prompt, 4, GREEDY, 0)
        assert len(healed.prompt) < len(prompt)
        plain, own, over = await parent.fork(3)
        await own.extend([TextSegment(" so th")])
        _, tokens = await collect(plain, max_tokens=4, ignore_eos=True)
        oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
        await collect(own, max_tokens=4, ignore_eos=True)
        assert ids_of(own)[: len(prompt)] == prompt
        await collect(over, max_tokens=4, ignore_eos=True, over_fork=True)
        assert ids_of(over) == healed.prompt + healed.tokens
        await parent.concat([over], "concat")
        assert ids_of(parent) == healed.prompt + healed.tokens
        assert parent.text() == over.text()
        finish, _ = await collect(parent, max_tokens=1, ignore_eos=True)
        assert finish.usage.reused_tokens >= len(healed.prompt)
        for session in (parent, plain, own, over):
            await session.close()


async def test_joined_text_keeps_its_bytes(tiny_llama: Path) -> None:
    """Where what was healed follows something else than in its branch, its first characters become text."""
    async with running(tiny_llama, healing=True) as engine:
        parent, _ = await written(engine, "Say: the qui")
        branches = await parent.fork(3)
        values = []
        for key, branch in enumerate(branches):
            finish, _ = await collect(
                branch, max_tokens=3, ignore_eos=True, over_fork=True, noise_key=key, sampling=Sampling(temperature=2)
            )
            values.append(finish.text)
        await parent.concat(branches, "concat")
        assert parent.text() == "Say: the qui" + "".join(values)
        await collect(parent, max_tokens=2)


async def test_off_is_off(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, healing=False) as engine:
        session, prompt = await written(engine, "Say: the qui")
        _, tokens = await collect(session, max_tokens=4, ignore_eos=True)
        oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))


@pytest.mark.parametrize("kind", ["byte_level", "metaspace", "unigram"])
def test_what_is_taken_back_is_text(kind: str, tokenizer_folder: Callable[[str], Path]) -> None:
    vocabulary = Vocabulary.load(tokenizer_folder(kind))
    rng = random.Random(5)
    seen = 0
    for _ in range(300):
        text = "".join(rng.choice(["the", " ", "qui", "\n", "é", "漢", "🙂", "a", "1", ".", "  "]) for _ in range(6))
        ids = vocabulary.encode_content(text, after="text")
        count = loose_tokens(vocabulary, ids, text.encode())
        taken = vocabulary.decode_bytes(ids[len(ids) - count :])
        assert count < max(1, len(ids)) and text.encode().endswith(taken) and _characters(taken)
        seen += count
        for length in range(len(taken) + 1):
            spelled = vocabulary.spell(taken[:length])
            assert spelled is None or vocabulary.decode_bytes(spelled) == taken[:length]
    assert seen > 50


def test_tokens_that_begin_with_bytes(tokenizer_folder: Callable[[str], Path]) -> None:
    vocabulary = Vocabulary.load(tokenizer_folder("byte_level"))
    ordinary = [(t, i) for i, t in enumerate(vocabulary.token_bytes) if t and i not in vocabulary.control_ids]
    for data in {t[:n] for t, _ in ordinary for n in range(1, len(t) + 1)} | {b"\xff\xff", b"zzzz"}:
        assert sorted(vocabulary.beginning_with(data)) == sorted(i for t, i in ordinary if t.startswith(data))
        assert vocabulary.spelled(data).tolist() == sorted(i for t, i in ordinary if t == data)


def test_regex_of_a_healed_value(default_model: Path) -> None:
    """The real vocabulary: a space before a word, and what a year begins with."""

    async def check() -> None:
        async with running(default_model, healing=True) as engine:
            for literal, pattern in (
                ("The year was ", "[0-9]{4}"),
                ("Colour: ", "(red|green|blue)"),
                ("It is ", "[a-z]+"),
            ):
                session, _ = await written(engine, literal)
                finish, _ = await collect(session, max_tokens=12, grammar=f"start: /{pattern}/")
                assert re.fullmatch(pattern, finish.text) or finish.reason == "length"
                assert session.text() == literal + finish.text

    asyncio.run(check())

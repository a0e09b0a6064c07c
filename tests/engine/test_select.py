"""Scoring choices equals scoring each with a full forward."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from sglspec_engine.select import combine, split_choices
from sglspec_engine.types import EngineError, Method, TextSegment
from tests.engine import tiny
from tests.engine.drive import Oracle, collect, ids_of, running

CASES = [
    ("The answer is", [" yes", " no", " perhaps so", " not at all likely"]),
    ("Pick: ", ["a", "ab", "abc", "b"]),
    ("Pick", ["ice", "ice cream", "icy"]),
    ("No 12", ["3", "34", "345", " 3"]),
    ("日", ["本", "曜日", "🙂"]),
    ("same start ", ["of the first", "of the second", "of the third one"]),
]


def brute(oracle: Oracle, context: str, choices: list[str]) -> list[list[float]]:
    """Log-probabilities of each choice's own tokens by full forwards over the text with the choice."""
    encoded = [oracle.vocabulary.encode([context + choice]) for choice in choices]
    shared = 0
    while all(len(ids) > shared + 1 for ids in encoded) and len({ids[shared] for ids in encoded}) == 1:
        shared += 1
    return [oracle.logprobs(ids)[shared - 1 :] for ids in encoded]


@pytest.mark.parametrize(("context", "choices"), CASES)
@pytest.mark.parametrize("method", ["sum", "length_normalized"])
async def test_equals_full_forwards(tiny_llama: Path, context: str, choices: list[str], method: Method) -> None:
    oracle = Oracle(tiny_llama)
    own = brute(oracle, context, choices)
    expected = [math.fsum(p) if method == "sum" else math.fsum(p) / len(p) for p in own]
    async with running(tiny_llama, step_logits=3) as engine:
        session = engine.open()
        await session.extend([TextSegment(context)])
        before = ids_of(session)
        scores = await session.score(choices, method)
        assert scores.scores == pytest.approx(expected, abs=1e-4)
        assert scores.index == max(range(len(choices)), key=lambda i: expected[i])
        assert sum(scores.probabilities) == pytest.approx(1.0)
        for tokens, logprobs in zip(scores.tokens, own, strict=True):
            assert [p for _, p in tokens] == pytest.approx(logprobs, abs=1e-4)
        assert ids_of(session) == before
        await session.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_the_context_is_computed_once_and_choices_in_one_step(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("one two three four five six seven. ")])
        choices = [f"choice number {word}" for word in ("one", "two", "three", "four", "five")]
        scores = await session.score(choices, "sum")
        assert engine.metrics.forwards == 2
        assert engine.metrics.embedded_tokens == scores.usage.computed_tokens
        again = await session.score(choices, "sum")
        assert again.scores == scores.scores
        assert again.usage.reused_tokens == again.usage.prompt_tokens
        assert engine.metrics.forwards == 3
        # The choice joins the pending text, as if it had been written.
        await session.extend([TextSegment(choices[scores.index])])
        straight = engine.open()
        await straight.extend([TextSegment("one two three four five six seven. " + choices[scores.index])])
        assert ids_of(session) == ids_of(straight)


async def test_ties_take_the_first(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Q:")])
        methods: tuple[Method, ...] = ("sum", "length_normalized", "greedy", "unconditional")
        for method in methods:
            scores = await session.score([" same", " same"], method)
            assert (scores.index, scores.probabilities) == (0, (0.5, 0.5))
            assert (await session.score([" only"], method)).index == 0


async def test_greedy_walks_token_by_token(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        for context, choices in CASES:
            session = engine.open()
            await session.extend([TextSegment(context)])
            scores = await session.score(choices, "greedy")
            own = brute(oracle, context, choices)
            live = list(range(len(choices)))
            for depth in range(max(map(len, own))):
                value = {i: own[i][depth] if depth < len(own[i]) else sum(own[i]) / len(own[i]) for i in live}
                live = [i for i in live if value[i] > max(value.values()) - 1e-5]
            assert scores.index == live[0]


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
async def test_unconditional_compares_with_no_context(kind: str, tmp_path: Path) -> None:
    """With a tokenizer that has no BOS, where a first token counts nothing, and with one that has."""
    path = tiny.build(tmp_path / kind)
    tiny.write_tokenizer(path, kind, template=None)
    oracle = Oracle(path)
    async with running(path) as engine:
        assert bool(engine.vocabulary.start_parts()) == (kind == "metaspace")
        session = engine.open()
        await session.extend([TextSegment("Which? I say ")])
        choices = ["yes indeed", "no never", "maybe"]
        scores = await session.score(choices, "unconditional")
        start = engine.vocabulary.encode(engine.vocabulary.start_parts())
        for i, tokens in enumerate(scores.tokens):
            ids = [id for id, _ in tokens]
            bare = oracle.logprobs([*start, *ids])
            bare = bare if start else [0.0, *bare]
            expected = sum(p - q for (_, p), q in zip(tokens, bare, strict=True)) / len(ids)
            assert scores.scores[i] == pytest.approx(expected, abs=1e-4)


async def test_many_at_once_do_not_mix(tiny_llama: Path) -> None:
    async with running(tiny_llama, step_tokens=32, step_logits=8) as engine:
        sessions = [engine.open() for _ in range(24)]
        for i, session in enumerate(sessions):
            await session.extend([TextSegment(f"Question {i}: ")])
        choices = [["up", "down now"], ["left", "right", "straight on"], ["x"]]
        alone = [await s.score(choices[i % 3], "sum") for i, s in enumerate(sessions)]
        other = engine.open()
        await other.extend([TextSegment("noise")])
        noise = asyncio.create_task(collect(other, max_tokens=30, ignore_eos=True))
        crowd = await asyncio.gather(*(s.score(choices[i % 3], "sum") for i, s in enumerate(sessions)))
        await noise
        for first, second in zip(alone, crowd, strict=True):
            assert second.scores == pytest.approx(first.scores, abs=1e-4)


async def test_a_context_that_melts_into_the_choices_is_kept_apart(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("12")])
        context = ids_of(session)
        assert len(context) == 1
        choices = ["3", "34", " 3"]
        assert oracle.vocabulary.encode(["123"])[0] != context[0]
        scores = await session.score(choices, "sum")
        for choice, score in zip(choices, scores.scores, strict=True):
            own = oracle.vocabulary.encode_content(choice, after="text")
            assert score == pytest.approx(math.fsum(oracle.logprobs([*context, *own])), abs=1e-4)


async def test_what_cannot_be_scored(tiny_llama: Path) -> None:
    async with running(tiny_llama, max_context=20) as engine:
        session = engine.open()
        with pytest.raises(EngineError):
            await session.score([], "sum")
        if not engine.vocabulary.start_parts():
            with pytest.raises(EngineError):
                await session.score(["a", "b"], "sum")
        await session.extend([TextSegment("x")])
        with pytest.raises(EngineError) as caught:
            await session.score(["a", "long " * 30], "sum")
        assert caught.value.kind == "limit"


def test_every_choice_has_a_token_of_its_own() -> None:
    split = split_choices([[1, 2, 3], [1, 2, 3, 4]], [1, 2], [])
    assert (split.context, split.own) == ((1, 2), ((3,), (3, 4)))
    split = split_choices([[1, 2, 3, 4]], [1, 2], [])
    assert (split.context, split.own) == ((1, 2), ((3, 4),))
    with pytest.raises(EngineError):
        split_choices([[1], [2]], [], [])


def test_combine() -> None:
    own = [(1, 2), (1, 3), (4,)]
    logprobs = [(-1.0, -3.0), (-1.0, -0.5), (-1.1,)]
    assert combine("sum", own, logprobs, None) == [-4.0, -1.5, -1.1]
    assert combine("length_normalized", own, logprobs, None) == [-2.0, -0.75, -1.1]
    greedy = combine("greedy", own, logprobs, None)
    assert greedy[1] > greedy[0] > greedy[2]

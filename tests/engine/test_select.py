"""Scoring choices equals scoring each with a full forward."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sglspec_engine.sched.trie import build_trie
from sglspec_engine.select import combine, split_choices
from sglspec_engine.types import EngineError, Method, Scores, TextSegment
from tests.engine import tiny
from tests.engine.drive import Oracle, collect, ids_of, running, until_forwards

CASES = [
    ("The answer is", [" yes", " no", " perhaps so", " not at all likely"]),
    ("Pick: ", ["a", "ab", "abc", "b"]),
    ("Pick", ["ice", "ice cream", "icy"]),
    ("No 12", ["3", "34", "345", " 3"]),
    ("日", ["本", "曜日", "🙂"]),
    ("same start ", ["of the first", "of the second", "of the third one"]),
]


def brute(oracle: Oracle, context: str, choices: Sequence[str]) -> list[list[float]]:
    """Log-probabilities of each choice's own tokens by full forwards over the text with the choice."""
    encode = oracle.vocabulary.encode
    before, encoded = encode([context]), [encode([context + choice]) for choice in choices]
    boundary = 0
    while len(before) > boundary and {before[boundary]} == {
        ids[boundary] if len(ids) > boundary + 1 else -1 for ids in encoded
    }:
        boundary += 1
    return [oracle.logprobs(ids)[boundary - 1 :] for ids in encoded]


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
    text = "one two three four five six seven. "
    choices = [f"choice number {word}" for word in ("one", "two", "three", "four", "five")]
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment(text)])
        scores = await session.score(choices, "sum")
        encoded = [engine.vocabulary.encode([text + choice]) for choice in choices]
        distinct = {tuple(ids[: i + 1]) for ids in encoded for i in range(len(ids) - 1)}
        assert engine.metrics.forwards == 1
        assert engine.metrics.embedded_tokens == scores.usage.computed_tokens == len(distinct)
        # The choice joins the pending text, as if it had been written, and is not computed again.
        await session.extend([TextSegment(choices[scores.index])])
        assert ids_of(session) == encoded[scores.index]
        finish, _ = await collect(session, max_tokens=1)
        assert finish.usage.computed_tokens == 1
        # What was computed for the others is gone.
        assert engine.pool.cached_bytes == 0
        assert engine.pool.arena.used <= len(encoded[scores.index]) + 32


async def test_a_context_that_was_computed_is_not_computed_again(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("one two three four five six seven.")])
        first, second = await session.fork(2)
        before = engine.metrics.embedded_tokens
        scores = await first.score([" a", " b"], "sum")
        assert scores.usage.reused_tokens == scores.usage.prompt_tokens == len(ids_of(session))
        assert scores.usage.computed_tokens == engine.metrics.embedded_tokens - before == 0
        scores = await second.score([" a b", " b"], "sum")
        assert scores.usage.computed_tokens == engine.metrics.embedded_tokens - before == 1
        assert second.usage == scores.usage


@pytest.mark.parametrize("settings", [{}, {"step_tokens": 5}, {"step_logits": 1}, {"prefix_cache": False}])
async def test_a_trie_may_be_cut_anywhere(tiny_llama: Path, settings: dict[str, Any]) -> None:
    """Nothing is computed twice, whatever a step has room for."""
    text, oracle = "They sat at the table and", Oracle(tiny_llama)
    rng = random.Random(3)
    choices = [" " + " ".join(rng.choices(["red", "green", "blue"], k=rng.randint(1, 9))) for _ in range(30)]
    own = brute(oracle, text, choices)
    async with running(tiny_llama, debug=True, **settings) as engine:
        session = engine.open()
        await session.extend([TextSegment(text)])
        scores = await session.score(choices, "sum")
        assert scores.scores == pytest.approx([math.fsum(p) for p in own], abs=1e-4)
        encoded = [engine.vocabulary.encode([text + choice]) for choice in choices]
        distinct = {tuple(ids[: i + 1]) for ids in encoded for i in range(len(ids) - 1)}
        assert engine.metrics.embedded_tokens == len(distinct)
        assert set(session._lease.ids) <= set(encoded[scores.index])
        await session.extend([TextSegment(choices[scores.index])])
        prompt = ids_of(session)
        _, tokens = await collect(session, max_tokens=5, ignore_eos=True)
        oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))


async def test_a_long_choice_that_loses_its_memory(tiny_llama: Path) -> None:
    """A generation that came first takes the memory of a scoring in the middle of a choice; that goes on there."""
    oracle = Oracle(tiny_llama)
    text, choices = "first of all", [" " + "the same words " * 20 + end for end in ("here", "there", "nowhere at all")]
    own = brute(oracle, text, choices)
    async with running(tiny_llama) as engine:
        size = engine.pool.layout.bytes_per_token
    async with running(tiny_llama, debug=True, max_kv_bytes=150 * size, step_tokens=2) as engine:
        writing, choosing = engine.open(), engine.open()
        await writing.extend([TextSegment("x")])
        await choosing.extend([TextSegment(text)])
        task = asyncio.create_task(collect(writing, max_tokens=110, ignore_eos=True))
        await until_forwards(engine, 2)
        scores = await choosing.score(choices, "sum")
        await task
        assert engine.metrics.preempted > 0
        assert scores.scores == pytest.approx([math.fsum(p) for p in own], abs=1e-3)
        assert engine.usage.computed_tokens == engine.metrics.embedded_tokens
        assert scores.usage.reused_tokens <= scores.usage.prompt_tokens == len(oracle.vocabulary.encode([text]))


@pytest.mark.parametrize("method", ["sum", "unconditional"])
async def test_cancelled_in_the_middle(tiny_llama: Path, method: Method) -> None:
    async with running(tiny_llama, debug=True, step_tokens=4) as engine:
        session = engine.open()
        await session.extend([TextSegment("a context of some words")])
        choices = [f" {i} and so on, and on, and on" for i in range(40)]
        task = asyncio.create_task(session.score(choices, method))
        await until_forwards(engine, 12)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.score([" x", " y"], "sum")).usage.prompt_tokens == len(ids_of(session))
        assert engine.metrics.cancelled == 1
        assert session.usage.computed_tokens == engine.metrics.embedded_tokens
        task = asyncio.create_task(session.score(choices, method))
        await until_forwards(engine, engine.metrics.forwards + 3)
        await session.close()
        with pytest.raises(EngineError):
            await task
        await engine.check()
        assert engine.pool.live_bytes == 0


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
            assert scores.scores == tuple(combine("greedy", *_ids_and_logprobs(scores), None))
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


def _ids_and_logprobs(scores: Scores) -> tuple[list[tuple[int, ...]], list[tuple[float, ...]]]:
    ids = [tuple(id for id, _ in tokens) for tokens in scores.tokens]
    return ids, [tuple(logprob for _, logprob in tokens) for tokens in scores.tokens]


def test_the_context_ends_where_a_choice_changes_it() -> None:
    split = split_choices([[1, 2, 3], [1, 2, 3, 4]], [1, 2], [])
    assert (split.context, split.own) == ((1, 2), ((3,), (3, 4)))
    split = split_choices([[1, 2, 3, 4]], [1, 2], [])
    assert (split.context, split.own) == ((1, 2), ((3, 4),))
    # One choice melts with the context's last token, so that token is scored with every choice.
    split = split_choices([[1, 2, 3], [1, 9]], [1, 2], [])
    assert (split.context, split.own) == ((1,), ((2, 3), (9,)))
    # A choice that adds no token keeps the last one.
    split = split_choices([[1, 2], [1, 2, 3]], [1, 2], [])
    assert (split.context, split.own) == ((1,), ((2,), (2, 3)))
    with pytest.raises(EngineError):
        split_choices([[1], [2]], [], [])


def test_a_trie_has_every_beginning_once_in_preorder() -> None:
    trie = build_trie([(7, 8, 9), (7,), (5, 7), (7, 8, 1, 2), (7, 8, 9)])
    assert (trie.tokens, trie.parents) == ((5, 7, 8, 1), (-1, -1, 1, 2))
    assert trie.paths == ((-1, 1, 2), (-1,), (-1, 0), (-1, 1, 2, 3), (-1, 1, 2))
    assert trie.ancestors(3) == [1, 2]
    rng = random.Random(0)
    for _ in range(200):
        many = [tuple(rng.choices(range(3), k=rng.randint(1, 6))) for _ in range(rng.randint(1, 30))]
        trie = build_trie(many)
        assert len(trie.tokens) == len({ids[:i] for ids in many for i in range(1, len(ids))})
        for ids, path in zip(many, trie.paths, strict=True):
            assert tuple(trie.tokens[node] for node in path[1:]) == ids[:-1]
            assert len(path) < 2 or trie.ancestors(path[-1]) == list(path[1:-1])


# Three choices of which the first two share a token, by hand: (tokens, log-probabilities), those without a context.
OWN = [(1, 2), (1, 3), (4,)]
LOGPROBS = [(-1.0, -3.0), (-1.0, -0.5), (-1.1,)]
BARE = [(0.0, -6.0), (0.0, -0.25), (0.0,)]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("sum", [-4.0, -1.5, -1.1]),
        ("length_normalized", [-2.0, -0.75, -1.1]),
        ("unconditional", [1.0, -0.625, -1.1]),  # ((-1 - 0) + (-3 + 6)) / 2, ((-1 - 0) + (-0.5 + 0.25)) / 2, -1.1 - 0
        ("greedy", [1 + math.exp(-3.0), 2.0, math.exp(-1.1)]),  # -1.1 loses the first column, -3 the second
    ],
)
def test_combine(method: Method, expected: list[float]) -> None:
    assert combine(method, OWN, LOGPROBS, BARE) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("logprobs", "expected"),
    [
        # (1,) has ended after one token and goes on with its mean, -1: better than -2, worse than -0.5.
        ([(-1.0,), (-1.0, -2.0)], [2.0, 1 + math.exp(-2.0)]),
        ([(-1.0,), (-1.0, -0.5)], [1 + math.exp(-1.0), 2.0]),
        # The means tie in every column: both keep up to the end.
        ([(-1.0,), (-1.0, -1.0)], [2.0, 2.0]),
        # Certain tokens still rank below a choice that keeps up.
        ([(-0.0, -0.1), (-0.0, -0.0)], [1 + math.exp(-0.1), 2.0]),
    ],
)
def test_a_choice_that_begins_another_one(logprobs: list[tuple[float, ...]], expected: list[float]) -> None:
    own = [tuple(range(1, len(p) + 1)) for p in logprobs]
    assert combine("greedy", own, logprobs, None) == pytest.approx(expected, abs=1e-12)


async def test_tokens_that_choices_share_count_the_same_for_all(tiny_llama: Path) -> None:
    """Whatever else is in the step: else the last bits of a row would decide a walk from token to token."""
    async with running(tiny_llama) as engine:
        for i in range(20):
            session, others = engine.open(), [engine.open() for _ in range(i % 7)]
            await session.extend([TextSegment(f"number {i} the quick")])
            for n, other in enumerate(others):
                await other.extend([TextSegment(f"other {n} {i} " * (n + 1))])
            beside = [asyncio.create_task(collect(other, max_tokens=3)) for other in others]
            scores = await session.score([" jumps fox", " jumps of", " lazy"], "greedy")
            await asyncio.gather(*beside)
            fox, of = scores.tokens[:2]
            shared = next(n for n, (a, b) in enumerate(zip(fox, of, strict=False)) if a[0] != b[0])
            assert shared > 3
            assert fox[:shared] == of[:shared]

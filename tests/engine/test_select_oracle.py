"""Random choices, scored by every method, against one full forward of transformers per choice.

With SGLSPEC_TEST_SELECT=all, 500 random cases run on tiny models and 50 on the default one; else a share of them.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from sglspec_engine.engine import Engine
from sglspec_engine.session import Session
from sglspec_engine.types import EngineError, Method, Scores, TextSegment
from tests.engine import tiny
from tests.engine.drive import Oracle, ids_of, running

CASES, REAL_CASES = (500, 50) if os.environ.get("SGLSPEC_TEST_SELECT") == "all" else (56, 3)
METHODS: tuple[Method, ...] = ("length_normalized", "sum", "greedy", "unconditional")
PIECES = (
    *(" yes", " no", " Yes", "maybe", " the", " quick brown", " fox", "\n", " ", "", ".", " 12", "3.5", "-7", "true"),
    *("é", " naïve", "日本", "曜日", "🙂", "👩‍👩‍👧", "مرحبا", " ß", "\t", "<|im_end|>", "{}", " {{ x }}", "Привет"),
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"step_tokens": 24, "step_logits": 5},
    {"prefix_cache": False},
    {"attention": "reference"},
)


@dataclass(frozen=True)
class Case:
    context: str
    choices: tuple[str, ...]


def text(rng: random.Random, most: int) -> str:
    return "".join(rng.choices(PIECES, k=rng.randint(1, most)))


def random_case(seed: int) -> Case:
    """Contexts of all lengths; few choices and many, short and long, typed ones, and ones that begin each other."""
    rng = random.Random(seed)
    context = "Question: " + text(rng, rng.choice([1, 3, 40]))
    count = rng.choice([1, 2, 2, 3, 4, 5, 8, 50 if seed % 10 == 0 else 6])
    kind = rng.choice(["words", "words", "begins", "typed", "long"])
    if kind == "typed":
        found = [*("true", "false"), *(str(rng.choice([rng.randint(-99, 9999), rng.random()])) for _ in range(count))]
    elif kind == "begins":
        whole = text(rng, 12) + "."
        found = [whole[: rng.randint(1, len(whole))] for _ in range(count)]
    elif kind == "long":
        start = text(rng, 40)
        found = [start + text(rng, 20) for _ in range(min(count, 4))]
    else:
        found = [text(rng, 4) for _ in range(count)]
    return Case(context, tuple(dict.fromkeys(choice for choice in found if choice)) or ("only",))


class Brute:
    """What each method must give, choice by choice."""

    def __init__(self, oracle: Oracle, case: Case) -> None:
        encode = oracle.vocabulary.encode
        start = oracle.vocabulary.start_parts()
        before = encode([*start, case.context])
        encoded = [encode([*start, case.context + choice]) for choice in case.choices]
        lengths = [
            next((i for i, (a, b) in enumerate(zip(before, ids, strict=False)) if a != b), None) for ids in encoded
        ]
        limits = [
            min(len(before), len(ids) - 1) if at is None else at for at, ids in zip(lengths, encoded, strict=True)
        ]
        self.boundary = min(limits)
        self.ids = [ids[self.boundary :] for ids in encoded]
        self.own = [oracle.logprobs(ids)[self.boundary - 1 :] for ids in encoded]
        self._oracle, self._lead = oracle, encode(start)

    @cached_property
    def bare(self) -> list[list[float]]:
        """The choices' own tokens after BOS alone; without one a first token counts 0."""
        if not self._lead:
            return [[0.0, *self._oracle.logprobs(ids)] for ids in self.ids]
        return [self._oracle.logprobs([*self._lead, *ids])[len(self._lead) - 1 :] for ids in self.ids]

    def means(self, method: Method) -> list[float]:
        if method == "sum":
            return [sum(p) for p in self.own]
        if method == "length_normalized":
            return [sum(p) / len(p) for p in self.own]
        return [(sum(p) - sum(q)) / len(p) for p, q in zip(self.own, self.bare, strict=True)]

    def greedy(self, close: float) -> set[int]:
        """Who may win the walk over the columns, where values within `close` count as equal."""
        live = set(range(len(self.own)))
        winners = set(live)
        for column in range(max(map(len, self.own))):
            value = {i: p[column] if column < len(p := self.own[i]) else sum(p) / len(p) for i in live}
            live = {i for i in live if value[i] > max(value.values()) - close}
            winners &= live
        return winners


async def check(engine: Engine, oracle: Oracle, case: Case, methods: Sequence[Method]) -> None:
    brute = Brute(oracle, case)
    for method in methods:
        session = engine.open()
        await session.extend([TextSegment(case.context)])
        scores = await session.score(case.choices, method)
        assert [[id for id, _ in tokens] for tokens in scores.tokens] == brute.ids
        for tokens, expected in zip(scores.tokens, brute.own, strict=True):
            assert all(abs(p - q) < bound(q) for (_, p), q in zip(tokens, expected, strict=True)), case
        check_winner(scores, method, brute)
        check_usage(session, scores, method, brute)
        await session.extend([TextSegment(case.choices[scores.index])])
        assert session.text().endswith(case.context + case.choices[scores.index])
        await session.close()


def check_winner(scores: Scores, method: Method, brute: Brute) -> None:
    best = scores.scores[scores.index]
    assert scores.index == scores.scores.index(max(scores.scores))
    weights = [math.exp(score - best) for score in scores.scores]
    assert scores.probabilities == pytest.approx([w / sum(weights) for w in weights], abs=1e-9)
    if method == "greedy":
        assert scores.index in brute.greedy(2e-4)
        return
    expected = brute.means(method)
    # A sum of errors may be larger than each.
    counts = [len(p) if method == "sum" else 1 for p in brute.own]
    bounds = [bound(value / n) * n for value, n in zip(expected, counts, strict=True)]
    for found, value, most in zip(scores.scores, expected, bounds, strict=True):
        assert abs(found - value) < most
    assert expected[scores.index] > max(expected) - 2 * max(bounds)


def bound(logprob: float) -> float:
    """How far off fp32 may be: both sides round logits of that size."""
    return 1e-4 + 1e-5 * abs(logprob)


def check_usage(session: Session, scores: Scores, method: Method, brute: Brute) -> None:
    usage = scores.usage
    assert session.usage == usage
    assert usage.prompt_tokens == brute.boundary >= usage.reused_tokens
    assert usage.generated_tokens == usage.forced_tokens == 0
    nodes = len({tuple(ids[:i]) for ids in brute.ids for i in range(1, len(ids))})
    if method != "unconditional":
        assert usage.computed_tokens == usage.prompt_tokens - usage.reused_tokens + nodes


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
async def test_tiny_models(architecture: str, tiny_model: Callable[[str], Path]) -> None:
    path = tiny_model(architecture)
    oracle = Oracle(path)
    first = tiny.ARCHITECTURES.index(architecture)
    seeds = range(first, CASES, len(tiny.ARCHITECTURES))
    for number, settings in enumerate(SETTINGS):
        async with running(path, **settings) as engine:
            for seed in seeds[number :: len(SETTINGS)]:
                await check(engine, oracle, random_case(seed), METHODS)
            await engine.check()
            assert engine.pool.live_bytes == 0


@pytest.mark.parametrize("kind", ["metaspace", "unigram"])
async def test_other_tokenizers(kind: str, tmp_path: Path) -> None:
    """One that puts a space before the first word, with a BOS, and one without merges."""
    path = tiny.build(tmp_path / kind)
    tiny.write_tokenizer(path, kind, template=None)
    oracle = Oracle(path)
    async with running(path) as engine:
        for seed in range(1000, 1000 + CASES // 10):
            await check(engine, oracle, random_case(seed), METHODS)


async def test_five_hundred_choices(tiny_llama: Path) -> None:
    rng = random.Random(7)
    choices = tuple(dict.fromkeys(f" item {rng.randint(1, 10**6)}{text(rng, 3)}" for _ in range(500)))
    async with running(tiny_llama) as engine:
        await check(engine, Oracle(tiny_llama), Case("Which of all these is it?", choices), ["greedy"])


async def test_sixty_four_at_once(tiny_llama: Path) -> None:
    """Selections side by side give what each gives alone."""
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, step_tokens=64, step_logits=32) as engine:
        cases = [random_case(2000 + i) for i in range(64)]
        await asyncio.gather(*(check(engine, oracle, case, [METHODS[i % 4]]) for i, case in enumerate(cases)))


async def test_a_choice_that_does_not_fit(tiny_llama: Path) -> None:
    async with running(tiny_llama, max_context=60) as engine:
        session = engine.open()
        await session.extend([TextSegment("x")])
        with pytest.raises(EngineError, match="tokens"):
            await session.score(["a", "long " * 80], "sum")
        assert (await session.score(["a", "long"], "sum")).usage.prompt_tokens == len(ids_of(session))


@pytest.mark.model
@pytest.mark.timeout(3000)
async def test_default_model(default_model: Path) -> None:
    oracle = Oracle(default_model)
    async with running(default_model) as engine:
        for seed in range(3000, 3000 + REAL_CASES):
            await check(engine, oracle, random_case(seed), [METHODS[seed % 4]])

"""Choosing tokens: filters, penalties, ties, and noise that depends on nothing but its key."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from sglspec_engine.draw import draw, gumbel
from sglspec_engine.sample import Sampler, log_probability
from sglspec_engine.types import EngineError, Sampling

SIZE = 50


def logits_of(seed: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, size).astype(np.float32)


def reachable(sampling: Sampling, logits: np.ndarray, draws: int = 3000) -> set[int]:
    return {Sampler(sampling, key, SIZE, []).choose(logits, 0) for key in range(draws)}


def test_greedy_ties_go_to_the_lowest_id() -> None:
    logits = np.zeros(SIZE, dtype=np.float32)
    logits[[7, 3, 20]] = 5.0
    assert Sampler(Sampling(), 1, SIZE, []).choose(logits, 0) == 3


def test_padding_ids_and_banned_ids_are_out() -> None:
    logits = np.zeros(SIZE + 14, dtype=np.float32)
    logits[SIZE + 3] = 99.0
    logits[4] = 9.0
    logits[5] = 8.0
    sampler = Sampler(Sampling(), 1, SIZE, [])
    assert sampler.choose(logits, 0) == 4
    assert sampler.choose(logits, 0, banned={4}) == 5
    allowed = np.zeros(SIZE, dtype=np.bool_)
    allowed[[9, 11]] = True
    assert sampler.choose(logits, 0, allowed) == 9


@pytest.mark.parametrize("seed", range(3))
def test_filters_leave_what_transformers_leaves(seed: int) -> None:
    logits = logits_of(seed)
    tensor = torch.from_numpy(logits)[None]
    none = cast(torch.LongTensor, torch.zeros(1, 0, dtype=torch.long))
    for sampling, warper in (
        (Sampling(1.0, top_k=4), TopKLogitsWarper(4)),
        (Sampling(1.0, top_p=0.7), TopPLogitsWarper(0.7)),
        (Sampling(1.0, min_p=0.2), MinPLogitsWarper(0.2)),
    ):
        expected = set(
            torch.isfinite(warper(none, cast(torch.FloatTensor, tensor.clone()))[0]).nonzero()[:, 0].tolist()
        )
        assert reachable(sampling, logits) == expected


def test_repetition_penalty_is_that_of_transformers() -> None:
    logits = logits_of(5)
    prompt, generated = [1, 2, 3, 2], [8, 9]
    sampler = Sampler(Sampling(repetition_penalty=1.7), 0, SIZE, prompt)
    for id in generated:
        sampler.record(id)
    processed = RepetitionPenaltyLogitsProcessor(1.7)(
        cast(torch.LongTensor, torch.tensor([prompt + generated])),
        cast(torch.FloatTensor, torch.from_numpy(logits)[None].clone()),
    )[0]
    for _ in range(10):
        best = int(processed.argmax())
        assert sampler.choose(logits, 0, banned=[i for i in range(SIZE) if processed[i] > processed[best]]) == best
        processed[best] = -1e9
        logits[best] = -1e9


def test_frequency_and_presence_count_generated_tokens_only() -> None:
    logits = np.zeros(SIZE, dtype=np.float32)
    logits[[1, 2]] = [3.0, 2.9]
    sampler = Sampler(Sampling(frequency_penalty=0.5, presence_penalty=0.2), 0, SIZE, [1, 1, 1])
    assert sampler.choose(logits, 0) == 1
    sampler.record(1)
    assert sampler.choose(logits, 1) == 2
    sampler.record(2)
    sampler.record(2)
    assert sampler.choose(logits, 2) == 1


def test_bias_and_its_limits() -> None:
    logits = logits_of(1)
    assert Sampler(Sampling(logit_bias=((17, 100.0),)), 0, SIZE, []).choose(logits, 0) == 17
    for sampling in (Sampling(logit_bias=((SIZE, 1.0),)), Sampling(repetition_penalty=0.0)):
        with pytest.raises(EngineError) as caught:
            Sampler(sampling, 0, SIZE, [])
        assert caught.value.kind == "sampling"


def test_draws_follow_the_distribution() -> None:
    logits = logits_of(2, 8)
    draws = 20_000
    sampler = Sampler(Sampling(temperature=0.8), 12345, 8, [])
    counts = np.bincount([sampler.choose(logits, position) for position in range(draws)], minlength=8)
    expected = np.exp(logits.astype(np.float64) / 0.8)
    expected /= expected.sum()
    assert np.abs(counts / draws - expected).max() < 0.015


def test_noise_belongs_to_the_token_not_to_its_place() -> None:
    ids = np.arange(1000, dtype=np.int64)
    noise = gumbel(9, 4, ids)
    some = ids[[3, 77, 500]]
    assert np.array_equal(gumbel(9, 4, some), noise[some])
    assert not np.array_equal(gumbel(9, 5, ids), noise)
    assert not np.array_equal(gumbel(10, 4, ids), noise)
    assert abs(noise.mean() - 0.5772) < 0.15
    for other in (gumbel(10, 4, ids), gumbel(9, 5, ids)):
        assert abs(np.corrcoef(noise, other)[0, 1]) < 0.1


@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0, 40.0, 1e30])
@pytest.mark.parametrize("temperature", [1e-8, 0.3, 1.0, 50.0])
def test_a_draw_is_that_of_the_noise_of_all(spread: float, temperature: float) -> None:
    size = 3000
    ids = np.arange(size, dtype=np.int64)
    for key in range(40):
        scores = np.random.default_rng(key).normal(0, spread, size).astype(np.float32)
        scores[key::7] = -np.inf
        with np.errstate(over="ignore"):
            values = (scores.astype(np.float64) - float(scores.max())) / temperature
        assert draw(scores, temperature, key, 11) == int(np.argmax(values + gumbel(key, 11, ids)))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1.0, top_p=0.3),
        Sampling(1.0, top_p=0.95),
        Sampling(1.0, top_p=0.9999999),
        Sampling(1.0, top_k=1),
        Sampling(1.0, top_k=40, top_p=0.9),
        Sampling(1.0, top_k=10**9, top_p=0.9),
        Sampling(1.0, min_p=0.02),
        Sampling(1.0, top_p=0.99, min_p=1e-4),
    ],
)
@pytest.mark.parametrize("spread", [0.01, 2.0, 8.0])
def test_filters_of_many_tokens_are_those_of_all_sorted(sampling: Sampling, spread: float) -> None:
    size = 5000
    for key in range(12):
        logits = np.random.default_rng(key).normal(0, spread, size).astype(np.float32)
        order = np.argsort(-logits, kind="stable")[: sampling.top_k]
        weights = np.exp(logits[order].astype(np.float64) - logits.max())
        if sampling.top_p is not None:
            keep = np.cumsum(weights) - weights < sampling.top_p * weights.sum()
            order, weights = order[keep], weights[keep]
        if sampling.min_p is not None:
            order = order[weights >= sampling.min_p]
        order.sort()
        values = logits[order].astype(np.float64) + gumbel(key, 3, order)
        assert Sampler(sampling, key, size, []).choose(logits, 3) == order[np.argmax(values)]


def test_log_probability() -> None:
    logits = logits_of(3)
    expected = torch.log_softmax(torch.from_numpy(logits), -1)
    assert all(abs(log_probability(logits, i) - float(expected[i])) < 1e-5 for i in range(SIZE))

"""The order of the sampling rules, against one written out in plain Python and against transformers' own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessorList, TemperatureLogitsWarper
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from sglspec_engine.draw import gumbel
from sglspec_engine.sample import Sampler
from sglspec_engine.types import Sampling, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running

QUICK = settings(max_examples=300, deadline=None, derandomize=True)
PENALTIES = st.sampled_from([-1e300, -2.0, 0.0, 1e-45, 1e38, 1e300])
HALVES = st.integers(-12, 12).map(lambda n: n / 2)


def sampler_of(sampling: Sampling, size: int, prompt: list[int], generated: list[int], key: int = 0) -> Sampler:
    sampler = Sampler(sampling, key, size, prompt)
    for id in generated:
        sampler.record(id)
    return sampler


def scores_by_hand(
    logits: list[float], sampling: Sampling, prompt: list[int], generated: list[int], allowed: list[bool]
) -> dict[int, float]:
    """What is left after mask, bias and penalties."""
    scores = {i: value for i, value in enumerate(logits) if allowed[i]}
    for i, bias in sampling.logit_bias:
        if i in scores:
            scores[i] += bias
    for i in scores:
        if i in prompt or i in generated:
            factor = sampling.repetition_penalty
            scores[i] = scores[i] * factor if scores[i] < 0 else scores[i] / factor
        if i in generated:
            scores[i] -= generated.count(i) * sampling.frequency_penalty + sampling.presence_penalty
    return scores


def kept_by_hand(scores: dict[int, float], sampling: Sampling) -> dict[int, float]:
    """Unnormalised probabilities of what temperature, top-k, top-p and min-p leave."""
    best = max(scores.values())
    weights = {i: math.exp((score - best) / sampling.temperature) for i, score in scores.items() if score > -math.inf}
    order = sorted(weights, key=lambda i: (-scores[i], i))
    if sampling.top_k:
        order = order[: sampling.top_k]
    if sampling.top_p is not None:
        total, mass, kept = math.fsum(weights[i] for i in order), 0.0, []
        for i in order:
            if kept and mass >= sampling.top_p * total:
                break
            kept.append(i)
            mass += weights[i]
        order = kept
    if sampling.min_p is not None:
        order = [i for i in order if weights[i] >= sampling.min_p * weights[order[0]]]
    return {i: weights[i] for i in order}


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[float], Sampling, list[int], list[int], list[bool]]:
    """Logits on halves (so there are many ties), down to one token, some ruled out by the model; numbers for which
    float32 is exact."""
    size = draw(st.integers(1, 12))
    ids = st.integers(0, size - 1)
    logits = draw(st.lists(HALVES | st.just(-math.inf), min_size=size, max_size=size))
    allowed = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    allowed[draw(ids)] = True
    sampling = Sampling(
        temperature=draw(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])),
        top_p=draw(st.none() | st.sampled_from([0.0001, 0.3137, 0.7351, 0.9731, 1.0])),
        top_k=draw(st.none() | st.integers(1, 14)),
        min_p=draw(st.none() | st.sampled_from([0.0, 0.0713, 0.5237, 1.0])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.5, -0.25, 2.0])),
        presence_penalty=draw(st.sampled_from([0.0, 0.25, -2.0])),
        repetition_penalty=draw(st.sampled_from([1.0, 2.0, 0.5])),
        logit_bias=tuple(draw(st.dictionaries(ids, HALVES, max_size=2)).items()),
    )
    lists = st.lists(ids, max_size=5)
    return logits, sampling, draw(lists), draw(lists), allowed


@QUICK
@given(cases())
def test_the_token_is_that_of_the_rules_written_out(
    case: tuple[list[float], Sampling, list[int], list[int], list[bool]],
) -> None:
    logits, sampling, prompt, generated, allowed = case
    array = np.array(logits, dtype=np.float32)
    scores = scores_by_hand(logits, sampling, prompt, generated, allowed)
    ruled_out = all(score == -math.inf for score in scores.values())
    for key in range(3):
        chosen = sampler_of(sampling, len(logits), prompt, generated, key).choose(array, 7, np.array(allowed))
        assert allowed[chosen]
        if ruled_out:
            continue
        if sampling.temperature == 0:
            assert chosen == min(i for i in scores if scores[i] == max(scores.values()))
            continue
        kept = kept_by_hand(scores, sampling)
        noise = gumbel(key, 7, np.arange(len(logits), dtype=np.int64))
        assert chosen == max(kept, key=lambda i: (scores[i] / sampling.temperature + noise[i], -i))


@QUICK
@given(
    logits=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=True), min_size=1, max_size=6),
    numbers=st.lists(
        st.sampled_from([0.0, 1e-320, 1e-40, 1e-8, 1.0, 1e8, 1e40, 1e300, math.inf]), min_size=4, max_size=4
    ),
    frequency=PENALTIES,
    presence=PENALTIES,
    top_k=st.none() | st.sampled_from([-1, 0, 1, 10**9]),
    data=st.data(),
)
def test_extreme_numbers_still_give_an_allowed_token(
    logits: list[float],
    numbers: list[float],
    frequency: float,
    presence: float,
    top_k: int | None,
    data: st.DataObject,
) -> None:
    temperature, top_p, min_p, repetition = numbers
    bias = data.draw(st.sampled_from([-100.0, 100.0, 1e38, -3e38]))
    sampling = Sampling(
        temperature, top_p, top_k, min_p, frequency, presence, repetition or 1e-320, ((0, bias), (0, bias))
    )
    allowed = data.draw(st.lists(st.booleans(), min_size=len(logits), max_size=len(logits)))
    allowed[data.draw(st.integers(0, len(logits) - 1))] = True
    sampler = sampler_of(sampling, len(logits), [0], [0, len(logits) - 1])
    with np.errstate(all="raise", over="ignore", under="ignore"):
        assert allowed[sampler.choose(np.array(logits, dtype=np.float32), 3, np.array(allowed))]


@pytest.mark.parametrize("seed", range(12))
def test_everything_together_is_what_transformers_does(seed: int) -> None:
    """Where transformers has the rule: bias, repetition penalty, temperature, top-k, top-p, min-p, in its order."""
    rng = np.random.default_rng(seed)
    size, prompt = 40, rng.integers(0, 40, 9).tolist()
    logits = rng.normal(0, 2, size).astype(np.float32)
    bias = {int(i): float(value) for i, value in zip(rng.choice(size, 3, False), rng.normal(0, 3, 3), strict=True)}
    sampling = Sampling(0.8, 0.9, 15, 0.03, repetition_penalty=1.3, logit_bias=tuple(bias.items()))
    processors = LogitsProcessorList(
        [
            SequenceBiasLogitsProcessor([[[i], value] for i, value in bias.items()]),
            RepetitionPenaltyLogitsProcessor(1.3),
            TemperatureLogitsWarper(0.8),
            TopKLogitsWarper(15),
            TopPLogitsWarper(0.9),
            MinPLogitsWarper(0.03),
        ]
    )
    left = processors(
        cast(torch.LongTensor, torch.tensor([prompt])), cast(torch.FloatTensor, torch.from_numpy(logits)[None].clone())
    )[0]
    for key in range(200):
        noise = gumbel(key, 5, np.arange(size, dtype=np.int64))
        expected = int(np.argmax(left.double().numpy() + noise))
        assert sampler_of(sampling, size, prompt, [], key).choose(logits, 5) == expected


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3.0, "top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.15},
        {"frequency_penalty": 0.7, "presence_penalty": 0.4},
        {"repetition_penalty": 1.5, "logit_bias": ((3, 2.0),), "top_p": 0.95},
    ],
)
def test_draws_are_distributed_as_the_rules_say(options: dict[str, Any]) -> None:
    """Pearson's chi-square over 20,000 draws; its 99.9 % quantile for 9 degrees of freedom is 27.9, for fewer less."""
    logits = np.random.default_rng(4).normal(0, 1.5, 10).astype(np.float32)
    sampling = Sampling(**{"temperature": 1.0, **options})
    sampler = sampler_of(sampling, 10, [1, 2], [2, 2, 5], 777)
    draws = 20_000
    counts = np.bincount([sampler.choose(logits, position) for position in range(draws)], minlength=10)
    kept = kept_by_hand(scores_by_hand(logits.tolist(), sampling, [1, 2], [2, 2, 5], [True] * 10), sampling)
    total = math.fsum(kept.values())
    expected = {i: draws * weight / total for i, weight in kept.items()}
    assert {i for i, count in enumerate(counts) if count} <= set(kept)
    assert sum((counts[i] - wanted) ** 2 / wanted for i, wanted in expected.items()) < 27.9


async def test_log_probabilities_are_of_the_model_alone(tiny_llama: Path) -> None:
    """Whatever constraint, bias, penalties and temperature made of them."""
    oracle = Oracle(tiny_llama)
    sampling = Sampling(1.7, 0.9, 20, 0.001, 0.5, 0.5, 1.4, ((5, 3.0),))
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Numbers:")])
        prompt = ids_of(session)
        request = {"max_tokens": 9, "alternatives": 3, "sampling": sampling, "noise_key": 3}
        _, tokens = await collect(session, grammar="start: /[0-9]{4,6}abc[0-9]+/", **request)
        assert any(token.forced for token in tokens)
        oracle.assert_logprobs(prompt, tokens)
        table = torch.log_softmax(oracle.logits([*prompt, *(t.id for t in tokens)]), dim=-1)
        for place, token in enumerate(tokens, len(prompt) - 1):
            values, ids = table[place, : oracle.vocabulary.size].topk(3)
            assert [one.id for one in token.top] == ids.tolist()
            assert [one.logprob for one in token.top] == pytest.approx(values.tolist(), abs=1e-4)

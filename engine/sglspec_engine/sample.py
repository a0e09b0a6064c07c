"""Choosing a token from logits.

Order: constraint and vocabulary mask, logit bias, repetition penalty, frequency and presence penalties, temperature,
top-k, top-p, min-p, draw. Penalties and bias act on logits, so temperature 0 sees them too.

The draw is the Gumbel-max trick (Gumbel 1954; Maddison et al. 2014): the largest of log-probability plus Gumbel noise
is distributed as the softmax. The noise is a hash of (key, position, token id), so it does not depend on the batch,
on a slot, on other tokens being filtered, or on how often a step was repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from sglspec_engine.types import EngineError, Sampling

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

_GOLDEN = 0x9E3779B97F4A7C15
_U64 = 0xFFFFFFFFFFFFFFFF
_LARGEST = float(np.finfo(np.float32).max)


def log_probability(logits: Floats, id: int) -> float:
    """Natural-log probability of `id` under softmax of logits [vocabulary], in float64."""
    wide = logits.astype(np.float64)
    top = float(wide.max())
    return float(wide[id]) - top - float(np.log(np.exp(wide - top).sum()))


def likeliest(logits: Floats, count: int, vocabulary: int) -> list[tuple[int, float]]:
    """The `count` likeliest ids below `vocabulary` of logits [n], the likeliest first (ties: the lower id), each with
    its natural-log probability as `log_probability` gives it."""
    count = min(count, vocabulary)
    if count <= 0:
        return []
    every = logits.astype(np.float64)
    wide = every[:vocabulary]
    # All that may be among them, ties of the last one included: the order must not depend on how they are partitioned.
    least = np.partition(wide, len(wide) - count)[len(wide) - count]
    ids = np.flatnonzero(wide >= least)
    ids = ids[np.argsort(-wide[ids], kind="stable")][:count]
    top = float(every.max())
    total = top + float(np.log(np.exp(every - top).sum()))
    return [(int(id), float(wide[id]) - total) for id in ids]


def gumbel(key: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for token ids [n] at one position of one generation; see the module docstring."""
    base = _mix_int(_mix_int(key & _U64) ^ ((position + 1) * _GOLDEN & _U64))
    with np.errstate(over="ignore"):
        bits = _mix(np.uint64(base) + ids.astype(np.uint64) * np.uint64(_GOLDEN))
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit changes about half of the output bits."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _mix_int(value: int) -> int:
    """`_mix` for one number."""
    value = (value + _GOLDEN) & _U64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _U64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _U64
    return value ^ (value >> 31)


class Sampler:
    """Chooses the tokens of one generation.

    vocabulary: ids at and above it are padding of the model's output layer and are never chosen. prompt: context ids,
    which only the repetition penalty looks at (prompt and generated tokens alike, each once, as in CTRL, Keskar et al.
    2019, and in transformers); frequency and presence penalties count generated tokens only (the OpenAI definition).
    """

    def __init__(self, sampling: Sampling, key: int, vocabulary: int, prompt: Sequence[int]) -> None:
        _validate(sampling, vocabulary)
        self._sampling = sampling
        self._key = key
        self._vocabulary = vocabulary
        self._seen: set[int] = set(prompt) if sampling.repetition_penalty != 1.0 else set()
        self._counts: dict[int, int] = {}
        self._bias_ids = np.array([id for id, _ in sampling.logit_bias], dtype=np.int64)
        self._bias = np.array([value for _, value in sampling.logit_bias], dtype=np.float32)

    def record(self, id: int) -> None:
        """Count a token of this generation, however it came about."""
        self._counts[id] = self._counts.get(id, 0) + 1
        self.see(id)

    def see(self, id: int) -> None:
        """Count a token of the prompt."""
        if self._sampling.repetition_penalty != 1.0:
            self._seen.add(id)

    def choose(self, logits: Floats, position: int, allowed: Bools | None = None, banned: Collection[int] = ()) -> int:
        """A token id. logits: [model vocabulary], not changed. allowed: [at least vocabulary] or None for all;
        something must be allowed. position: index of the token in the context, so that two generations of one context
        never share noise, whatever their keys."""
        possible = np.ones(self._vocabulary, dtype=np.bool_) if allowed is None else allowed[: self._vocabulary].copy()
        if banned:
            possible[[id for id in banned if id < self._vocabulary]] = False
        scores = self._adjusted(logits[: self._vocabulary])
        temperature = self._sampling.temperature
        if temperature <= 0:
            scores[~possible] = -np.inf
            return int(np.argmax(scores))  # numpy returns the first, so ties go to the lowest id
        finite = possible & (logits[: self._vocabulary] > -np.inf)
        ids = np.flatnonzero(finite if finite.any() else possible)
        values = scores[ids].astype(np.float64)
        with np.errstate(over="ignore"):
            values = (values - values.max()) / temperature  # the best is 0 however small the temperature is
        kept = self._filter(values)
        return int(ids[kept[np.argmax(values[kept] + gumbel(self._key, position, ids[kept]))]])

    def _adjusted(self, logits: Floats) -> Floats:
        """Scores: logits with bias and penalties, all of them finite whatever these are, so that a token that is
        allowed is always likelier than one that is not."""
        scores = logits.copy()
        with np.errstate(all="ignore"):
            self._adjust(scores)
        return np.nan_to_num(scores, copy=False, nan=-_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)

    def _adjust(self, scores: Floats) -> None:
        sampling = self._sampling
        if len(self._bias_ids):
            np.add.at(scores, self._bias_ids, self._bias)  # an id may be named twice
        if self._seen:
            seen = np.fromiter(self._seen, dtype=np.int64, count=len(self._seen))
            seen = seen[seen < len(scores)]
            values = scores[seen]
            penalty = np.float32(sampling.repetition_penalty)
            scores[seen] = np.where(values < 0, values * penalty, values / penalty)
        if self._counts and (sampling.frequency_penalty or sampling.presence_penalty):
            ids = np.fromiter(self._counts, dtype=np.int64, count=len(self._counts))
            counts = np.fromiter(self._counts.values(), dtype=np.float32, count=len(self._counts))
            scores[ids] -= counts * np.float32(sampling.frequency_penalty) + np.float32(sampling.presence_penalty)

    def _filter(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The places of `values` that top-k, top-p and min-p leave, ascending. At least one stays; ties favour the
        first ones."""
        sampling = self._sampling
        if sampling.top_k is None and sampling.top_p is None and sampling.min_p is None:
            return np.arange(len(values))
        order = np.argsort(-values, kind="stable")
        if sampling.top_k is not None and sampling.top_k > 0:
            order = order[: sampling.top_k]
        weights = np.exp(values[order])
        if sampling.top_p is not None and sampling.top_p < 1:
            before = np.cumsum(weights) - weights
            keep = before < sampling.top_p * weights.sum()
            keep[0] = True
            order, weights = order[keep], weights[keep]
        if sampling.min_p is not None:
            order = order[weights >= min(sampling.min_p, 1.0) * weights[0]]
        return np.sort(order)


def _validate(sampling: Sampling, vocabulary: int) -> None:
    """Raises EngineError("unsupported") for settings without a meaning."""
    if sampling.repetition_penalty <= 0:
        raise EngineError("unsupported", "repetition_penalty must be positive")
    bad = [id for id, _ in sampling.logit_bias if not 0 <= id < vocabulary]
    if bad:
        raise EngineError("unsupported", f"logit_bias names token {bad[0]}, the vocabulary has {vocabulary}")

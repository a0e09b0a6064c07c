"""Choosing a token from logits.

Order: constraint and vocabulary mask, logit bias, repetition penalty, frequency and presence penalties, temperature,
top-k, top-p, min-p, draw. Penalties and bias act on logits, so temperature 0 sees them too.

Work on the whole vocabulary is what a token costs beside the model, so each pass over it has to have a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sglspec_engine.draw import draw, gumbel
from sglspec_engine.types import EngineError, Sampling

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

_CUTS = (-4.0, -12.0)
"""How far below the best those are that top-p sorts first; it takes more only where they do not suffice."""
_LARGEST = float(np.finfo(np.float32).max)


def log_probability(logits: Floats, id: int) -> float:
    """Natural-log probability of `id` under softmax of logits [vocabulary]. Terms are float32, their sum is float64:
    within 1e-6 of float64 throughout, in a tenth of the time."""
    return float(logits[id]) - _log_sum(logits)


def likeliest(logits: Floats, count: int, vocabulary: int) -> list[tuple[int, float]]:
    """The `count` likeliest ids below `vocabulary` of logits [n], the likeliest first (ties: the lower id), each with
    its natural-log probability as `log_probability` gives it."""
    count = min(count, vocabulary)
    if count <= 0:
        return []
    wide = logits[:vocabulary]
    # All that may be among them, ties of the last one included: the order must not depend on how they are partitioned.
    least = np.partition(wide, len(wide) - count)[len(wide) - count]
    ids = np.flatnonzero(wide >= least)
    ids = ids[np.argsort(-wide[ids], kind="stable")][:count]
    total = _log_sum(logits)
    return [(int(id), float(wide[id]) - total) for id in ids]


def _log_sum(logits: Floats) -> float:
    """The natural logarithm of the sum of exp(logits)."""
    top = logits.max()
    return float(top) + float(np.log(np.exp(logits - top).sum(dtype=np.float64)))


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
        known = logits[: self._vocabulary]
        possible = self._possible(allowed, banned)
        scores = self._adjusted(known)
        temperature = self._sampling.temperature
        if temperature > 0 and scores is not known:
            finite = known > -np.inf
            finite = finite if possible is None else finite & possible
            possible = finite if finite.any() else possible
        if possible is not None:
            scores = np.where(possible, scores, -np.inf)
        if temperature <= 0:
            return int(np.argmax(scores))  # numpy returns the first, so ties go to the lowest id
        if not self._filters:
            return draw(scores, temperature, self._key, position)
        ids = np.flatnonzero(possible) if possible is not None else np.arange(len(scores))
        values = scores[ids].astype(np.float64)
        with np.errstate(over="ignore"):
            values = (values - values.max()) / temperature  # the best is 0 however small the temperature is
        kept = self._filter(values)
        return int(ids[kept[np.argmax(values[kept] + gumbel(self._key, position, ids[kept]))]])

    def _possible(self, allowed: Bools | None, banned: Collection[int]) -> Bools | None:
        """Which ids may be chosen: [vocabulary], not to be changed; None for all."""
        if allowed is None and not banned:
            return None
        if not banned and allowed is not None:
            return allowed[: self._vocabulary]
        possible = np.ones(self._vocabulary, dtype=np.bool_) if allowed is None else allowed[: self._vocabulary].copy()
        possible[[id for id in banned if id < self._vocabulary]] = False
        return possible

    @property
    def _filters(self) -> bool:
        sampling = self._sampling
        return sampling.top_k is not None or sampling.top_p is not None or sampling.min_p is not None

    def _adjusted(self, logits: Floats) -> Floats:
        """Scores: logits with bias and penalties, all of them finite whatever these are, so that a token that is
        allowed is always likelier than one that is not. The logits themselves where they are that already."""
        penalties = self._sampling.frequency_penalty or self._sampling.presence_penalty
        plain = not len(self._bias_ids) and not self._seen and not (penalties and self._counts)
        if plain and -np.inf < logits.min() and logits.max() < np.inf:
            return logits
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
        order = self._candidates(values)
        order = order[np.argsort(-values[order], kind="stable")]
        if sampling.top_k is not None and sampling.top_k > 0:
            order = order[: sampling.top_k]
        weights = np.exp(values[order])
        if sampling.top_p is not None and sampling.top_p < 1:
            before = np.cumsum(weights) - weights
            keep = before < sampling.top_p * (weights.sum() if sampling.top_k else _weight(values))
            keep[0] = True
            order, weights = order[keep], weights[keep]
        if sampling.min_p is not None:
            order = order[weights >= min(sampling.min_p, 1.0) * weights[0]]
        return np.sort(order)

    def _candidates(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Ascending places of `values` among which are all that `_filter` leaves, few enough to sort them."""
        sampling, size = self._sampling, len(values)
        if sampling.top_k is not None and sampling.top_k > 0:
            least = (
                np.partition(values, size - sampling.top_k)[size - sampling.top_k] if sampling.top_k < size else -np.inf
            )
            return np.flatnonzero(values >= least)
        if sampling.top_p is not None and sampling.top_p < 1:
            enough = sampling.top_p * _weight(values)
            for cut in _CUTS:
                places = np.flatnonzero(values >= cut)
                if np.exp(values[places]).sum() > enough * (1 + 1e-9):
                    return places
        elif sampling.min_p is not None and sampling.min_p > 0:
            return np.flatnonzero(values >= np.log(min(sampling.min_p, 1.0)) - 1e-9)
        return np.arange(size)


def _weight(values: NDArray[np.float64]) -> float:
    """The sum of exp(values), of float32 terms."""
    return float(np.exp(values.astype(np.float32)).sum(dtype=np.float64))


def check_ids(option: str, ids: Iterable[int], vocabulary: int) -> None:
    """Raises EngineError("sampling") where an option names a token that the vocabulary does not have."""
    bad = next((id for id in ids if not 0 <= id < vocabulary), None)
    if bad is not None:
        raise EngineError("sampling", f"`{option}` names token {bad}; this model's go from 0 to {vocabulary - 1}")


def _validate(sampling: Sampling, vocabulary: int) -> None:
    """Raises EngineError("sampling") for settings without a meaning."""
    if sampling.repetition_penalty <= 0:
        raise EngineError("sampling", "`repetition_penalty` must be positive")
    check_ids("logit_bias", (id for id, _ in sampling.logit_bias), vocabulary)

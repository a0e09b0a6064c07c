"""Scoring continuations of a context.

Every choice is encoded as it would be if it were written (together with text that is pending). The tokens that all
choices share are context; the rest are a choice's own, and a choice's score is made of their log-probabilities, the
first one included. The shared context is computed once; the choices run as branches of it in one step.

The methods are those of SGLang's `select` (Zheng et al. 2024): the mean token log-probability, a greedy walk from
token to token, the mean gain over the same tokens without the context, and the plain sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.radix import common_prefix
from sglspec_engine.reply import Cancelled, Reply
from sglspec_engine.sched.work import Prefill, Work
from sglspec_engine.types import EngineError, Method, Scores, Usage

Logprobs = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Choices:
    """What is scored: the shared context, every choice's own tokens, and what stands for no context at all (BOS,
    or nothing where the model has none)."""

    context: tuple[int, ...]
    own: tuple[tuple[int, ...], ...]
    start: tuple[int, ...]


def split_choices(encoded: Sequence[Sequence[int]], context: Sequence[int], start: Sequence[int]) -> Choices:
    """Find the tokens that all choices share.

    encoded: each choice's context with the choice. context: the tokens without any, which bound the shared part where
    the choices do not differ. Every choice keeps one token of its own at least, so a choice that is the beginning of
    another one is scored, too. Raises EngineError("unsupported") where nothing precedes a choice.
    """
    shared = shared_length(encoded, context)
    if shared < 1:
        raise EngineError("unsupported", "choices need a context to be scored in, and this one is empty")
    return Choices(tuple(encoded[0][:shared]), tuple(tuple(ids[shared:]) for ids in encoded), tuple(start))


def shared_length(encoded: Sequence[Sequence[int]], context: Sequence[int]) -> int:
    """How many leading tokens are context; see `split_choices`. Negative or 0 where none are left."""
    first = encoded[0]
    shared = min(common_prefix(first, other) for other in encoded)
    if all(len(other) == shared for other in encoded):
        shared = min(shared, common_prefix(first, context))
    return min(shared, min(len(ids) for ids in encoded) - 1)


class Scoring:
    """One request to score choices; the works it makes report here.

    `settled` is called once, before the outcome is sent, with the usage.
    """

    def __init__(
        self, choices: Choices, method: Method, lease: Lease, reply: Reply[Scores], settled: Callable[[Usage], None]
    ) -> None:
        self._choices = choices
        self._method: Method = method
        self._lease = lease
        self._reply = reply
        self._settled = settled
        self._found: dict[tuple[bool, int], Logprobs] = {}
        self._branches: list[Branch] = []
        self.closed = False
        self._bare: list[Branch] = []
        self.context = Prefill(lease, choices.context, self._fan_out, self.fail)

    def works(self) -> list[Work]:
        """What is to be computed first."""
        if self._method == "unconditional":
            self._bare = [
                Branch(self, True, i, Lease(self._lease.pool), self._choices.start, own)
                for i, own in enumerate(self._choices.own)
            ]
        return [self.context, *(branch for branch in self._bare if branch.needs_model)]

    def report(self, bare: bool, index: int, logprobs: Logprobs) -> None:
        """A branch's result. The last one ends the request."""
        self._found[(bare, index)] = logprobs
        expected = len(self._choices.own) * (2 if self._method == "unconditional" else 1)
        if len(self._found) == expected and not self.closed:
            usage = self._close()
            self._reply.finish(self._scores(usage))

    def fail(self, error: BaseException) -> None:
        """End with an error; branches end with it."""
        if not self.closed:
            self._close()
            self._reply.fail(error)

    def cancel(self) -> None:
        """End because the caller left. Idempotent."""
        self.fail(Cancelled())

    def _fan_out(self, context: Prefill) -> list[Work]:
        """The context is computed: one branch per choice. Those of one token need no computing of their own."""
        logits = self._lease.logits
        assert logits is not None
        first = torch.log_softmax(logits, dim=-1)
        works: list[Work] = []
        for index, own in enumerate(self._choices.own):
            opening = float(first[own[0]])
            if len(own) == 1:
                self.report(False, index, (opening,))
                continue
            branch = Branch(self, False, index, self._lease.fork(), self._choices.context, own, opening)
            self._branches.append(branch)
            works.append(branch)
        return works

    def _close(self) -> Usage:
        self.closed = True
        self.context.closed = True
        branches = [*self._branches, *self._bare]
        for branch in branches:
            branch.closed = True
            branch.lease.release()
        computed = self.context.computed + sum(branch.computed for branch in branches)
        usage = Usage(len(self._choices.context), computed, self.context.reused)
        self._settled(usage)
        return usage

    def _scores(self, usage: Usage) -> Scores:
        own = [self._found[(False, i)] for i in range(len(self._choices.own))]
        bare = [self._found[(True, i)] for i in range(len(own))] if self._method == "unconditional" else None
        scores = combine(self._method, self._choices.own, own, bare)
        best = max(range(len(scores)), key=lambda i: (scores[i], -i))
        tokens = tuple(tuple(zip(ids, p, strict=True)) for ids, p in zip(self._choices.own, own, strict=True))
        return Scores(best, tuple(scores), tuple(_softmax(scores)), tokens, usage)


class Branch(Work):
    """A choice's own tokens after a context.

    bare: whether the context is the empty one. opening: the first token's log-probability where it is known; without
    a context to predict it from, a first token counts nothing.
    """

    def __init__(
        self,
        scoring: Scoring,
        bare: bool,
        index: int,
        lease: Lease,
        context: Sequence[int],
        own: Sequence[int],
        opening: float | None = None,
    ) -> None:
        known = [*context, *own[:-1]]
        if opening is None and not context:
            opening = 0.0
        super().__init__(lease, known, len(context) - (opening is None))
        self._scoring = scoring
        self._bare = bare
        self._index = index
        self._logprobs: list[float] = [] if opening is None else [opening]
        self._own = tuple(own)
        if not self.needs_model:
            scoring.report(bare, index, tuple(self._logprobs))

    @property
    def needs_model(self) -> bool:
        """Whether any token's log-probability is not known yet."""
        return len(self._logprobs) < len(self._own)

    def take(self, logits: Tensor) -> list[Work]:
        """See `Work`."""
        at = len(self._logprobs)
        targets = torch.tensor(self._own[at : at + len(logits)])
        found = torch.log_softmax(logits, dim=-1).gather(1, targets[:, None])[:, 0]
        self._logprobs += [float(value) for value in found]
        self.wanted_from += len(logits)
        if self.needs_model:
            return [self]
        self._scoring.report(self._bare, self._index, tuple(self._logprobs))
        return []

    def fail(self, error: BaseException) -> None:
        """See `Work`; the whole request fails."""
        self._scoring.fail(error)

    def cancel(self) -> None:
        """See `Work`; the whole request is cancelled."""
        self._scoring.cancel()


def combine(
    method: Method, own: Sequence[Sequence[int]], logprobs: Sequence[Logprobs], bare: Sequence[Logprobs] | None
) -> list[float]:
    """Scores by method; higher is better. own: the choices' tokens; logprobs: theirs; bare: without the context."""
    if method == "sum":
        return [math.fsum(p) for p in logprobs]
    if method == "length_normalized":
        return [_mean(p) for p in logprobs]
    if method == "unconditional":
        assert bare is not None
        return [_mean([a - b for a, b in zip(p, q, strict=True)]) for p, q in zip(logprobs, bare, strict=True)]
    return _greedy(own, logprobs)


def _greedy(own: Sequence[Sequence[int]], logprobs: Sequence[Logprobs]) -> list[float]:
    """Walk along the tokens and keep the choices with the likeliest next one.

    A choice that has ended goes on with its mean log-probability. A score is the number of tokens a choice kept up
    with, plus the probability of the token it lost by, so that the order of the scores is the order of the walk.
    """
    live = list(range(len(own)))
    scores = [0.0] * len(own)
    for depth in range(max(len(ids) for ids in own)):
        values = {i: logprobs[i][depth] if depth < len(own[i]) else _mean(logprobs[i]) for i in live}
        top = max(values.values())
        for i in live:
            scores[i] = depth + 1.0 if values[i] == top else depth + min(math.exp(values[i]), 1 - 1e-9)
        live = [i for i in live if values[i] == top]
        if len(live) == 1:
            scores[live[0]] = depth + 1.0
            break
    return scores


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _softmax(scores: Sequence[float]) -> list[float]:
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]

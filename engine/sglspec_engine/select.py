"""Scoring continuations of a context.

Every choice is encoded as it would be if it were written (together with text that is pending). The tokens that the
context keeps whichever choice follows are the context of all; what comes after them is a choice's own, and a choice's
score is made of the log-probabilities of its own tokens, the first one included. So where choices melt with the end of
the context, that end is scored with all of them alike. Context and choices are computed in one step where they fit
(`sched.trie`).

The methods are those of SGLang's `select` (Zheng et al. 2024): the mean token log-probability, a greedy walk from
token to token, the mean gain over the same tokens without the context, and the plain sum.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.radix import common_prefix
from sglspec_engine.reply import Cancelled, Reply
from sglspec_engine.sched.trie import TrieWork
from sglspec_engine.sched.work import Work
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
    """Find where the choices begin.

    encoded: each choice's context with the choice. context: the tokens without any. Every choice keeps one token of
    its own at least. Raises EngineError("unsupported") where nothing precedes a choice.
    """
    shared = shared_length(encoded, context)
    if shared < 1:
        raise EngineError("unsupported", "choices need a context to be scored in, and this one is empty")
    return Choices(tuple(encoded[0][:shared]), tuple(tuple(ids[shared:]) for ids in encoded), tuple(start))


def shared_length(encoded: Sequence[Sequence[int]], context: Sequence[int]) -> int:
    """How many of the context's tokens stay whichever choice follows; see `split_choices`."""
    return min(min(common_prefix(context, ids), len(ids) - 1) for ids in encoded)


def asked(choices: Choices, method: Method) -> list[tuple[int, ...]]:
    """What is put before the model to score choices; nothing is asked of what would follow their last tokens."""
    found = [choices.context, *((*choices.context, *own[:-1]) for own in choices.own)]
    if method == "unconditional":
        found += [(*choices.start, *own[:-1]) for own in choices.own]
    return found


class Alone:
    """What was found for choices that stand alone (`unconditional`). It depends on nothing else, so that it is kept."""

    def __init__(self, most: int = 256) -> None:
        """most: sets of choices that are kept."""
        self._most = most
        self._found: OrderedDict[Choices, list[Logprobs]] = OrderedDict()

    def get(self, choices: Choices) -> list[Logprobs] | None:
        """The log-probabilities of the choices' tokens where they are known."""
        return self._found.get(replace(choices, context=()))

    def put(self, choices: Choices, logprobs: list[Logprobs]) -> None:
        """Keep log-probabilities."""
        self._found[replace(choices, context=())] = logprobs
        if len(self._found) > self._most:
            self._found.popitem(last=False)


class Scoring:
    """One request to score choices; the works it makes report here.

    `settled` is called once, before the outcome is sent, with the usage.
    """

    def __init__(
        self,
        choices: Choices,
        method: Method,
        lease: Lease,
        reply: Reply[Scores],
        settled: Callable[[Usage], None],
        alone: Alone,
    ) -> None:
        self._alone = alone
        self._choices = choices
        self._method: Method = method
        self._lease = lease
        self._reply = reply
        self._settled = settled
        self._main = TrieWork(lease, choices.context, choices.own, self._report, self.fail)
        self._bare: TrieWork | None = None
        self._bare_logprobs: list[Logprobs] | None = None
        self._left = 0
        self.closed = False

    def works(self) -> list[Work]:
        """What is to be computed."""
        works: list[Work] = [self._main]
        if self._method == "unconditional":
            self._bare_logprobs = self._alone.get(self._choices)
        if self._method == "unconditional" and self._bare_logprobs is None:
            own = Lease(self._lease.pool)
            self._bare = TrieWork(own, self._choices.start, self._choices.own, self._report, self.fail)
            works.insert(0, self._bare)
        self._left = len(works)
        return works

    def fail(self, error: BaseException) -> None:
        """End with an error; what is being computed ends with it."""
        if not self.closed:
            self._close(None)
            self._reply.fail(error)

    def cancel(self) -> None:
        """End because the caller left. Idempotent."""
        self.fail(Cancelled())

    def _report(self, work: TrieWork) -> None:
        """A work has all log-probabilities. The last one ends the request."""
        self._left -= 1
        if self._left:
            work.keep(None)
            return
        own = self._main.logprobs
        if self._bare is not None:
            self._bare_logprobs = self._bare.logprobs
            self._alone.put(self._choices, self._bare_logprobs)
        scores = combine(self._method, self._choices.own, own, self._bare_logprobs)
        best = max(range(len(scores)), key=lambda i: (scores[i], -i))
        usage = self._close(best)
        tokens = tuple(tuple(zip(ids, p, strict=True)) for ids, p in zip(self._choices.own, own, strict=True))
        self._reply.finish(Scores(best, tuple(scores), tuple(_softmax(scores)), tokens, usage))

    def _close(self, best: int | None) -> Usage:
        """End the works. Of the choices, the best one's keys and values stay with the context."""
        self.closed = True
        self._main.closed = True
        self._main.keep(best)
        computed = self._main.computed
        if self._bare is not None:
            self._bare.closed = True
            self._bare.keep(None)
            self._bare.lease.release()
            computed += self._bare.computed
        usage = Usage(len(self._choices.context), computed, self._main.reused)
        self._settled(usage)
        return usage


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

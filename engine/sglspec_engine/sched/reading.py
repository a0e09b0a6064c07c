"""Reading a context: what the model expected at each of its places."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sglspec_engine.kv.lease import Lease
from sglspec_engine.reply import Cancelled, Reply
from sglspec_engine.sample import likeliest
from sglspec_engine.sched.work import Work
from sglspec_engine.types import Alternative, Place, Reading, Usage

Describe = Callable[[int, float], Alternative]


class ReadWork(Work):
    """Compute a context and look up, from its token `start` on, how likely each token was. The last place is behind the
    context. `settled` is called once, before the outcome is sent, with the usage; not where it fails.

    top: how many of the likeliest tokens to report at each place; watched: ids whose log-probabilities are wanted
    there; vocabulary: ids at and above it are padding.
    """

    def __init__(
        self,
        lease: Lease,
        known: Sequence[int],
        start: int,
        top: int,
        watched: Sequence[int],
        vocabulary: int,
        describe: Describe,
        reply: Reply[Reading],
        settled: Callable[[Usage], None],
    ) -> None:
        super().__init__(lease, known, start - 1)
        self._top = top
        self._watched = list(watched)
        self._vocabulary = vocabulary
        self._describe = describe
        self._reply = reply
        self._settled = settled
        self._places: list[Place] = []

    def take(self, logits: Tensor) -> list[Work]:
        """See `Work`."""
        totals = torch.logsumexp(logits.double(), dim=-1)
        for row, total in zip(logits, totals, strict=True):
            self.wanted_from += 1
            self._places.append(self._read(row, float(total), self.wanted_from))
        if self.wanted_from < len(self.known):
            return [self]
        self.closed = True
        usage = Usage(len(self.known), self.computed, self.reused)
        self._settled(usage)
        self._reply.finish(Reading(tuple(self._places), usage))
        return []

    def fail(self, error: BaseException) -> None:
        """See `Work`."""
        if not self.closed:
            self.closed = True
            self._reply.fail(error)

    def cancel(self) -> None:
        """See `Work`."""
        self.fail(Cancelled())

    def _read(self, row: Tensor, total: float, at: int) -> Place:
        """What logits [vocabulary] say of the token at `at`. total: their log-sum-exp."""

        def found(id: int) -> Alternative:
            return self._describe(id, float(row[id]) - total)

        top = likeliest(row.numpy(), self._top, self._vocabulary)
        return Place(
            found(self.known[at]) if at < len(self.known) else None,
            tuple(self._describe(id, logprob) for id, logprob in top),
            tuple(found(id) for id in self._watched),
        )

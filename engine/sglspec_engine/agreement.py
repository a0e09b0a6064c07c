"""How far a context of joined keys and values is from an exact one: the Kullback-Leibler divergence of what each
expects as the next token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sglspec_engine.kv.lease import Lease
from sglspec_engine.reply import Cancelled, Reply
from sglspec_engine.sched.work import Prefill, Work
from sglspec_engine.types import Usage


class Agreement:
    """One measurement. Neither the joined lease nor what others find changes: it works on a fork of that and on a new
    lease, which it lets go of. `settled` is called once, before the outcome is sent, with the usage."""

    def __init__(
        self, joined: Lease, ids: Sequence[int], reply: Reply[float], settled: Callable[[Usage], None]
    ) -> None:
        self._joined = joined
        self._ids = ids
        self._reply = reply
        self._settled = settled
        self._works: list[Prefill] = []
        self._found: dict[Work, Tensor] = {}
        self.closed = False

    def works(self) -> list[Prefill]:
        """What is to be computed. On the engine's thread."""
        leases = self._joined.fork(), Lease(self._joined.pool)
        self._works = [Prefill(lease, self._ids, self._done, self.fail) for lease in leases]
        return self._works

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        if not self.closed:
            self._close()
            self._reply.fail(error)

    def cancel(self) -> None:
        """End because the caller left. Idempotent."""
        self.fail(Cancelled())

    def _done(self, work: Prefill) -> list[Work]:
        logits = work.lease.logits
        assert logits is not None
        self._found[work] = logits[-1]
        if len(self._found) == 2 and not self.closed:
            self._close()
            joined, exact = (self._found[work] for work in self._works)
            self._reply.finish(divergence(exact, joined))
        return []

    def _close(self) -> None:
        self.closed = True
        for work in self._works:
            work.closed = True
            work.lease.release()
        self._settled(Usage(0, sum(work.computed for work in self._works)))


def divergence(exact: Tensor, other: Tensor) -> float:
    """KL(exact ‖ other) in nats, of two rows of logits."""
    p, q = torch.log_softmax(exact.double(), dim=-1), torch.log_softmax(other.double(), dim=-1)
    return max(0.0, float((p.exp() * (p - q)).sum()))

"""What the step loop works on: a lease, tokens it is to hold, and what is to happen with the logits.

A prefill chunk, a decoded token, forced tokens and a choice to score differ in nothing else; there are no phases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from sglspec_engine.attention.base import Tree
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.radix import common_prefix
from sglspec_engine.reply import Cancelled


class Work:
    """One sequence to compute.

    lease: where keys and values go. known: all tokens the context is to hold, computed or not. wanted_from: logits
    are wanted at this position of `known` and after it; the lease never reaches beyond it unless it keeps the logits
    of the last token. computed: tokens that went through the model for this work, those twice that it had to compute
    again. reused: tokens that it found computed. arrival: its place in the queue. found: how many of its tokens are
    computed, as far as a waiting work was looked up. overtaken: later ones that were let in before it. deferred:
    whether it ever waited for another one. preempted: how often it lost its memory and began again.
    """

    def __init__(self, lease: Lease, known: Sequence[int], wanted_from: int) -> None:
        self.lease = lease
        self.known = list(known)
        self.wanted_from = wanted_from
        self.computed = 0
        self.reused = 0
        self.closed = False
        self.arrival = 0
        self.found = 0
        self.overtaken = 0
        self.deferred = False
        self.preempted = 0
        self._reached = 0

    def align(self) -> None:
        """Cut the lease to what it shares with `known`, and so that every wanted position is computed or known; then
        take what others have computed of the rest."""
        shared = common_prefix(self.lease.ids, self.known)
        if shared < self.lease.length:
            self.lease.truncate(shared)
        have = self.lease.length
        ready = self.cached is not None and have == self.wanted_from + 1 == len(self.known)
        if have > self.wanted_from and not ready:
            self.lease.truncate(self.wanted_from)
        if not ready:
            self.lease.adopt(self.known[: self.wanted_from])

    def begin(self) -> None:
        """Note that the work is let in, aligned."""
        self.reused += max(0, self.lease.length - self._reached)
        self._reached = max(self._reached, self.lease.length)

    def advance(self, ids: Sequence[int]) -> None:
        """Count tokens that the model has computed for this work. Those before the first wanted position are published
        when that is reached: from then on others may go on from there."""
        before = self.lease.length <= self.wanted_from
        self.lease.append(ids)
        self._count(len(ids))
        if before and self.lease.length > self.wanted_from:
            self.lease.publish()

    def _count(self, tokens: int) -> None:
        self.computed += tokens
        self._reached = max(self._reached, self.lease.length)

    @property
    def bound(self) -> int:
        """Tokens that the lease may reach."""
        return len(self.known)

    @property
    def cached(self) -> Tensor | None:
        """Logits [vocabulary] after the last computed token, where the lease knows them."""
        return self.lease.logits

    @property
    def todo(self) -> int:
        """Tokens left to compute."""
        return len(self.known) - self.lease.length

    def tree(self, count: int) -> Tree | None:
        """How the next `count` tokens depend on each other, None where each follows the one before."""
        return None

    def take(self, logits: Tensor) -> list[Work]:
        """Consume logits [n, vocabulary] of the next wanted positions, in order. Returns the works that go on:
        itself, others, or none."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """End with an error. Idempotent."""
        raise NotImplementedError

    def cancel(self) -> None:
        """End because the caller left. Idempotent."""
        raise NotImplementedError


class Prefill(Work):
    """Compute a context, then call `done` with this work; it returns works that go on. Without `logits` the last
    token's need not be known."""

    def __init__(
        self,
        lease: Lease,
        known: Sequence[int],
        done: Callable[[Prefill], list[Work]],
        failed: Callable[[BaseException], None],
        *,
        logits: bool = True,
    ) -> None:
        super().__init__(lease, known, len(known) - logits)
        self._done = done
        self._failed = failed

    def take(self, logits: Tensor) -> list[Work]:
        """See `Work`. The logits stay with the lease, so nothing is left to do with them here."""
        self.closed = True
        return self._done(self)

    def fail(self, error: BaseException) -> None:
        """See `Work`."""
        if not self.closed:
            self.closed = True
            self._failed(error)

    def cancel(self) -> None:
        """See `Work`."""
        self.fail(Cancelled())

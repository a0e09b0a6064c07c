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
        self._asked = wanted_from + 1
        # _asked: tokens of the prompt, as far as others may have computed them.

    def align(self) -> None:
        """Cut the lease to what it shares with `known`, and so that every wanted position is computed or known; then
        take what others have computed of the rest."""
        shared = common_prefix(self.lease.ids, self.known)
        if shared < self.lease.length:
            self.lease.truncate(shared)
        have = self.lease.length
        cached = 0 if self.cached is None else len(self.cached)
        ready = have == len(self.known) and 0 < have - self.wanted_from <= cached
        if have > self.wanted_from and not ready:
            self.lease.truncate(self.wanted_from)
        if not ready:
            self.lease.adopt(self.known[: self.wanted_from])

    def begin(self) -> None:
        """Note that the work is let in, aligned."""
        self.reused += max(0, self.lease.length - self._reached)
        self._reached = max(self._reached, self.lease.length)

    @property
    def prefilling(self) -> bool:
        """Whether the prompt is not computed as far as others may need it."""
        return self.lease.length < self._asked

    @property
    def in_line(self) -> int:
        """How many of the tokens that are next each follow the one before: those may be computed in another's row."""
        return self.todo

    def advance(self, ids: Sequence[int], shared: int = 0) -> None:
        """Count tokens that the model has computed, all but the first `shared` of them for this work. Those before the
        first wanted position are published when that is reached: from then on others may go on from there."""
        before = self.lease.length <= self.wanted_from
        self._join(shared)
        self.lease.append(ids, shared)
        self._count(len(ids) - shared)
        if before and self.lease.length > self.wanted_from:
            self.lease.publish()

    def _join(self, shared: int) -> None:
        """Note that the next tokens are those of another work."""
        self.reused += max(0, min(shared, self._asked - self.lease.length))

    def _count(self, tokens: int) -> None:
        self.computed += tokens
        self._reached = max(self._reached, self.lease.length)

    @property
    def bound(self) -> int:
        """Tokens that the lease may reach."""
        return len(self.known)

    @property
    def cached(self) -> Tensor | None:
        """Logits [n, vocabulary] after the last n computed tokens, where the lease knows them."""
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
    """Compute a context, then call `done` with this work; it returns works that go on. logits: tokens at its end whose
    logits are to be known then."""

    def __init__(
        self,
        lease: Lease,
        known: Sequence[int],
        done: Callable[[Prefill], list[Work]],
        failed: Callable[[BaseException], None],
        *,
        logits: int = 1,
    ) -> None:
        super().__init__(lease, known, len(known) - logits)
        self._done = done
        self._failed = failed

    def take(self, logits: Tensor) -> list[Work]:
        """See `Work`. The logits stay with the lease, so nothing is left to do with them here."""
        if self.todo:  # a step had no room for all
            self.wanted_from = self.lease.length
            return [self]
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

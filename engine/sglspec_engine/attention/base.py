"""What an attention implementation is given and must do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from sglspec_engine.kv.lease import Lease


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """How a row's tokens depend on each other where they do not simply follow one another. All on the CPU.

    positions: theirs [n]. reach: how many of the lease's tokens each one follows [n]. seen: which tokens of the row
    each one sees, itself included (bool [n, n]).
    """

    positions: Tensor
    reach: Tensor
    seen: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class AttentionRow:
    """Tokens `start` to `start + count` of the packed input continue `lease`, whose length is their first position.
    With a `tree` they continue it in several ways at once.

    With `after`, a row before this one, they follow the first `shared` tokens that are new with that one. Both leases
    are the same then, and this one has no tail.
    """

    lease: Lease
    start: int
    count: int
    tree: Tree | None = None
    after: AttentionRow | None = None
    shared: int = 0

    @property
    def length(self) -> int:
        """Tokens before the row's own: the first one's position."""
        return self.lease.length + self.shared

    def new(self, count: int) -> list[tuple[int, int]]:
        """(first slot, tokens) of the first `count` tokens that are new with this row or with those that it follows, in
        order."""
        tail = self.lease.tail
        assert tail is not None
        assert self.lease.tail_length + self.count <= tail.length, "a row is longer than what was reserved for it"
        found = self.after.new(min(count, self.shared)) if self.after is not None else []
        own = count - self.shared
        return [*found, (tail.start + self.lease.tail_length, own)] if own > 0 else found

    def spans(self) -> list[tuple[int, int]]:
        """(first slot, tokens) of all that the row's last token sees, itself included, in order."""
        if self.after is None:
            return self.lease.spans(self.count)
        return [*self.lease.spans(0), *self.new(self.shared + self.count)]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """The rows of one step, in packed order."""

    rows: tuple[AttentionRow, ...]


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """How one layer attends.

    scaling: factor on the dot products. window: tokens a query sees, itself included, None for all. softcap: scores
    become softcap * tanh(score / softcap). sinks: a logit per query head [heads] that takes part in the softmax and
    carries no value.
    """

    scaling: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


class Attention(Protocol):
    """One way to compute attention over leases."""

    def run(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, options: AttentionOptions
    ) -> Tensor:
        """Write keys [kv heads, T, key_dim] and values [kv heads, T, value_dim] to the rows' leases, then attend with
        query [heads, T, key_dim], causally within each lease or as a row's tree says. Returns [T, heads, value_dim] in
        query's dtype."""
        ...

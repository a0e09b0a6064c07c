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


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """Tokens `start` to `start + count` of the packed input continue `lease`, whose length is their first position.
    With a `tree` they continue it in several ways at once."""

    lease: Lease
    start: int
    count: int
    tree: Tree | None = None


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

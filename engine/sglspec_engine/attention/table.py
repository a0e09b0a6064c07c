"""Which slots the rows of a step read and write, as tensors: made once per step, shared by its layers.

Kernels that take an index of pages, and those that take gathered keys, need the same lists. They are put together on
the CPU, because a lease knows its spans there, and go to the model's device in one copy each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sglspec_engine.attention.base import AttentionPlan, AttentionRow
from sglspec_engine.kv.arena import Arena

_Slots = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """All that the rows read, row after row.

    slots: [total] int64, on the device. queries, keys: where each row begins and the last one ends, in the packed
    tokens and in `slots` [rows + 1] (int32, CPU). most_queries, most_keys: the longest row's.
    """

    slots: Tensor
    queries: Tensor
    keys: Tensor
    most_queries: int
    most_keys: int


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows with the same number of tokens and about as much to read.

    tokens: their packed indices [rows * count]. slots: what each reads [rows, longest]; shorter ones repeat their last
    slot, which `mask` hides. mask: what each query sees, bool [rows, count, longest], None for all. On the device.
    """

    count: int
    tokens: Tensor
    slots: Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class _Reader:
    """Packed tokens `start` to `start + count`, one after the other, and what the last of them sees, in order."""

    start: int
    count: int
    slots: _Slots


class Table:
    """The slots of one plan. Leases must not change while it is used. Below, a row of a tree is several rows: its
    chains of tokens, each with all that they follow.

    What a window hides from all of a row's queries is not listed, so what is listed ends with the row's own tokens but
    need not begin with the context's first.
    """

    def __init__(self, plan: AttentionPlan, device: torch.device) -> None:
        self.plan = plan
        self._device = device
        self._readers = [reader for row in plan.rows for reader in _readers(row)]
        self._written = self._tensor(np.concatenate([_row_slots(row)[-row.count :] for row in plan.rows]))
        self._packed: dict[int | None, Packed] = {}
        self._batches: dict[int | None, list[Batch]] = {}

    @property
    def arena(self) -> Arena:
        """Where the slots are."""
        return self.plan.rows[0].lease.pool.arena

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Write keys [kv heads, T, key_dim] and values [kv heads, T, value_dim] of the packed tokens."""
        self.arena.keys[layer].index_copy_(1, self._written, keys)
        self.arena.values[layer].index_copy_(1, self._written, values)

    def packed(self, window: int | None) -> Packed:
        """See `Packed`."""
        if window not in self._packed:
            read = self._visible(window)
            counts = [reader.count for reader in self._readers]
            lengths = [len(slots) for slots in read]
            slots = self._tensor(np.concatenate(read))
            self._packed[window] = Packed(slots, _ends(counts), _ends(lengths), max(counts), max(lengths))
        return self._packed[window]

    def batches(self, window: int | None) -> list[Batch]:
        """Every row in one batch. At most half of what a batch lists is padding."""
        if window not in self._batches:
            read = self._visible(window)
            alike: dict[tuple[int, int], list[int]] = {}
            for i, reader in enumerate(self._readers):
                alike.setdefault((reader.count, len(read[i]).bit_length()), []).append(i)
            self._batches[window] = [self._batch(rows, read, window) for rows in alike.values()]
        return self._batches[window]

    def _visible(self, window: int | None) -> list[_Slots]:
        if window is None:
            return [reader.slots for reader in self._readers]
        return [reader.slots[-(window + reader.count - 1) :] for reader in self._readers]

    def _batch(self, rows: Sequence[int], read: Sequence[_Slots], window: int | None) -> Batch:
        count = self._readers[rows[0]].count
        lengths = np.array([len(read[i]) for i in rows])
        slots = np.stack([np.pad(read[i], (0, int(lengths.max()) - len(read[i])), mode="edge") for i in rows])
        starts = np.array([self._readers[i].start for i in rows])
        tokens = (starts[:, None] + np.arange(count)).reshape(-1)
        mask = None
        if count > 1 or lengths.min() < lengths.max():
            # Places in the list, not in the context: the difference is the same for a row's queries and keys.
            at = self._tensor(lengths)[:, None, None] - count + torch.arange(count, device=self._device)[:, None]
            key = torch.arange(slots.shape[1], device=self._device)
            mask = key <= at if window is None else (key <= at) & (key > at - window)
        return Batch(count, self._tensor(tokens), self._tensor(slots), mask)

    def _tensor(self, values: _Slots) -> Tensor:
        return torch.as_tensor(values).to(self._device)


class Tables:
    """Remembers the table of the plan that was asked for last: a step's layers ask one after the other."""

    def __init__(self) -> None:
        self._last: Table | None = None

    def get(self, plan: AttentionPlan, device: torch.device) -> Table:
        """The plan's table."""
        if self._last is None or self._last.plan is not plan:
            self._last = Table(plan, device)
        return self._last


def gather(store: Tensor, slots: Tensor) -> Tensor:
    """Keys or values of `slots` [n], copied from one layer's `store` [kv heads, slots, dim]: [n, kv heads, dim]."""
    return store.transpose(0, 1).index_select(0, slots)


def _readers(row: AttentionRow) -> list[_Reader]:
    """A row, or the chains of its tree."""
    slots, tree = _row_slots(row), row.tree
    if tree is None:
        return [_Reader(row.start, row.count, slots)]
    seen, reach = tree.seen.numpy(), tree.reach.numpy()
    starts = [i for i in range(row.count) if not i or not seen[i, i - 1]]
    old, new = slots[: -row.count], slots[-row.count :]
    return [
        _Reader(row.start + start, end - start, np.concatenate([old[: reach[start]], new[seen[end - 1]]]))
        for start, end in pairwise([*starts, row.count])
    ]


def _row_slots(row: AttentionRow) -> _Slots:
    """The slots of a row's context and of its new tokens, in order."""
    return np.concatenate([np.arange(first, first + n) for first, n in row.spans()])


def _ends(lengths: Sequence[int]) -> Tensor:
    return torch.tensor(list(accumulate(lengths, initial=0)), dtype=torch.int32)

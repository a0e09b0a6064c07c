"""Which queries attend to which slots: a step's rows as a list of segments, each a run of slots and all who read it.

A node of the radix tree is read once for all rows below it, whatever their number. Nodes that lie next to each other
and have the same readers are one segment, and so is a row's tail with what precedes it. Every query's segments
together hold what it sees, each token once; what they give is merged by their log-sum-exps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from sglspec_engine.attention.base import AttentionPlan, AttentionRow, Tree
from sglspec_engine.kv.radix import Node

_SHORT = 128
"""Slots up to which a run that one query alone reads is gathered with others like it: a call costs more than a copy."""
_FEW = 3
"""Runs from which gathering pays."""
_BRIEF = 8
"""Tokens up to which a row is gathered with others: forced tokens of many texts are rows of some tokens each."""


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """What n queries see of a segment's slots, bool [n, length], and the positions of what those hold [length]."""

    seen: Tensor
    positions: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Slots `first` to `first + length`, which hold the tokens from `position` on.

    queries: the readers, as indices into the packed input. at: their positions [n]. causal: the slots are the
    readers' own tokens, so each sees those up to itself; otherwise all precede all readers, unless a `mask` says what
    each one sees. part: where the result goes; no query has two segments with the same part.
    """

    first: int
    length: int
    position: int
    queries: slice | Tensor
    at: Tensor
    causal: bool
    part: int
    mask: Mask | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """What n rows alone read, in short runs: slots [n, longest] and the positions of what they hold [n, longest]
    (beyond a row's own end they repeat its last slot, with positions after all its queries), the queries (q in all),
    and the positions of each row's queries [n, most]; where a row has fewer, its last one stands again. padding: 0 for
    what a query sees and minus infinity beyond, float32 [n, most, longest]; None where all see all. spread [n * most]:
    which query stands at each of those places; back [q]: the place of each query; None where rows have one each."""

    slots: Tensor
    positions: Tensor
    padding: Tensor | None
    queries: slice | Tensor
    at: Tensor
    part: int
    spread: Tensor | None = None
    back: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Cascade:
    """slots: where each packed token's keys and values go [T]. parts: results that a query has at most."""

    slots: Tensor
    segments: tuple[Segment, ...]
    gathered: Gathered | None
    parts: int


@dataclass(slots=True, eq=False)
class _Run:
    """Slots in a row with the rows that read them, in packed order; `causal` as in `Segment`. tree: that of the only
    reader, whose own tokens these are."""

    first: int
    length: int
    position: int
    rows: list[int]
    causal: bool = False
    tree: Tree | None = None


def cascade(plan: AttentionPlan, device: torch.device) -> Cascade:
    """The segments of a plan. Leases must not change between this and the attention."""
    runs = _shared_runs(plan.rows)
    _add_led(runs, plan.rows)
    for index, row in enumerate(plan.rows):
        _add_tail(runs, index, row)
    lone = [len(run.rows) == 1 and run.length <= _SHORT and _brief(plan.rows[run.rows[0]]) for run in runs]
    gathering = sum(lone) >= _FEW
    parts = [0] * len(plan.rows)
    segments: list[Segment] = []
    gather: dict[int, list[_Run]] = {}
    for run, alone in zip(runs, lone, strict=True):
        if gathering and alone:
            gather.setdefault(run.rows[0], []).append(run)
        else:
            part = _next_part(parts, run.rows)
            readers = [plan.rows[i] for i in run.rows]
            queries, at = _queries(readers, device)
            mask = _mask(run, readers, device)
            segments.append(Segment(run.first, run.length, run.position, queries, at, run.causal, part, mask))
    gathered = None
    if gather:
        gathered = _gathered(dict(sorted(gather.items())), plan.rows, _next_part(parts, list(gather)), device)
    return Cascade(_new_slots(plan.rows, device), tuple(segments), gathered, max(parts))


def _shared_runs(rows: Sequence[AttentionRow]) -> list[_Run]:
    """The nodes of all paths, joined where they touch and have the same readers. Parents come before children."""
    readers: dict[Node, list[int]] = {}
    for index, row in enumerate(rows):
        for node in row.lease.node.path():
            readers.setdefault(node, []).append(index)
    found: dict[Node, _Run] = {}
    runs: list[_Run] = []
    for node, who in readers.items():
        assert node.span is not None
        above = found.get(node.parent) if node.parent is not None else None
        if above is not None and above.rows == who and above.first + above.length == node.span.start:
            above.length += node.span.length
            found[node] = above
            continue
        found[node] = _Run(node.span.start, node.span.length, node.start, who)
        runs.append(found[node])
    return runs


def _add_led(runs: list[_Run], rows: Sequence[AttentionRow]) -> None:
    """Add what rows see of the new tokens of others, once for all that see the same of the same row."""
    readers: dict[tuple[AttentionRow, int], list[int]] = {}
    for index, row in enumerate(rows):
        if row.after is not None:
            readers.setdefault((row.after, row.shared), []).append(index)
    for (leader, shared), who in readers.items():
        position = leader.lease.length
        for first, length in leader.new(shared):
            runs.append(_Run(first, length, position, who))
            position += length


def _add_tail(runs: list[_Run], index: int, row: AttentionRow) -> None:
    """Add a row's tail and its new tokens. A single new token is the last of what it sees; several see each other
    causally or as a tree, so they are a run of their own."""
    tail = row.lease.tail
    assert tail is not None
    old = row.lease.tail_length
    seen = old + (1 if _single(row) else 0)
    if seen:
        before = next((r for r in reversed(runs) if index in r.rows), None)
        if before is not None and before.rows == [index] and before.first + before.length == tail.start:
            before.length += seen
        else:
            runs.append(_Run(tail.start, seen, row.length - old, [index]))
    if not _single(row):
        runs.append(_Run(tail.start + old, row.count, row.length, [index], row.tree is None, row.tree))


def _single(row: AttentionRow) -> bool:
    """Whether the row is one token that follows its lease."""
    return row.count == 1 and row.tree is None


def _brief(row: AttentionRow) -> bool:
    """Whether the row is a few tokens that follow its lease, one after the other."""
    return row.count <= _BRIEF and row.tree is None


def _mask(run: _Run, rows: Sequence[AttentionRow], device: torch.device) -> Mask | None:
    """What the readers of a run see of it, where that is not all of it: tokens of a tree branch off within it, or
    before it, or are the run."""
    if run.tree is not None:
        return Mask(run.tree.seen.to(device), run.tree.positions.to(device))
    end = run.position + run.length
    if run.causal or all(row.tree is None or int(row.tree.reach.min()) >= end for row in rows):
        return None
    reach = torch.cat([torch.full((r.count,), r.length + r.count) if r.tree is None else r.tree.reach for r in rows])
    positions = torch.arange(run.position, end, device=device)
    return Mask(positions < reach.to(device)[:, None], positions)


def _next_part(parts: list[int], rows: Sequence[int]) -> int:
    part = max(parts[i] for i in rows)
    for i in rows:
        parts[i] = part + 1
    return part


def _queries(rows: Sequence[AttentionRow], device: torch.device) -> tuple[slice | Tensor, Tensor]:
    """The packed indices of rows, as a slice where they lie together, and the positions of their tokens."""
    at = torch.cat([_positions(row, device) for row in rows])
    first, last = rows[0].start, rows[-1].start + rows[-1].count
    if last - first == len(at):
        return slice(first, last), at
    return torch.cat([torch.arange(r.start, r.start + r.count, device=device) for r in rows]), at


def _positions(row: AttentionRow, device: torch.device) -> Tensor:
    if row.tree is not None:
        return row.tree.positions.to(device)
    return torch.arange(row.length, row.length + row.count, device=device)


def _gathered(
    runs: Mapping[int, Sequence[_Run]], rows: Sequence[AttentionRow], part: int, device: torch.device
) -> Gathered:
    longest = max(sum(run.length for run in own) for own in runs.values())
    readers = [rows[index] for index in runs]
    most = max(row.count for row in readers)
    slots: list[list[int]] = []
    positions: list[list[int]] = []
    for row, own in zip(readers, runs.values(), strict=True):
        where = [slot for run in own for slot in range(run.first, run.first + run.length)]
        what = [position for run in own for position in range(run.position, run.position + run.length)]
        missing = longest - len(where)
        slots.append(where + [where[-1]] * missing)
        positions.append(what + [row.length + row.count] * missing)
    at = torch.tensor([[row.length + min(k, row.count - 1) for k in range(most)] for row in readers])
    places = torch.tensor(positions)
    beyond = places[:, None, :] > at[:, :, None]
    padding = torch.zeros(beyond.shape).masked_fill(beyond, float("-inf")).to(device) if beyond.any() else None
    queries, _ = _queries(readers, device)
    table = torch.tensor(slots, device=device), places.to(device), padding, queries, at.to(device), part
    if most == 1:
        return Gathered(*table)
    starts = list(accumulate((row.count for row in readers), initial=0))
    spread = [start + min(k, row.count - 1) for start, row in zip(starts, readers, strict=False) for k in range(most)]
    back = [place * most + k for place, row in enumerate(readers) for k in range(row.count)]
    return Gathered(*table, torch.tensor(spread, device=device), torch.tensor(back, device=device))


def _new_slots(rows: Sequence[AttentionRow], device: torch.device) -> Tensor:
    found: list[Tensor] = []
    for row in rows:
        tail = row.lease.tail
        assert tail is not None
        begin = tail.start + row.lease.tail_length
        assert begin + row.count <= tail.end, "a row is longer than what was reserved for it"
        found.append(torch.arange(begin, begin + row.count, device=device))
    return torch.cat(found)

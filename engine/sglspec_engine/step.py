"""One step: what to compute, what came out, and what follows from it.

A `StepPlan` is made by the scheduler, run here, and committed here. Commit is the only place where tokens are added
to a context, where stops, limits and grammars advance, and where text is sent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from sglspec_engine.attention.base import AttentionPlan, AttentionRow, Tree
from sglspec_engine.metrics import Metrics
from sglspec_engine.model.adapter import ModelRunner
from sglspec_engine.reply import Cancelled, as_engine_error
from sglspec_engine.sched.healing import MAX_TOKENS
from sglspec_engine.sched.work import Work
from sglspec_engine.types import EngineError

KEPT = MAX_TOKENS + 1
"""Positions at the end of a context whose logits are kept: a generation may begin that many tokens before it."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Tokens that continue a work's lease. The logits of the last `wanted` of them are kept; a row without tokens
    consumes the logits its lease has kept from before. With a `leader`, a row before this one that continues the same
    tokens, the first `shared` are computed there."""

    work: Work
    ids: tuple[int, ...]
    wanted: int
    leader: Row | None = None
    shared: int = 0


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The rows of a step; each work has one at most, and room in its lease. refused: works that cannot run at all."""

    rows: tuple[Row, ...]
    refused: tuple[tuple[Work, EngineError], ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """Per row: logits [wanted, vocabulary] (float32, CPU), or the error that kept the row from being computed."""

    logits: tuple[Tensor | EngineError, ...]


def run(plan: StepPlan, model: ModelRunner, metrics: Metrics) -> StepResult:
    """Run the model over the plan's rows. What goes wrong becomes the rows' errors; nothing is raised."""
    found: list[Tensor | EngineError] = []
    packed: list[Row] = []
    for row in plan.rows:
        cached = row.work.cached
        if row.ids:
            packed.append(row)
        elif row.wanted and cached is None:
            found.append(EngineError("internal", "a row without tokens has no logits"))
            continue
        found.append(cached[-row.wanted :] if row.wanted and cached is not None else torch.empty(0))
    if packed:
        logits = _forward(packed, model, metrics)
        computed = iter(logits)
        ran = set(packed)
        found = [next(computed) if row in ran else old for row, old in zip(plan.rows, found, strict=True)]
    return StepResult(tuple(found))


def _forward(rows: list[Row], model: ModelRunner, metrics: Metrics) -> list[Tensor | EngineError]:
    """One forward over all rows; an exception in it is every row's error."""
    ids: list[int] = []
    positions: list[int] = []
    wanted: list[list[int]] = []
    places: dict[Row, list[int]] = {}
    attention: dict[Row, AttentionRow] = {}
    # places: where each of a row's tokens is in the packed input
    for row in rows:
        own = row.ids[row.shared :]
        length = row.work.lease.length + row.shared
        tree = _cut(row.work.tree(len(row.ids)), row.shared)
        led = [] if row.leader is None else places[row.leader][: row.shared]
        places[row] = [*led, *range(len(ids), len(ids) + len(own))]
        wanted.append(places[row][len(row.ids) - row.wanted :])
        if own:
            after = None if row.leader is None else attention[row.leader]
            attention[row] = AttentionRow(row.work.lease, len(ids), len(own), tree, after, row.shared)
            positions += range(length, length + len(own)) if tree is None else (int(at) for at in tree.positions)
            ids += own
    in_order = [place for found in wanted for place in found]
    keep = sorted(set(in_order))
    began = time.perf_counter()
    try:
        logits = model.forward(ids, positions, AttentionPlan(tuple(attention.values())), keep)
    except EngineError as error:
        return [error for _ in rows]
    except Exception as error:
        return [EngineError("internal", f"the model failed: {type(error).__name__}: {error}") for _ in rows]
    metrics.seconds += time.perf_counter() - began
    metrics.steps += 1
    metrics.largest_batch = max(metrics.largest_batch, len(rows))
    if keep == in_order:  # not so where a row wants what a row before it computes
        return list(torch.split(logits, [row.wanted for row in rows]))
    at = {place: index for index, place in enumerate(keep)}
    return [logits[[at[place] for place in found]] for found in wanted]


def _cut(tree: Tree | None, shared: int) -> Tree | None:
    """A row's tree without the first tokens, which all others follow."""
    if tree is None or not shared:
        return tree
    return Tree(tree.positions[shared:], tree.reach[shared:] + shared, tree.seen[shared:, shared:])


def commit(plan: StepPlan, result: StepResult, metrics: Metrics) -> dict[Work, list[Work]]:
    """Add what was computed and let every work draw its conclusions. Returns what goes on in each work's place.

    A work that fails, fails alone. Tokens are counted for all rows before anybody looks at logits, as who looks may
    give back what others follow.
    """
    going_on: dict[Work, list[Work]] = {}
    led: dict[Row, int] = {}
    for row in plan.rows:
        if row.leader is not None:
            led[row.leader] = max(led.get(row.leader, 0), row.shared)
    found: list[Tensor | EngineError] = []
    for row, logits in zip(plan.rows, result.logits, strict=True):
        try:
            _count(row, logits, led.get(row, 0))
            found.append(logits)
        except Exception as error:
            found.append(as_engine_error(error))
    for row, logits in zip(plan.rows, found, strict=True):
        try:
            going_on[row.work] = _take(row, logits)
        except Cancelled:
            metrics.cancelled += 1
            row.work.cancel()
        except Exception as error:
            metrics.failed += 1
            row.work.fail(as_engine_error(error))
    return going_on


def _count(row: Row, logits: Tensor | EngineError, led: int) -> None:
    """Count a row's tokens, and let those that follow the first `led` of them go on from there."""
    work = row.work
    if isinstance(logits, EngineError):
        raise logits
    if len(logits) and bool(logits.max().isnan()):  # the largest is NaN where any is; its place would be a token
        raise EngineError("internal", "the model's result is not a number")
    if work.closed or not row.ids:
        return
    start = work.lease.length
    work.advance(row.ids, row.shared)
    if row.wanted:
        work.lease.logits = logits[-KEPT:].clone()  # a view would keep the whole step's logits alive
    if led:
        work.lease.publish_only(start + led)


def _take(row: Row, logits: Tensor | EngineError) -> list[Work]:
    """Let a work draw its conclusions."""
    work = row.work
    if isinstance(logits, EngineError):
        raise logits
    if work.closed:
        return []
    return work.take(logits) if row.wanted or work.todo == 0 else [work]

"""One step: what to compute, what came out, and what follows from it.

A `StepPlan` is made by the scheduler, run here, and committed here. Commit is the only place where tokens are added
to a context, where stops, limits and grammars advance, and where text is sent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from sglspec_engine.attention.base import AttentionPlan, AttentionRow
from sglspec_engine.metrics import Metrics
from sglspec_engine.model.adapter import ModelRunner
from sglspec_engine.reply import Cancelled, as_engine_error
from sglspec_engine.sched.work import Work
from sglspec_engine.types import EngineError


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Tokens that continue a work's lease. The logits of the last `wanted` of them are kept; a row without tokens
    consumes the logits its lease has kept from before."""

    work: Work
    ids: tuple[int, ...]
    wanted: int


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
        found.append(cached[None] if row.wanted and cached is not None else torch.empty(0))
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
    keep: list[int] = []
    attention: list[AttentionRow] = []
    for row in rows:
        length = row.work.lease.length
        tree = row.work.tree(len(row.ids))
        attention.append(AttentionRow(row.work.lease, len(ids), len(row.ids), tree))
        positions += range(length, length + len(row.ids)) if tree is None else (int(at) for at in tree.positions)
        ids += row.ids
        keep += range(len(ids) - row.wanted, len(ids))
    began = time.perf_counter()
    try:
        logits = model.forward(ids, positions, AttentionPlan(tuple(attention)), keep)
    except EngineError as error:
        return [error for _ in rows]
    except Exception as error:
        return [EngineError("internal", f"the model failed: {type(error).__name__}: {error}") for _ in rows]
    metrics.seconds += time.perf_counter() - began
    metrics.steps += 1
    metrics.largest_batch = max(metrics.largest_batch, len(rows))
    return list(torch.split(logits, [row.wanted for row in rows]))


def commit(plan: StepPlan, result: StepResult, metrics: Metrics) -> dict[Work, list[Work]]:
    """Add what was computed and let every work draw its conclusions. Returns what goes on in each work's place.

    A work that fails, fails alone.
    """
    going_on: dict[Work, list[Work]] = {}
    for row, logits in zip(plan.rows, result.logits, strict=True):
        try:
            going_on[row.work] = _commit_row(row, logits)
        except Cancelled:
            metrics.cancelled += 1
            row.work.cancel()
        except Exception as error:
            metrics.failed += 1
            row.work.fail(as_engine_error(error))
    return going_on


def _commit_row(row: Row, logits: Tensor | EngineError) -> list[Work]:
    work = row.work
    if isinstance(logits, EngineError):
        raise logits
    if work.closed:
        return []
    if len(logits) and bool(logits.max().isnan()):  # the largest is NaN where any is; its place would be a token
        raise EngineError("internal", "the model's result is not a number")
    if row.ids:
        work.advance(row.ids)
        if row.wanted:
            work.lease.logits = logits[-1].clone()  # a view would keep the whole step's logits alive
    return work.take(logits) if row.wanted or work.todo == 0 else [work]

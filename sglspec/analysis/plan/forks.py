"""Branches in a plan: where they begin, what they cost together, and who waits for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from sglspec.analysis.bindings import bound_names
from sglspec.analysis.plan.known import NOTHING, Unknown
from sglspec.analysis.plan.ranges import MAYBE, NONE, ONE, UNKNOWN, Cost, Length, Range, total
from sglspec.analysis.plan.state import END, Pending, State, joined, latest
from sglspec.document.fields import Param, Target
from sglspec.document.model import AnyStep, Fork, Scratch

if TYPE_CHECKING:
    from sglspec.analysis.plan.walk import Walk


def walk_fork(walk: Walk, step: Fork) -> None:
    names = bound_names([one for body in _bodies(step) for one in body])
    if step.items is not None:
        walk.reads(step, step.items.expr, step.items.node)
    if isinstance(step.spec, Param):
        walk.reads(step, step.spec)
    walk.wait(step, [*names.appended, *([step.into.name] if step.into else [])])
    walk.sizes.flush(walk.state)
    before = walk.state
    ends, width = _branches(walk, step)
    settle(walk, step, ends, width)
    pending = Pending(walk.key(step), latest([before.clock, *(end.clock for end in ends)]))
    gathered: Sequence[str] = () if step.into is not None else names.plain
    each = NOTHING if step.branches is not None else Unknown(width)
    for name in gathered:
        walk.state.expect(name, pending, each)
    for name in names.appended:
        walk.state.expect(name, pending)
    if step.into is not None:
        walk.state.expect(step.into.name, pending, NOTHING if step.into.append else each)
    if not gathered and not names.appended and step.into is None:
        walk.expect(pending, [])
    if step.join in ("concat", "concat_kv"):
        _concat(walk, step, before, ends, width)


def _bodies(step: Fork) -> list[list[AnyStep]]:
    return list(step.branches.values()) if step.branches is not None else [step.do or []]


def _branches(walk: Walk, step: Fork) -> tuple[list[State], Range]:
    """How each branch ends, one for all where they cannot be told apart, and how many there are."""
    if step.branches is not None:
        ends = [branch(walk, step, body, {}) for body in step.branches.values()]
        return ends, Range.exactly(len(ends))
    body = step.do or []
    if isinstance(step.spec, Target):
        assert step.items is not None
        items = walk.values.items(step.items)
        if not isinstance(items, Unknown):
            values = cast("list[Any]", items)
            if len(values) * max(len(body), 1) <= walk.left:
                return [branch(walk, step, body, {step.spec.name: value}) for value in values], Range.exactly(
                    len(values)
                )
            items = Unknown(Range.exactly(len(values)))
        width, names = items.length, {step.spec.name: NOTHING}
    else:
        count = walk.values.option(cast(Param, step.spec), 0)
        width, names = (UNKNOWN if count is None else Range.exactly(count)), {}
    return ([branch(walk, step, body, names, width)] if width.most != 0 else []), width


def branch(
    walk: Walk, step: Fork | Scratch, body: Sequence[AnyStep], names: Mapping[str, Any], times: Range = ONE
) -> State:
    """Walk a branch from here. Its cost is its own; its length counts from the fork."""
    walk.sizes.flush(walk.state)
    start = walk.state.copy()
    start.cost, start.length = Cost(), Length()
    start.values |= {"loop": NOTHING, **names}
    start.sure, outer_times = True, walk.times
    walk.times = walk.often
    outer = walk.continues, walk.breaks
    walk.continues, walk.breaks = [], []
    end = joined([walk.inside(body, start, times), *walk.continues])
    walk.continues, walk.breaks, walk.times = *outer, outer_times
    walk.sizes.flush(end, computed=step_joins(step))
    end.clock = latest([end.clock, *(pending.done for pending in end.pending.values())])
    for pending in set(end.pending.values()) - set(walk.state.pending.values()):
        walk.found[pending.key].awaited.setdefault(END)
    return end


def settle(walk: Walk, step: Fork | Scratch, ends: Sequence[State], width: Range) -> None:
    """Count what branches cost, and note what they share."""
    walk.note(step, width=width, shared=walk.state.length)
    alone = len(ends) == 1 and width.exact != 1
    cost = ends[0].cost * width if alone else total(end.cost for end in ends)
    # Whatever they begin with alike is computed once: at least what the longest of them takes.
    least = max((end.cost.text.least for end in ends), default=0) if width.least else 0
    cost = replace(cost, text=Range(least, cost.text.most))
    one = ONE if width.least else MAYBE
    cost = replace(cost, depth=(cost.depth if width.least else cost.depth | NONE) + one if width.most != 0 else NONE)
    state = walk.state
    state.cost = state.cost + cost.plus(branches=width)
    if ends and any(end.begun for end in ends):
        state.begun = state.begun or step_joins(step)


def step_joins(step: Fork | Scratch) -> bool:
    """Whether what branches write becomes part of the context that they come from."""
    return isinstance(step, Fork) and step.join in ("concat", "concat_kv")


def _concat(walk: Walk, step: Fork, before: State, ends: Sequence[State], width: Range) -> None:
    """The line waits, and goes on with what the branches wrote."""
    state = walk.state
    walk.wait(step, [name for name, one in state.pending.items() if one.key == walk.key(step)])
    state.clock = latest([state.clock, *(end.clock for end in ends)])
    alone = len(ends) == 1 and width.exact != 1
    lengths = [ends[0].length * width] if alone else [end.length for end in ends]
    for at, length in enumerate(lengths):
        state.length = state.length + length
        if step.join == "concat" and (at or alone):  # the first branch is where it was
            state.cost = state.cost.plus(text=Range(0, (length.text + length.written).most))

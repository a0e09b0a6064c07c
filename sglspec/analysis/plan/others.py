"""Other programs and lists of steps in a plan: in this context, or in one of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sglspec.analysis.plan.known import NOTHING, bound_inputs
from sglspec.analysis.plan.ranges import ONE, Range
from sglspec.analysis.plan.state import Pending, State, joined, latest
from sglspec.document.fields import Into, Target, Value
from sglspec.document.model import Call, Include

if TYPE_CHECKING:
    from sglspec.analysis.plan.walk import Walk


def walk_include(walk: Walk, step: Include) -> None:
    """Steps in this context, with names of their own."""
    target = walk.program.target(step.include)
    assert target is not None and target.program is not None, "the program was checked"
    own = target.program is walk.program
    given = _given(walk, step, target.bound)
    names = bound_inputs(target.routine.params if own else target.program.inputs, given)
    if own:
        names = {**{name: walk.state.values.get(name, NOTHING) for name in walk.program.inputs}, **names}
    outer = walk.program, walk.site, walk.ends, walk.included
    values, pending = walk.state.values, walk.state.pending
    walk.program, walk.site, walk.ends, walk.included = target.program, walk.key(step), [], True
    walk.state.values, walk.state.pending = {**names, **{name: [] for name in target.routine.appending}}, {}
    sure = walk.state.sure
    walk.block(target.routine.steps)
    if walk.state.alive:
        walk.settle()
    walk.state = joined([*walk.ends, walk.state] if walk.state.alive else walk.ends)
    walk.program, walk.site, walk.ends, walk.included = outer
    walk.state.values, walk.state.pending, walk.state.sure = values, pending, sure
    bind_into(walk, step.into)


def walk_call(walk: Walk, step: Call) -> None:
    """A program in a context of its own, beside what goes on here."""
    used = walk.program.used[step.call]
    names = bound_inputs(used.program.inputs, _given(walk, step, used.bound))
    names |= {name: [] for name in used.program.appending}
    outer = walk.program, walk.site, walk.ends, walk.state, walk.times, walk.breaks, walk.continues
    line = walk.included, walk.chat
    walk.times = walk.often
    walk.program, walk.site, walk.ends, walk.breaks, walk.continues = used.program, walk.key(step), [], [], []
    walk.included, walk.chat = False, used.program.chat
    walk.state = State(values=names, clock=outer[3].clock)
    end = walk.program_end()
    walk.included, walk.chat = line
    walk.program, walk.site, walk.ends, walk.state, walk.times, walk.breaks, walk.continues = outer
    walk.longest.append(end.length)
    # It may have everything in common with another one.
    cost = replace(end.cost, text=Range.up_to(end.cost.text.most)).plus(calls=ONE, branches=ONE, depth=ONE)
    walk.state.cost = walk.state.cost + cost
    walk.note(step, shared=end.length)
    pending = Pending(walk.key(step), latest([walk.state.clock, end.clock]))
    targets = _targets(step.into)
    walk.expect(pending, [target.name for target in targets])
    for target in targets:
        before = walk.state.values.get(target.name)
        walk.state.expect(target.name, pending, walk.longer(before) if target.append else NOTHING)


def bind_into(walk: Walk, into: Into | None) -> None:
    """Bind what comes back."""
    for target in _targets(into):
        walk.bind(target)


def _targets(into: Into | None) -> list[Target]:
    if into is None:
        return []
    return [*([into.target] if into.target is not None else []), *(target for target, _ in into.picks)]


def _given(walk: Walk, step: Include | Call, bound: Mapping[str, Value]) -> dict[str, Any]:
    """What is handed over, as far as it is known."""
    given: dict[str, Any] = {}
    for name, value in {**bound, **(step.args or {})}.items():
        walk.reads(step, value.node)
        given[name] = walk.values.value(walk.program.values[value.node])
    return given


__all__ = ["bind_into", "walk_call", "walk_include"]

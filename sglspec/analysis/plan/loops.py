"""Loops in a plan: round by round where the rounds are known, else one round for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from sglspec.analysis.plan.known import NOTHING, Unknown
from sglspec.analysis.plan.ranges import Cost, Length, Range
from sglspec.analysis.plan.state import Clock, State, joined
from sglspec.document.model import AnyStep, For, While

if TYPE_CHECKING:
    from sglspec.analysis.plan.walk import Walk


def walk_for(walk: Walk, step: For) -> None:
    walk.reads(step, step.items.expr, step.items.node)
    items = walk.values.items(step.items)
    values = None if isinstance(items, Unknown) else cast("list[Any]", items)
    outer, sure, ends = walk.state.values.get("loop", NOTHING), walk.state.sure, len(walk.ends)
    if values is not None and len(values) * len(step.do) <= walk.left:
        left: list[State] = []
        rounds = 0
        for at, value in enumerate(values):
            walk.state.values |= {step.var.name: value, "loop": _loop(at, len(values))}
            rounds += 1
            left += _round(walk, step.do)
            if not walk.state.alive:
                break
        walk.state = joined([*left, walk.state])
        walk.note(step, width=Range(1 if left else rounds, rounds) if rounds else Range())
    else:
        times = items.length if isinstance(items, Unknown) else Range.exactly(len(values or []))
        walk.note(step, width=times)
        _rounds(walk, [step.var.name], step.do, times)
    walk.state.values["loop"] = outer
    walk.state.sure = sure and len(walk.ends) == ends


def walk_while(walk: Walk, step: While) -> None:
    walk.reads(step, step.max)
    most = walk.values.option(step.max, None)
    outer, sure, ends = walk.state.values.get("loop", NOTHING), walk.state.sure, len(walk.ends)
    left: list[State] = []
    rounds = 0
    while True:
        walk.state.values["loop"] = _loop(rounds, None)
        walk.reads(step, step.condition)
        holds = walk.condition(step.condition)
        if holds is False or (most is not None and rounds >= most):
            walk.note(step, width=Range(rounds if not left else 1, rounds))
            break
        if holds is None or walk.left < len(step.do):
            times = Range(0, None if most is None else most - rounds)
            walk.note(step, width=Range.exactly(rounds) + times)
            before = walk.state
            _rounds(walk, [], step.do, times)
            if before.alive:
                walk.reads(step, step.condition)
            break
        rounds += 1
        left += _round(walk, step.do)
        if not walk.state.alive:
            walk.note(step, width=Range(1, rounds))
            break
    walk.state = joined([*left, walk.state])
    walk.state.values["loop"] = outer
    walk.state.sure = sure and len(walk.ends) == ends


def _round(walk: Walk, steps: Sequence[AnyStep]) -> list[State]:
    """Walk one round. Gives the states of those that left the loop."""
    outer = walk.breaks, walk.continues
    walk.breaks, walk.continues = [], []
    walk.block(steps)
    walk.state = joined([walk.state, *walk.continues])
    left = walk.breaks
    walk.breaks, walk.continues = outer
    return left


def _rounds(walk: Walk, names: Sequence[str], steps: Sequence[AnyStep], times: Range) -> None:
    """Walk one round for all `times`."""
    if times.most == 0:
        return
    walk.sizes.flush(walk.state)
    before = walk.state.copy()
    changing = [*names, *walk.changing(steps)]
    walk.state.forget(changing)
    walk.state.cost, walk.state.length = Cost(), Length()
    around, walk.times = walk.times, walk.often * times
    walk.state.sure = True
    left = _round(walk, steps)
    walk.times = around
    end = joined([walk.state, *left])
    walk.sizes.flush(end)
    end.cost = before.cost + end.cost * times
    end.length = before.length + end.length * times
    end.clock = _repeated(before.clock, end.clock, times.most)
    end.forget(changing)
    if times.least == 0:
        none = before.copy()
        none.forget(changing)
        end = joined([none, end])
    walk.state = end


def _repeated(before: Clock, after: Clock, times: int | None) -> Clock:
    """The clock behind `times` rounds of which the first one took it from `before` to `after`."""
    old, new = before.path(), after.path()
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    found = before
    for at, link in enumerate(new[same:], same):
        count = link.times
        if at < len(old) and old[at].key == link.key and count is not None and old[at].times is not None:
            count -= old[at].times or 0  # it goes on with what was there
        found = found.after(link.key, link.tokens, None if count is None or times is None else count * times)
    return found


def _loop(at: int, length: int | None) -> dict[str, Any]:
    record: dict[str, Any] = {"index": at + 1, "index0": at, "first": at == 0}
    return record | ({} if length is None else {"last": at == length - 1, "length": length})


__all__ = ["walk_for", "walk_while"]

"""Where a line of execution stands while a plan is made, and what was found out about each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from sglspec.analysis.plan.known import NOTHING, Unknown
from sglspec.analysis.plan.ranges import NONE, Cost, Length, Range
from sglspec.backends.markup import Piece
from sglspec.document.model import AnyStep

Key = tuple[Any, ...]
"""A step at one place: the calls and includes that lead to it, then the step itself."""
END: Key = ()
"""The end of a line, where all that still runs is awaited."""


@dataclass(frozen=True, slots=True)
class Link:
    """A stretch of the critical path: `times` generations of one step, one after the other."""

    key: Key
    tokens: int | None
    times: int | None
    before: Link | None


@dataclass(frozen=True, slots=True)
class Clock:
    """How many tokens are generated one after the other until here, at most; None where nothing bounds it."""

    tokens: int | None = 0
    last: Link | None = None

    def after(self, key: Key, tokens: int | None, times: int | None = 1) -> Clock:
        """The clock once a step has generated `tokens`, `times` times."""
        if tokens == 0 or times == 0:
            return self
        spent = None if tokens is None or times is None else tokens * times
        whole = None if spent is None or self.tokens is None else self.tokens + spent
        if self.last is not None and (self.last.key, self.last.tokens) == (key, tokens):
            count = None if times is None or self.last.times is None else self.last.times + times
            return Clock(whole, replace(self.last, times=count))
        return Clock(whole, Link(key, tokens, times, self.last))

    def path(self) -> list[Link]:
        """From the first to the last."""
        found: list[Link] = []
        link = self.last
        while link is not None:
            found.append(link)
            link = link.before
        return found[::-1]


def latest(clocks: Iterable[Clock]) -> Clock:
    """The one that everything else is before; of equals the first."""
    return max(clocks, key=lambda clock: float("inf") if clock.tokens is None else clock.tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """Names that a fork, an aside or a call binds when it is done."""

    key: Key
    done: Clock


@dataclass(slots=True)
class State:
    """values: what is known of names; pending: names to come; length: of the context; run: text that is not counted
    yet, `open` where a part of it is not known; role: the open message; begun: whether the context holds anything;
    sure: whether a run gets here for certain."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    pending: dict[str, Pending] = field(default_factory=dict[str, Pending])
    clock: Clock = field(default_factory=Clock)
    cost: Cost = field(default_factory=Cost)
    length: Length = field(default_factory=Length)
    run: list[Piece] = field(default_factory=list[Piece])
    open: bool = False
    role: str | None = None
    begun: bool = False
    alive: bool = True
    sure: bool = True

    def copy(self) -> State:
        return replace(self, values=dict(self.values), pending=dict(self.pending), run=list(self.run))

    def bind(self, name: str, value: Any = NOTHING) -> None:
        self.pending.pop(name, None)
        self.values[name] = value

    def expect(self, name: str, pending: Pending, value: Any = NOTHING) -> None:
        self.values[name] = value
        self.pending[name] = pending

    def forget(self, names: Iterable[str]) -> None:
        """These may have any value from now on."""
        for name in names:
            self.values[name] = NOTHING


def joined(states: Sequence[State]) -> State:
    """What holds whichever of these states it is. Dead ones do not count, unless all are."""
    alive = [state for state in states if state.alive] or list(states)
    first = alive[0].copy()
    for state in alive[1:]:
        first.values = _common(first.values, state.values)
        first.pending |= {name: _later(one, first.pending.get(name)) for name, one in state.pending.items()}
        first.clock = latest([first.clock, state.clock])
        first.cost |= state.cost
        first.length |= state.length
        first.begun |= state.begun
    first.alive = any(state.alive for state in states)
    first.sure = all(state.alive and state.sure for state in states)
    return first


def _common(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _same(one.get(name, NOTHING), other.get(name, NOTHING)) for name in {**one, **other}}


def _same(one: Any, other: Any) -> Any:
    if not isinstance(one, Unknown) and not isinstance(other, Unknown) and type(one) is type(other) and one == other:
        return one
    lengths = [_length(one), _length(other)]
    return NOTHING if None in lengths else Unknown((lengths[0] or NONE) | (lengths[1] or NONE))


def _length(value: Any) -> Range | None:
    if isinstance(value, Unknown):
        return value.length
    return Range.exactly(len(cast("list[Any]", value))) if isinstance(value, list) else None


def _later(one: Pending, other: Pending | None) -> Pending:
    if other is None or (
        other.done.tokens is not None and (one.done.tokens is None or one.done.tokens > other.done.tokens)
    ):
        return one
    return other


@dataclass(slots=True)
class Found:
    """What was found out about a step at one place. times: how often it runs; size: the text that it adds, once;
    tokens: what it generates, once; width: branches, rounds or choices; shared: the context that its branches begin
    with; waits: what it waits for; drafts: texts for one value (`n`, `retry`); decided: the name of the only part that
    runs (`then`, a case)."""

    step: AnyStep
    times: Range = NONE
    size: Range | None = None
    tokens: Range | None = None
    width: Range | None = None
    shared: Length | None = None
    drafts: Range | None = None
    waits: dict[Key, None] = field(default_factory=dict[Key, None])
    awaited: dict[Key, None] = field(default_factory=dict[Key, None])
    taken: dict[str, None] = field(default_factory=dict[str, None])

    def widen(self, **seen: Range | Length | None) -> None:
        """One more run of it."""
        for name, value in seen.items():
            before = getattr(self, name)
            setattr(self, name, value if before is None else before | value)


__all__ = ["END", "Clock", "Found", "Key", "Link", "Pending", "State", "joined", "latest"]

"""What is known about names at one point of a program, and how paths come together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sglspec.analysis.types import ANY, Type, join_types


@dataclass(slots=True)
class State:
    """One path through the program, at one point.

    bound: the names that have a value on every path to here, with their types; seen: every name that has a value
    on some path, with the ids of the steps that may have given it; alive: whether this point can be reached;
    muted: inside steps that are never reached, where missing values are no news.
    """

    bound: dict[str, Type] = field(default_factory=dict[str, Type])
    seen: dict[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    alive: bool = True
    muted: bool = False

    def copy(self) -> State:
        return State(dict(self.bound), dict(self.seen), self.alive, self.muted)

    def bind(self, name: str, type: Type, binder: int) -> None:
        self.bound[name] = type
        self.seen[name] = frozenset((binder,))

    def unbind(self, name: str) -> None:
        self.bound.pop(name, None)
        self.seen.pop(name, None)

    def may_change(self, sites: Mapping[str, frozenset[int]]) -> None:
        """At the head of a loop: what the body binds may have been bound by an earlier round."""
        for name, binders in sites.items():
            self.seen[name] = self.seen.get(name, frozenset()) | binders
            if name in self.bound:
                self.bound[name] = ANY


def join(states: Iterable[State]) -> State:
    """The state after paths meet. Dead paths do not count; without a living one the result is dead."""
    every = list(states)
    living = [state for state in every if state.alive]
    if not living:
        dead = every[0].copy()
        dead.alive = False
        for state in every[1:]:
            _merge_seen(dead, state)
        return dead
    out = living[0].copy()
    for state in living[1:]:
        out.bound = {
            name: join_types(type, state.bound[name]) for name, type in out.bound.items() if name in state.bound
        }
        _merge_seen(out, state)
        out.muted = out.muted and state.muted
    return out


def _merge_seen(into: State, other: State) -> None:
    for name, binders in other.seen.items():
        into.seen[name] = into.seen.get(name, frozenset()) | binders


@dataclass(slots=True)
class Jumps:
    """The paths that leave the body of a loop or branch early."""

    breaks: list[State] = field(default_factory=list[State])
    continues: list[State] = field(default_factory=list[State])


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step stands. `around` is the nearest of loop, fork and capture; `sealed` the nearest fork or capture,
    which `return` may not leave; `locals` are the variables of the loops and forks around."""

    loop: bool = False
    around: str | None = None
    sealed: str | None = None
    locals: frozenset[str] = frozenset()
    jumps: Jumps | None = None

    def in_loop(self, variable: str | None, jumps: Jumps) -> Place:
        return replace(self, loop=True, around="loop", locals=self._with(variable), jumps=jumps)

    def in_fork(self, variable: str | None, jumps: Jumps) -> Place:
        return replace(self, loop=True, around="fork", sealed="fork", locals=self._with(variable), jumps=jumps)

    def in_capture(self) -> Place:
        return replace(self, around="capture", sealed="capture", jumps=None)

    def _with(self, variable: str | None) -> frozenset[str]:
        return self.locals | {variable} if variable is not None else self.locals

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
    muted: inside steps that are never reached, where missing values are no news; changed: the names that this path
    touched since it parted from another one, so that paths meet in time that grows with what they did only.
    """

    bound: dict[str, Type] = field(default_factory=dict[str, Type])
    seen: dict[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    alive: bool = True
    muted: bool = False
    changed: set[str] = field(default_factory=set[str])

    def part(self) -> State:
        """A new path that starts here."""
        return State(dict(self.bound), dict(self.seen), self.alive, self.muted)

    def bind(self, name: str, type: Type, binder: int) -> None:
        self.bound[name] = type
        self.seen[name] = frozenset((binder,))
        self.changed.add(name)

    def assume(self, name: str) -> None:
        """The name has a value from here on, of whatever type: a condition said so, or an error was reported."""
        self.bound.setdefault(name, ANY)
        self.changed.add(name)

    def forget(self, name: str, outside: State) -> None:
        """A loop variable ends: the name is again what it is outside."""
        if name in outside.bound:
            self.bound[name] = outside.bound[name]
        else:
            self.bound.pop(name, None)
        if name in outside.seen:
            self.seen[name] = outside.seen[name]
        else:
            self.seen.pop(name, None)

    def may_change(self, sites: Mapping[str, frozenset[int]]) -> None:
        """At the head of a loop: what the body binds may have been bound by an earlier round."""
        for name, binders in sites.items():
            self.seen[name] = self.seen.get(name, frozenset()) | binders
            if name in self.bound:
                self.bound[name] = ANY
            self.changed.add(name)


def join(origin: State, paths: Iterable[State]) -> State:
    """The state after paths meet that parted from `origin`. Dead paths do not count; without a living one the
    result is dead."""
    every = list(paths)
    living = [path for path in every if path.alive]
    touched = set[str]().union(*(path.changed for path in every))
    out = (living or every)[0].part()
    out.muted = all(path.muted for path in living) if living else out.muted
    for name in touched:
        out.seen.pop(name, None)
        binders = [path.seen[name] for path in living or every if name in path.seen]
        if binders:
            out.seen[name] = frozenset[int]().union(*binders)
        if not all(name in path.bound for path in living):
            out.bound.pop(name, None)
        elif living:
            type = living[0].bound[name]
            for path in living[1:]:
                type = join_types(type, path.bound[name])
            out.bound[name] = type
    out.changed = origin.changed
    out.changed |= touched
    return out


@dataclass(slots=True)
class Jumps:
    """The paths that leave the body of a loop or branch early."""

    breaks: list[State] = field(default_factory=list[State])
    continues: list[State] = field(default_factory=list[State])


@dataclass(frozen=True, slots=True)
class Ending:
    """A `return`: the path to it, and the types of what it gives; None where it gives the variables as they are."""

    state: State
    values: Mapping[str, Type] | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step stands. `around` is the nearest of loop, fork, scratch and capture; `sealed` the nearest that is
    no loop, which `return` may not leave; `locals` are the variables of the loops and forks around; `depth` counts the
    forks and asides around."""

    loop: bool = False
    around: str | None = None
    sealed: str | None = None
    locals: frozenset[str] = frozenset()
    jumps: Jumps | None = None
    depth: int = 0

    def in_loop(self, variable: str | None, jumps: Jumps) -> Place:
        return replace(self, loop=True, around="loop", locals=self._with(variable), jumps=jumps)

    def in_fork(self, variable: str | None, jumps: Jumps) -> Place:
        locals, depth = self._with(variable), self.depth + 1
        return replace(self, loop=True, around="fork", sealed="fork", locals=locals, jumps=jumps, depth=depth)

    def in_capture(self) -> Place:
        return replace(self, around="capture", sealed="capture", jumps=None)

    def in_scratch(self) -> Place:
        return replace(self, around="scratch", sealed="scratch", jumps=None, depth=self.depth + 1)

    def _with(self, variable: str | None) -> frozenset[str]:
        return self.locals | {variable} if variable is not None else self.locals

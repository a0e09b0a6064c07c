"""Which names a list of steps binds in the scope that holds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sglspec.document.fields import Into, Target
from sglspec.document.model import (
    AnyStep,
    Call,
    Capture,
    For,
    Fork,
    Gen,
    If,
    Include,
    Match,
    Role,
    Scratch,
    Select,
    Set,
    TextStep,
    Tool,
    While,
)


@dataclass(frozen=True, slots=True)
class BoundNames:
    """In order of first appearance: plainly bound names, and names that are appended to (`name[]`)."""

    plain: tuple[str, ...]
    appended: tuple[str, ...]


@dataclass(slots=True)
class _Collector:
    plain: dict[str, None] = field(default_factory=dict[str, None])
    appended: dict[str, None] = field(default_factory=dict[str, None])

    def target(self, target: Target | None) -> None:
        if target is not None:
            (self.appended if target.append else self.plain).setdefault(target.name)

    def into(self, into: Into | None) -> None:
        if into is not None:
            self.target(into.target)
            for target, _ in into.picks:
                self.target(target)

    def steps(self, steps: Iterable[AnyStep]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: AnyStep) -> None:
        match step:
            case TextStep():
                pass
            case Gen(gen=target) | Select(select=target):
                self.target(target)
            case Set(set=values):
                for name in values:
                    (self.appended if name.endswith("[]") else self.plain).setdefault(name.removesuffix("[]"))
            case Role():
                self.steps(step.steps)
            case Capture():
                self.steps(step.do)
                self.target(step.capture)
            case If():
                self.steps(step.then)
                self.steps(step.orelse or ())
            case Match():
                for case in step.cases.values():
                    self.steps(case)
                self.steps(step.orelse or ())
            case For() | While():
                self.steps(step.do)
            case Fork():
                self._fork(step)
            case Scratch():
                inner = _Collector()
                inner.steps(step.scratch)
                for target in step.export or ():
                    (self.appended if target.name in inner.appended else self.plain).setdefault(target.name)
            case Call() | Include() | Tool():
                self.into(step.into)
            case _:
                pass

    def _fork(self, step: Fork) -> None:
        inner = _Collector()
        for body in step.branches.values() if step.branches is not None else (step.do or [],):
            inner.steps(body)
        for name in inner.appended:
            self.appended.setdefault(name)
        if step.into is not None:
            self.target(step.into)
        else:
            for name in inner.plain:
                self.plain.setdefault(name)


def bound_names(steps: Iterable[AnyStep]) -> BoundNames:
    """The names that these steps may bind. What a fork's branches bind comes back through its join; a name that is
    appended to anywhere counts as appended (`set: {name: []}` empties such a list)."""
    collector = _Collector()
    collector.steps(steps)
    plain = tuple(name for name in collector.plain if name not in collector.appended)
    return BoundNames(plain, tuple(collector.appended))

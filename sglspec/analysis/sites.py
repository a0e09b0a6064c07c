"""Where names get their values: the binding places inside a list of steps, seen from outside of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
    Tool,
    While,
)
from sglspec.document.nodes import Mapping, Node


@dataclass(frozen=True, slots=True)
class Site:
    """One place that binds a name; `binder` identifies the step that binds it in the scope in question: for what
    comes out of a fork that is the fork."""

    name: str
    append: bool
    node: Node
    binder: int


def children(step: AnyStep) -> list[list[AnyStep]]:
    """The step lists inside a step."""
    match step:
        case Role():
            return [step.steps]
        case Capture() | For() | While():
            return [step.do]
        case If():
            return [step.then, step.orelse or []]
        case Match():
            return [*step.cases.values(), step.orelse or []]
        case Fork():
            return list(step.branches.values()) if step.branches is not None else [step.do or []]
        case Scratch():
            return [step.scratch]
        case _:
            return []


def every_step(steps: Iterable[AnyStep]) -> Iterator[AnyStep]:
    """All steps at all depths, in document order."""
    waiting = list(reversed(list(steps)))
    while waiting:
        step = waiting.pop()
        yield step
        waiting += [inner for block in reversed(children(step)) for inner in reversed(block)]


def sites(steps: Iterable[AnyStep]) -> Iterator[Site]:
    """What these steps bind in the scope that holds them."""
    for step in steps:
        match step:
            case Fork():
                yield from _of_fork(step)
            case Scratch():
                appended = {site.name for site in sites(step.scratch) if site.append}
                for target in step.export or ():
                    yield Site(target.name, target.name in appended, target.node, id(step))
            case _:
                for block in children(step):
                    yield from sites(block)
                yield from own_sites(step)


def own_sites(step: AnyStep) -> Iterator[Site]:
    """What the step itself binds, without the steps inside it."""
    match step:
        case Gen(gen=target) | Select(select=target):
            yield from _of_target(step, target)
        case Capture(capture=target):
            yield from _of_target(step, target)
        case Set():
            for key in step.set:
                place = set_key(step, key)
                yield Site(key.removesuffix("[]"), key.endswith("[]"), place, id(step))
        case Fork(into=target):
            yield from _of_target(step, target)
        case Call(into=into) | Include(into=into) | Tool(into=into):
            yield from _of_into(step, into)
        case _:
            return


def set_key(step: Set, key: str) -> Node:
    """The key's own node inside `set`."""
    mapping = step.at("set")
    found = mapping.key(key) if isinstance(mapping, Mapping) else None
    return found or mapping


def _of_target(step: AnyStep, target: Target | None) -> Iterator[Site]:
    if target is not None:
        yield Site(target.name, target.append, target.node, id(step))


def _of_into(step: AnyStep, into: Into | None) -> Iterator[Site]:
    if into is not None:
        yield from _of_target(step, into.target)
        for target, _ in into.picks:
            yield from _of_target(step, target)


def _of_fork(step: Fork) -> Iterator[Site]:
    """Gathered names; with `into` only that name, and additions to lists."""
    for block in children(step):
        for site in sites(block):
            if step.into is None or site.append:
                yield Site(site.name, site.append, site.node, id(step))
    yield from own_sites(step)

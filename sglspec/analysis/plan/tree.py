"""The plan as a tree of steps, for people and for programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sglspec.analysis.plan.ranges import MAYBE, Length, Range
from sglspec.analysis.plan.state import Found, Key
from sglspec.analysis.plan.steps import constraint_of, described, inputs_of, parts
from sglspec.analysis.program import Program
from sglspec.document.model import AnyStep, Call, Check, Fork, Gen, Include, Role, Set, TextStep
from sglspec.document.nodes import Node


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A step. id: a number, in the order of the tree, -1 for what is no step; step: its JSON pointer, in
    the document `file` if that is not the program's own; times: how often
    it runs; size: the text that it adds, each time; tokens: what it generates, each time; width: branches, rounds or
    choices; shared: the context that its branches begin with; drafts: texts for one value; waits: ids of what it waits
    for; awaited: who waits for it, -1 for the end of its line; constraint: what its text must match, and when that is
    compiled."""

    id: int
    kind: str
    label: str
    file: str | None
    step: str
    line: int
    times: Range
    size: Range | None = None
    tokens: Range | None = None
    width: Range | None = None
    shared: Length | None = None
    drafts: Range | None = None
    waits: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()
    constraint: str | None = None
    children: tuple[PlanNode, ...] = ()

    def every(self) -> list[PlanNode]:
        """This node and all below it, in order."""
        return [self, *(node for child in self.children for node in child.every())]

    def as_dict(self) -> dict[str, Any]:
        numbers = {"size": self.size, "tokens": self.tokens, "width": self.width, "drafts": self.drafts}
        face: dict[str, Any] = {"id": self.id, "kind": self.kind, "label": self.label, "step": self.step}
        face |= {} if self.file is None else {"file": self.file}
        face |= {"line": self.line, "times": self.times.as_dict()}
        face |= {name: value.as_dict() for name, value in numbers.items() if value is not None}
        face |= {} if self.shared is None else {"shared": self.shared.as_dict()}
        face |= {name: list(ids) for name, ids in (("waits", self.waits), ("awaited", self.awaited)) if ids}
        face |= {} if self.constraint is None else {"constraint": self.constraint}
        return face | {"children": [child.as_dict() for child in self.children]}


class Builder:
    """Makes nodes of what a walk has found. ids: the number of each step at its place."""

    def __init__(self, program: Program, found: Mapping[Key, Found]) -> None:
        self._program = program
        self._found = found
        self.ids: dict[Key, int] = {}
        self._next = 0

    def build(self) -> tuple[PlanNode, ...]:
        at = _At(self._program, ())
        self._number(self._program.spec.steps, at)
        return self._nodes(self._program.spec.steps, at)

    def _number(self, steps: Sequence[AnyStep], at: _At) -> None:
        """Ids first: a step may wait for a later one, in a loop."""
        for step in steps:
            if self._shown(step, at):
                self.ids[at.key(step)] = self._next
                self._next += 1
            if (text := single_text(step)) is not None:  # it is the message
                self.ids[at.key(text)] = self.ids[at.key(step)]
                continue
            for _, body in parts(step):
                self._number(body, at)
            if self._runs(step, at) and (inner := at.inside(step)) is not None:
                self._number(inner[1], inner[0])

    def _runs(self, step: AnyStep, at: _At) -> bool:
        return at.key(step) in self._found

    def _shown(self, step: AnyStep, at: _At) -> bool:
        found = self._found.get(at.key(step))
        return not isinstance(step, (Set, Check)) or (found is not None and bool(found.waits))

    def _nodes(self, steps: Sequence[AnyStep], at: _At) -> tuple[PlanNode, ...]:
        return tuple(self._node(step, at) for step in steps if at.key(step) in self.ids)

    def _node(self, step: AnyStep, at: _At) -> PlanNode:
        found = self._found.get(at.key(step)) or Found(step)
        place = _place(step)
        kind, label = described(step)
        text = single_text(step)
        inner = found if text is None else self._found.get(at.key(text)) or Found(text)
        children = self._children(step, at, found) if text is None else ()
        return PlanNode(
            id=self.ids[at.key(step)],
            kind=kind,
            label=label,
            file=at.file(self._program),
            step=at.program.document.pointer(place),
            line=place.range.start.line,
            times=found.times,
            size=inner.size,
            tokens=found.tokens,
            width=found.width,
            shared=found.shared,
            drafts=found.drafts if found.drafts is not None and found.drafts.most != 1 else None,
            waits=tuple(sorted(self.ids[key] for key in inner.waits)),
            awaited=tuple(sorted(self.ids.get(key, -1) for key in found.awaited)),
            constraint=self._constraint(step, at),
            children=children,
        )

    def _constraint(self, step: AnyStep, at: _At) -> str | None:
        kind = constraint_of(step) if isinstance(step, Gen) else None
        if kind is None or not isinstance(step, Gen):
            return None
        when = "it is reached"
        if step in at.program.constraints:
            when = "the run starts"
        elif inputs_of(at.program, step, at.params) is not None:
            when = "the run starts" if at.program is self._program else "its program starts"
        return f"{kind}, compiled when {when}"

    def _children(self, step: AnyStep, at: _At, found: Found) -> tuple[PlanNode, ...]:
        inner = at.inside(step) if self._runs(step, at) else None
        if inner is not None:
            return self._nodes(inner[1], inner[0])
        bodies = parts(step)
        if all(not name for name, _ in bodies):
            return tuple(node for _, body in bodies for node in self._nodes(body, at))
        nodes: list[PlanNode] = []
        for name, body in bodies:
            runs = isinstance(step, Fork) or found.times.most == 0 or name in found.taken
            if body and runs:
                place = _place(body[0])
                nodes.append(
                    PlanNode(
                        id=-1,
                        kind="branch" if isinstance(step, Fork) else "way",
                        label=name,
                        file=at.file(self._program),
                        step=at.program.document.pointer(place),
                        line=place.range.start.line,
                        times=found.times if isinstance(step, Fork) or len(found.taken) == 1 else found.times * MAYBE,
                        children=self._nodes(body, at),
                    )
                )
        return tuple(nodes)


@dataclass(frozen=True, slots=True)
class _At:
    """Where steps stand: in which program, behind which calls and includes. params: of the list that they are in."""

    program: Program
    site: Key
    params: Collection[str] = ()

    def key(self, step: AnyStep) -> Key:
        return (*self.site, id(step))

    def file(self, main: Program) -> str | None:
        """The document's name, where it is not the main one."""
        return None if self.program is main else self.program.document.source.name

    def inside(self, step: AnyStep) -> tuple[_At, Sequence[AnyStep]] | None:
        """The steps that a call or an include runs."""
        if isinstance(step, Include) and (target := self.program.target(step.include)) is not None:
            return _At(target.program or self.program, self.key(step), target.routine.params), target.routine.steps
        if isinstance(step, Call) and step.call in self.program.used:
            called = self.program.used[step.call].program
            return _At(called, self.key(step)), called.spec.steps
        return None


def single_text(step: AnyStep) -> AnyStep | None:
    """The only text of a message that is nothing else."""
    return step.steps[0] if isinstance(step, Role) and step.is_single_text else None


def _place(step: AnyStep) -> Node:
    return step.node if isinstance(step, TextStep) else step.verb_node


__all__ = ["Builder", "PlanNode"]

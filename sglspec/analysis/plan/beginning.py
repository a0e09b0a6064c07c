"""The beginning that all runs of a program have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sglspec.expressions as ev
from sglspec.analysis.inputs import fill
from sglspec.analysis.plan.known import Unknown, Values, bound_inputs
from sglspec.analysis.program import Program
from sglspec.backends.base import RoleClose, RoleOpen, Segment, TextSegment
from sglspec.document.model import AnyStep, Assistant, Check, Include, Raw, Set, System, TextStep, User
from sglspec.expressions.names import reads_of_template


class Beginning:
    """Text as long as it is known."""

    def __init__(self, program: Program, bound: Mapping[str, Any]) -> None:
        self._program = program
        self._names = {name: fill(program.inputs[name], value) for name, value in bound.items()}
        self._ended = False

    def of(self, steps: Sequence[AnyStep]) -> Iterator[Segment]:
        for step in steps:
            match step:
                case TextStep():
                    yield from self._text(self._program.templates[step.text])
                case Raw():
                    yield TextSegment(step.raw.source, "author")
                case System() | User() | Assistant():
                    yield RoleOpen(step.VERB)  # pyright: ignore[reportArgumentType] - the verbs are the roles
                    yield from self.of(step.steps)
                    if not self._ended:
                        yield RoleClose()
                case Include():
                    yield from self._included(step)
                case Set() | Check():
                    pass  # writes nothing, and inputs keep their values
                case _:
                    self._ended = True
            if self._ended:
                return

    def _included(self, step: Include) -> Iterator[Segment]:
        target = self._program.target(step.include)
        assert target is not None and target.program is not None, "the program was checked"
        own = target.program is self._program
        values = Values(self._program, self._names)
        given = {
            name: values.value(self._program.values[value.node])
            for name, value in {**target.bound, **(step.args or {})}.items()
        }
        names = bound_inputs(target.routine.params if own else target.program.inputs, given)
        outer = self._program, self._names
        self._names = {**(self._names if own else {}), **{k: v for k, v in names.items() if not isinstance(v, Unknown)}}
        self._program = target.program
        yield from self.of(target.routine.steps)
        self._program, self._names = outer

    def _text(self, template: ev.Template) -> Iterator[Segment]:
        known = 0
        while known < len(template.body):
            reads = reads_of_template(template.body[known : known + 1])
            # what a function of the run gives is not known before it
            if any(use.name not in self._names for use in reads.names if use.name != "texts") or {*reads.functions} & {
                *ev.SCOPE_FUNCTIONS
            }:
                self._ended = True
                break
            known += 1
        if self._ended:
            template = dataclasses.replace(template, body=template.body[:known], single=None, ends_in_tag_line=False)
        try:
            segments = ev.render(template, _View(self._program, self._names))
        except ev.EvaluationError:  # a run will say so
            self._ended = True
            return
        yield from (TextSegment(segment.text, segment.origin) for segment in segments)


class _View:
    def __init__(self, program: Program, names: Mapping[str, Any]) -> None:
        self._program = program
        self._names = names

    def lookup(self, name: str) -> tuple[ev.Value, ev.Origin]:
        if name == "texts":
            return dict(self._program.texts), "author"
        return self._names[name], "input"

    def meta(self, name: str) -> ev.Value:
        raise KeyError(name)

    def messages(self) -> ev.Value:
        return []

    def transcript(self) -> str:
        return ""

"""A checked program: the document with everything parsed and compiled that can be before a run.

Lookups are by identity: each `Text`, `Expr` and node of the document is one object with one compiled form.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sglspec.analysis.constraints import Constraint
from sglspec.analysis.sites import every_step
from sglspec.analysis.types import Type
from sglspec.document.fields import Expr, Text, Value
from sglspec.document.load import Document
from sglspec.document.model import AnyStep, Call, Decl, Gen, Include, Select, Spec, Tool
from sglspec.document.nodes import Node, Scalar
from sglspec.expressions.syntax import Expression, Template


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal of a value field."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """A text of a value field that holds a template. `template.single` keeps the value's type."""

    template: Template
    node: Scalar


@dataclass(frozen=True, slots=True, eq=False)
class ListValue:
    items: tuple[CompiledValue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MapValue:
    entries: tuple[tuple[str, CompiledValue], ...]


CompiledValue = Constant | Rendered | ListValue | MapValue


@dataclass(frozen=True, eq=False)
class Routine:
    """A list of steps with names of its own: the `steps` of a document, or one of `defs.steps`.

    inputs: what its steps see from the start, params and the document's inputs; params: those that `with` gives;
    bindable: every name that a step may bind, in order; appending: those that are lists (`name[]`); gives: what an
    `include` brings back, with what is known of its type; roles: whether messages occur, those of included lists too;
    nesting: of lists in one another.
    """

    steps: list[AnyStep]
    inputs: MappingABC[str, Decl]
    params: MappingABC[str, Decl]
    bindable: tuple[str, ...] = ()
    appending: frozenset[str] = frozenset()
    gives: MappingABC[str, Type] = field(default_factory=dict[str, Type])
    roles: bool = False
    nesting: int = 1


@dataclass(frozen=True, eq=False)
class Used:
    """An entry of `use`: another program, and the inputs that are bound for it."""

    alias: str
    program: Program
    bound: MappingABC[str, Value]


@dataclass(frozen=True, eq=False)
class Target:
    """What an `include` runs. program: that it belongs to; None for a list of the document that is being checked."""

    routine: Routine
    bound: MappingABC[str, Value]
    program: Program | None


@dataclass(frozen=True, eq=False)
class Program:
    """What the interpreter runs.

    templates: every template text by its `Text` object (gen stops, messages, pieces, option templates);
    expressions: every bare expression by its `Expr`; values: every value field (`Value.node`, and the literal
    lists of `in`/`from`) by its node; constraints: of each `gen` whose constraint is known statically (a `regex`
    with `{{ }}` is compiled when it is reached); chat: messages occur in its steps or in what they include; routine:
    its steps; lists: those of `defs.steps`; used: other programs by alias; texts: those of `defs`; schemas: those that
    were read from files, by path; outputs: name → what is known of its type.
    """

    document: Document
    templates: MappingABC[Text, Template]
    expressions: MappingABC[Expr, Expression]
    values: MappingABC[Node, CompiledValue]
    constraints: MappingABC[Gen, Constraint]
    chat: bool
    routine: Routine
    lists: MappingABC[str, Routine] = field(default_factory=dict[str, Routine])
    used: MappingABC[str, Used] = field(default_factory=dict[str, Used])
    texts: MappingABC[str, str] = field(default_factory=dict[str, str])
    schemas: MappingABC[str, Any] = field(default_factory=dict[str, Any])
    outputs: MappingABC[str, Type] = field(default_factory=dict[str, Type])

    @property
    def spec(self) -> Spec:
        return self.document.spec

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def inputs(self) -> MappingABC[str, Decl]:
        return self.document.spec.inputs

    @property
    def bindable(self) -> tuple[str, ...]:
        return self.routine.bindable

    @property
    def appending(self) -> frozenset[str]:
        return self.routine.appending

    def target(self, name: str) -> Target | None:
        """What `include: name` means: one of `defs.steps`, or the steps of another program."""
        if name in self.lists:
            return Target(self.lists[name], {}, self)
        used = self.used.get(name)
        return Target(used.program.routine, used.bound, used.program) if used is not None else None

    def all(self) -> list[Program]:
        """This program and every other one that it uses, directly or not, each once and this one first."""
        found: dict[Program, None] = {self: None}
        waiting: list[Program] = [self]
        for program in waiting:  # grows while it is walked
            for used in program.used.values():
                if used.program not in found:
                    found[used.program] = None
                    waiting.append(used.program)
        return list(found)

    def expanded(self, *, calls: bool = False) -> Iterator[tuple[Program, AnyStep]]:
        """Every step at all depths that may run in this program's context, those of included lists too, with the
        program that it belongs to. `calls`: those of called programs as well. A list that is included twice counts
        once."""
        waiting: list[tuple[Program, Routine]] = [(self, self.routine)]
        seen = {self.routine}
        for program, routine in waiting:  # grows while it is walked
            for step in every_step(routine.steps):
                yield program, step
                target: Target | None = None
                if isinstance(step, Include):
                    target = program.target(step.include)
                elif calls and isinstance(step, Call) and step.call in program.used:
                    called = program.used[step.call].program
                    target = Target(called.routine, {}, called)
                if target is not None and target.program is not None and target.routine not in seen:
                    seen.add(target.routine)
                    waiting.append((target.program, target.routine))

    def chats(self) -> bool:
        """Whether any of the contexts of a run is a chat: its own, or that of a program that may be called."""
        called = (
            program.used[step.call].program
            for program, step in self.expanded(calls=True)
            if isinstance(step, Call) and step.call in program.used
        )
        return self.chat or any(program.chat for program in called)

    def takes_reply(self, key: str) -> bool:
        """Whether a test may give a reply for this key: a variable, an id, a tool or a call, and for a program that is
        called `alias.key`."""
        return key in self._reply_keys or self._takes_of_call(key)

    def _takes_of_call(self, key: str) -> bool:
        alias, _, rest = key.partition(".")
        return bool(rest) and any(program.takes_reply(rest) for program in self._called.get(alias, ()))

    def reply_keys(self, like: str = "") -> list[str]:
        """The keys that replies may have; those of a called program where `like` is such a key."""
        alias, dot, rest = like.partition(".")
        inner = [key for program in self._called.get(alias, ()) for key in program.reply_keys(rest)] if dot else []
        return [f"{alias}.{key}" for key in inner] or list(self._reply_keys)

    @cached_property
    def _reply_keys(self) -> dict[str, None]:
        found: dict[str, None] = {}
        for _, step in self.expanded():
            found.update(dict.fromkeys(reply_keys(step)))
        return found

    @cached_property
    def _called(self) -> dict[str, list[Program]]:
        found: dict[str, list[Program]] = {}
        for program, step in self.expanded():
            if isinstance(step, Call) and step.call in program.used:
                found.setdefault(step.call, []).append(program.used[step.call].program)
        return found


def reply_keys(step: AnyStep) -> list[str]:
    """What a script may call a step: its variable or id, a tool's or program's name. Empty for steps that need none."""
    keys: list[str | None] = []
    match step:
        case Gen(gen=target) | Select(select=target):
            keys = [step.id, target.name if target is not None else None]
        case Tool(tool=name) | Call(call=name):
            target = step.into.target if step.into is not None else None
            keys = [step.id, target.name if target is not None else None, name]
        case _:
            pass
    return [key for key in keys if key]

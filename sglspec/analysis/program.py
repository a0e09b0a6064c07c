"""A checked program: the document with everything parsed and compiled that can be before a run.

Lookups are by identity: each `Text`, `Expr` and node of the document is one object with one compiled form.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from typing import Any

from sglspec.analysis.constraints import Constraint
from sglspec.document.fields import Expr, Text
from sglspec.document.load import Document
from sglspec.document.model import Decl, Gen, Spec
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
class Program:
    """What the interpreter runs.

    templates: every template text by its `Text` object (gen stops, messages, pieces, option templates);
    expressions: every bare expression by its `Expr`; values: every value field (`Value.node`, and the literal
    lists of `in`/`from`) by its node; constraints: of each `gen` whose constraint is known statically (a `regex`
    with `{{ }}` is compiled when it is reached); chat: role steps occur; bindable: every name a step may bind.
    """

    document: Document
    templates: MappingABC[Text, Template]
    expressions: MappingABC[Expr, Expression]
    values: MappingABC[Node, CompiledValue]
    constraints: MappingABC[Gen, Constraint]
    chat: bool
    bindable: tuple[str, ...]
    appending: frozenset[str]

    @property
    def spec(self) -> Spec:
        return self.document.spec

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def inputs(self) -> MappingABC[str, Decl]:
        return self.document.spec.inputs

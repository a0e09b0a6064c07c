"""Types of values, as far as they are known before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, cast

from sglspec.analysis.declarations import ROLES, type_of
from sglspec.document.model import Decl
from sglspec.document.nodes import to_python

Kind = Literal["string", "integer", "number", "boolean", "array", "object", "null", "any"]


@dataclass(frozen=True, slots=True)
class Type:
    """A kind, and where it is known the closed set of values, the type of items, or the types of fields.

    `nullable` values are null at times; nothing that depends on never being null is concluded from them. Of a `closed`
    object all fields are known.
    """

    kind: Kind
    choices: tuple[Any, ...] | None = None
    items: Type | None = None
    fields: Mapping[str, Type] | None = None
    nullable: bool = False
    closed: bool = False


ANY = Type("any")
STRING = Type("string")
INTEGER = Type("integer")
NUMBER = Type("number")
BOOLEAN = Type("boolean")
Lookup = Callable[[str], Type]
_ROUND = {"index": INTEGER, "index0": INTEGER, "first": BOOLEAN}
_MAYBE = {"last": replace(BOOLEAN, nullable=True), "length": replace(INTEGER, nullable=True)}
LOOP = Type("object", fields=_ROUND | _MAYBE, closed=True)
"""`loop`; a `while` does not know its last round before."""


def array(items: Type = ANY) -> Type:
    return Type("array", items=items)


def join_types(a: Type, b: Type) -> Type:
    """What is true of both."""
    if a == b:
        return a
    if a.kind == "null" or b.kind == "null":
        return replace(b if a.kind == "null" else a, nullable=True)
    if a.kind != b.kind:
        numeric = {a.kind, b.kind} == {"integer", "number"}
        return Type("number", nullable=a.nullable or b.nullable) if numeric else ANY
    nullable = a.nullable or b.nullable
    choices = a.choices + b.choices if a.choices is not None and b.choices is not None else None
    items = join_types(a.items, b.items) if a.items is not None and b.items is not None else None
    fields = None
    if a.fields is not None and b.fields is not None:
        fields = {name: join_types(a.fields[name], b.fields[name]) for name in a.fields if name in b.fields}
    closed = (
        a.closed and b.closed and a.fields is not None and b.fields is not None and a.fields.keys() == b.fields.keys()
    )
    return Type(a.kind, choices, items, fields, nullable, closed)


def of_value(value: Any) -> Type:
    """The type of a literal."""
    match value:
        case None:
            return Type("null")
        case bool():
            return BOOLEAN
        case int():
            return INTEGER
        case float():
            return NUMBER
        case str():
            return STRING
        case list():
            return array(of_all(of_value(item) for item in cast("list[Any]", value)))
        case _:
            fields = {str(name): of_value(item) for name, item in cast("dict[str, Any]", value).items()}
            return Type("object", fields=fields)


def of_all(types: Iterable[Type]) -> Type:
    """What is true of all; of none nothing is known."""
    every = list(types)
    return reduce(join_types, every) if every else ANY


MESSAGE = Type("object", closed=True, fields={"role": Type("string", choices=ROLES), "content": STRING})


def of_choices(values: list[Any]) -> Type:
    """One of several literals, as `select` and `enum` give them."""
    if not values:
        return ANY
    kinds = of_value(values[0])
    for value in values[1:]:
        kinds = join_types(kinds, of_value(value))
    return replace(kinds, choices=tuple(values)) if kinds.kind not in ("array", "object", "null") else ANY


def of_decl(decl: Decl) -> Type:
    """The type of an input or field."""
    nullable = decl.optional is True
    if decl.enum is not None:
        values: Any = to_python(decl.enum.node)
        return replace(of_choices(cast("list[Any]", values)), nullable=nullable) if isinstance(values, list) else ANY
    kind = type_of(decl)
    if kind == "messages":
        return Type("array", items=MESSAGE, nullable=nullable)
    if kind in ("image", "video", "any"):
        return ANY
    fields = {name: of_decl(inner) for name, inner in decl.properties.items()} if decl.properties is not None else None
    items = of_decl(decl.items) if decl.items is not None else None
    return Type(cast("Kind", kind), None, items, fields, nullable, closed=fields is not None)


def of_schema(schema: Mapping[str, Any]) -> Type:
    """The type of a value under a JSON Schema; references and alternatives are not followed."""
    if "enum" in schema and isinstance(schema["enum"], list):
        return of_choices(cast("list[Any]", schema["enum"]))
    kind = schema.get("type")
    if kind not in ("string", "integer", "number", "boolean", "array", "object") or "$ref" in schema:
        return ANY
    required = schema.get("required", ())
    properties = schema.get("properties")
    fields = None
    if isinstance(properties, dict):
        typed = cast("dict[str, Any]", properties)
        fields = {
            name: replace(
                of_schema(cast("dict[str, Any]", s)) if isinstance(s, dict) else ANY, nullable=name not in required
            )
            for name, s in typed.items()
        }
    items = schema.get("items")
    of_items = of_schema(cast("dict[str, Any]", items)) if isinstance(items, dict) else None
    closed = fields is not None and schema.get("additionalProperties") is False and "patternProperties" not in schema
    return Type(kind, None, of_items, fields, closed=closed)

"""What is known about the types of values, as far as it is cheap: enough to catch comparisons that cannot be true."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from sglspec.analysis.declarations import ROLES, type_of
from sglspec.document.model import Decl
from sglspec.document.nodes import to_python
from sglspec.expressions import ast
from sglspec.expressions.names import children

Kind = Literal["string", "integer", "number", "boolean", "array", "object", "null", "any"]


@dataclass(frozen=True, slots=True)
class Type:
    """A kind, and where it is known the closed set of values, the type of items, or the types of fields.

    `nullable` values are null at times; nothing that depends on never being null is concluded from them.
    """

    kind: Kind
    choices: tuple[Any, ...] | None = None
    items: Type | None = None
    fields: Mapping[str, Type] | None = None
    nullable: bool = False


ANY = Type("any")
STRING = Type("string")
INTEGER = Type("integer")
NUMBER = Type("number")
BOOLEAN = Type("boolean")
Lookup = Callable[[str], Type]

_RESULTS: Mapping[str, Type] = {
    "len": INTEGER, "length": INTEGER, "count": INTEGER, "int": INTEGER, "float": NUMBER, "bool": BOOLEAN,
    "str": STRING, "to_json": STRING, "upper": STRING, "lower": STRING, "strip": STRING, "trim": STRING,
    "title": STRING, "join": STRING, "replace": STRING, "startswith": BOOLEAN, "endswith": BOOLEAN,
    "contains": BOOLEAN, "any": BOOLEAN, "all": BOOLEAN, "bullets": STRING, "indent": STRING, "format": STRING,
    "transcript": STRING, "split": Type("array", items=STRING), "lines": Type("array", items=STRING),
    "range": Type("array", items=INTEGER),
}  # fmt: skip
"""Results of library functions; the rest is `any`."""


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
    return Type(a.kind, choices, items, None, nullable)


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
            return array()
        case _:
            return Type("object")


MESSAGE = Type("object", fields={"role": Type("string", choices=ROLES), "content": STRING})


def of_choices(values: list[Any]) -> Type:
    """One of several literals, as `select` and `enum` give them."""
    if not values:
        return ANY
    kinds = of_value(values[0])
    for value in values[1:]:
        kinds = join_types(kinds, of_value(value))
    return replace(kinds, choices=tuple(values)) if kinds.kind in ("string", "integer", "number", "boolean") else ANY


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
    return Type(cast("Kind", kind), None, items, fields, nullable)


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
    return Type(kind, None, of_schema(cast("dict[str, Any]", items)) if isinstance(items, dict) else None, fields)


def infer(expr: ast.Expr, lookup: Lookup) -> Type:
    """The type of an expression."""
    match expr:
        case ast.Name(name=name):
            return lookup(name)
        case ast.Literal(value=value):
            return of_value(value)
        case ast.ListLit(items=items):
            types = [infer(item, lookup) for item in items]
            return array(types[0] if types and all(t == types[0] for t in types) else ANY)
        case ast.MapLit():
            return Type("object")
        case ast.Attribute(value=value, name=name):
            owner = infer(value, lookup)
            return owner.fields.get(name, ANY) if owner.fields is not None and not owner.nullable else ANY
        case ast.Index(value=value, index=index):
            owner = infer(value, lookup)
            if owner.kind == "array" and infer(index, lookup).kind == "integer":
                return replace(owner.items or ANY, nullable=True)
            return ANY
        case ast.Call(function=function) | ast.Filter(function=function):
            return _RESULTS.get(function, ANY)
        case ast.Compare() | ast.Test():
            return BOOLEAN
        case ast.Unary(op="not"):
            return BOOLEAN
        case ast.Concat():
            return STRING
        case ast.Conditional(body=body, otherwise=otherwise) if otherwise is not None:
            return join_types(infer(body, lookup), infer(otherwise, lookup))
        case _:
            return ANY


@dataclass(frozen=True, slots=True)
class TypeProblem:
    """Something that cannot be meant, at offsets into the expression."""

    code: str
    message: str
    start: int
    end: int
    help: str | None = None


def check_condition(expr: ast.Expr, lookup: Lookup) -> list[TypeProblem]:
    """A whole condition: also a chosen text as such is a problem there."""
    return [*_truth(expr, lookup), *check_comparisons(expr, lookup)]


def check_comparisons(expr: ast.Expr, lookup: Lookup) -> list[TypeProblem]:
    """Comparisons anywhere in an expression that can never be true (or never false)."""
    out: list[TypeProblem] = []
    for node in walk(expr):
        if isinstance(node, ast.Compare) and len(node.rest) == 1:
            op, right = node.rest[0]
            problem = _comparison(node.first, op, right, lookup)
            if problem is not None:
                out.append(problem)
        elif isinstance(node, ast.Unary) and node.op == "not":
            out += _truth(node.operand, lookup)
        elif isinstance(node, ast.Conditional):
            out += _truth(node.test, lookup)
    return out


def walk(expr: ast.Expr) -> list[ast.Expr]:
    """Every expression inside an expression, itself included."""
    out = [expr]
    for node in out:  # grows while it is walked
        out.extend(children(node))
    return out


def _truth(expr: ast.Expr, lookup: Lookup) -> list[TypeProblem]:
    if isinstance(expr, ast.Logical):
        return [problem for operand in expr.operands for problem in _truth(operand, lookup)]
    if not isinstance(expr, (ast.Name, ast.Attribute)):
        return []
    type = infer(expr, lookup)
    if type.kind != "string" or type.choices is None or type.nullable or "" in type.choices:
        return []
    shown = expr.name if isinstance(expr, ast.Name) else f"….{expr.name}"
    choices = ", ".join(_shown(choice) for choice in type.choices[:6])
    message = f"`{shown}` is one of {choices}: as a condition every one of them counts as true"
    first = type.choices[0]
    return [TypeProblem("S404", message, expr.start, expr.end, f"Compare it: `{shown} == {_shown(first)}`.")]


def _comparison(left: ast.Expr, op: str, right: ast.Expr, lookup: Lookup) -> TypeProblem | None:
    if op in ("in", "not in"):
        if isinstance(right, ast.ListLit):
            for item in right.items:
                if problem := _equality(left, item, lookup):
                    return problem
        return None
    if op not in ("==", "!="):
        return None
    return _equality(left, right, lookup) or _equality(right, left, lookup)


def _equality(variable: ast.Expr, constant: ast.Expr, lookup: Lookup) -> TypeProblem | None:
    if not isinstance(constant, ast.Literal) or constant.value is None or isinstance(variable, ast.Literal):
        return None
    type, value = infer(variable, lookup), constant.value
    if type.choices is not None:
        if any(_equal(choice, value) for choice in type.choices):
            return None
        choices = ", ".join(_shown(choice) for choice in type.choices[:8])
        message = f"this can never be {_shown(value)}: it is one of {choices}"
        return TypeProblem("S405", message, constant.start, constant.end, _near_choice(value, type.choices))
    other = of_value(value).kind
    numeric = ("integer", "number")
    if type.kind in ("any", "null") or type.kind == other or (type.kind in numeric and other in numeric):
        return None
    message = f"{_WORDS[type.kind]} is never equal to {_WORDS[other]}"
    help = None
    if other == "string" and type.kind in ("boolean", *numeric) and str(value) in _LITERALS(str(value)):
        help = f"Write {value} without quotes."
    elif other == "boolean" and type.kind == "string":
        help = f'Write "{str(value).lower()}" in quotes, if the text is meant.'
    return TypeProblem("S405", message, constant.start, constant.end, help)


def _LITERALS(text: str) -> tuple[str, ...]:
    stripped = text.lstrip("-").replace(".", "", 1)
    return (text,) if text in ("true", "false") or stripped.isdigit() else ()


_WORDS = {
    "string": "a text", "integer": "a number", "number": "a number", "boolean": "true or false", "array": "a list",
    "object": "an object", "null": "null", "any": "a value",
}  # fmt: skip


def _equal(choice: Any, value: Any) -> bool:
    return choice == value and isinstance(choice, bool) == isinstance(value, bool)


def _near_choice(value: Any, choices: tuple[Any, ...]) -> str | None:
    from sglspec.analysis.declarations import nearest

    texts = [choice for choice in choices if isinstance(choice, str)]
    if isinstance(value, bool):
        word = {True: "yes", False: "no"}[value] if "yes" in texts or "no" in texts else str(value).lower()
        return f'Write "{word}" in quotes.' if word in texts else None
    if not isinstance(value, str):
        return f'Write "{value}" in quotes.' if str(value) in texts else None
    close = nearest(value.strip(), texts)
    return f"Did you mean {_shown(close)}?" if close is not None else None


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

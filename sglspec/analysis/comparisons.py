"""Conditions and comparisons that cannot be meant."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sglspec.analysis.declarations import nearest
from sglspec.analysis.infer import infer
from sglspec.analysis.types import Lookup, Type, of_value
from sglspec.expressions import ast
from sglspec.expressions.names import children


@dataclass(frozen=True, slots=True)
class TypeProblem:
    """Something that cannot be meant, at offsets into the expression."""

    code: str
    message: str
    start: int
    end: int
    help: str | None = None


def check_truth(expr: ast.Expr, lookup: Lookup) -> list[TypeProblem]:
    """A condition: a chosen text as such is a problem. `check_comparisons` says the rest, `not x` included."""
    if isinstance(expr, ast.Logical):
        return [problem for operand in expr.operands for problem in check_truth(operand, lookup)]
    type = infer(expr, lookup)
    if type.kind == "boolean" or type.nullable or type.choices is None or not all(type.choices):
        return []
    shown = _written(expr)
    choices = ", ".join(_shown(choice) for choice in type.choices[:6])
    message = (
        f"{f'`{shown}`' if shown else 'this'} is one of {choices}: as a condition every one of them counts as true"
    )
    help = f"Compare it: `{shown or '…'} == {_shown(type.choices[0])}`."
    return [TypeProblem("S404", message, expr.start, expr.end, help)]


def _written(expr: ast.Expr) -> str:
    """A name or a part of one as its author wrote it; "" for anything else."""
    match expr:
        case ast.Name(name=name):
            return name
        case ast.Attribute(value=value, name=name) if _written(value):
            return f"{_written(value)}.{name}"
        case ast.Index(value=value, index=ast.Literal(value=index)) if _written(value):
            return f"{_written(value)}[{_shown(index)}]"
        case _:
            return ""


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
            out += check_truth(node.operand, lookup)
        elif isinstance(node, ast.Conditional):
            out += check_truth(node.test, lookup)
    return out


def walk(expr: ast.Expr) -> list[ast.Expr]:
    """Every expression inside an expression, itself included."""
    out = [expr]
    for node in out:  # grows while it is walked
        out.extend(children(node))
    return out


def _comparison(left: ast.Expr, op: str, right: ast.Expr, lookup: Lookup) -> TypeProblem | None:
    if op in ("in", "not in"):
        if isinstance(right, ast.ListLit):
            for item in right.items:
                if problem := _equality(left, item, lookup):
                    return problem
            return None
        listed = infer(right, lookup)
        if listed.kind == "array" and listed.items is not None and not listed.nullable:
            return _never(listed.items, left)
        return None
    if op not in ("==", "!="):
        return None
    return _equality(left, right, lookup) or _equality(right, left, lookup)


def _equality(variable: ast.Expr, constant: ast.Expr, lookup: Lookup) -> TypeProblem | None:
    return None if isinstance(variable, ast.Literal) else _never(infer(variable, lookup), constant)


def _never(type: Type, constant: ast.Expr) -> TypeProblem | None:
    """A value of the type is never this one."""
    if not isinstance(constant, ast.Literal) or constant.value is None:
        return None
    value = constant.value
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


def kind_words(type: Type) -> str:
    """A type in words: "a text"."""
    return _WORDS[type.kind]


def _equal(choice: Any, value: Any) -> bool:
    return choice == value and isinstance(choice, bool) == isinstance(value, bool)


def _near_choice(value: Any, choices: tuple[Any, ...]) -> str | None:
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

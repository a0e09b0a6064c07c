"""The types of expressions, through operators and the whole library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sglspec.analysis.types import (
    ANY,
    BOOLEAN,
    INTEGER,
    MESSAGE,
    NUMBER,
    STRING,
    Lookup,
    Type,
    array,
    join_types,
    of_all,
    of_value,
)
from sglspec.expressions import LIBRARY, ast

NUMERIC = ("integer", "number")


def infer(expr: ast.Expr, lookup: Lookup) -> Type:
    """The type of an expression's value, where it has one."""
    match expr:
        case ast.Name(name=name):
            return lookup(name)
        case ast.Literal(value=value):
            return of_value(value)
        case ast.ListLit(items=items):
            return array(of_all(infer(item, lookup) for item in items))
        case ast.MapLit(entries=entries):
            return _object(entries, lookup)
        case ast.Attribute(value=value, name=name):
            return _field(infer(value, lookup), name)
        case ast.Index(value=value, index=index):
            return _part(infer(value, lookup), index, lookup)
        case ast.Slice(value=value):
            whole = infer(value, lookup)
            return array(whole.items or ANY) if whole.kind == "array" else STRING if whole.kind == "string" else ANY
        case ast.Call(function=function):
            return _result(function, expr.args, expr.kwargs, lookup)
        case ast.Filter(function=function):
            return _result(function, (expr.value, *expr.args), expr.kwargs, lookup)
        case ast.Compare() | ast.Test() | ast.Unary(op="not"):
            return BOOLEAN
        case ast.Unary(operand=operand):
            type = infer(operand, lookup)
            return Type(type.kind) if type.kind in NUMERIC else ANY
        case ast.Concat():
            return STRING
        case ast.Binary(op=op, left=left, right=right):
            return _arithmetic(op, infer(left, lookup), infer(right, lookup))
        case ast.Logical(operands=operands):
            return of_all(infer(operand, lookup) for operand in operands)
        case ast.Conditional(body=body, otherwise=otherwise):
            other = infer(otherwise, lookup) if otherwise is not None else Type("null")
            return join_types(infer(body, lookup), other)


def _object(entries: Sequence[tuple[ast.Expr, ast.Expr]], lookup: Lookup) -> Type:
    fields: dict[str, Type] = {}
    for key, value in entries:
        if not isinstance(key, ast.Literal) or not isinstance(key.value, str):
            return Type("object")
        fields[key.value] = infer(value, lookup)
    return Type("object", fields=fields)


def _field(owner: Type, name: str) -> Type:
    if owner.fields is None or owner.kind != "object":
        return ANY
    return owner.fields.get(name, ANY)


def _part(owner: Type, index: ast.Expr, lookup: Lookup) -> Type:
    if owner.kind == "array" and infer(index, lookup).kind == "integer":
        return owner.items or ANY
    if owner.kind == "object" and isinstance(index, ast.Literal) and isinstance(index.value, str):
        return _field(owner, index.value)
    return STRING if owner.kind == "string" else ANY


def _arithmetic(op: str, left: Type, right: Type) -> Type:
    kinds = (left.kind, right.kind)
    if all(kind in NUMERIC for kind in kinds):
        whole = kinds == ("integer", "integer") and op not in ("/", "**")
        return INTEGER if whole else NUMBER
    if op == "+" and kinds == ("string", "string"):
        return STRING
    if op == "+" and kinds == ("array", "array"):
        return array(join_types(left.items or ANY, right.items or ANY))
    for one, other in ((left, right), (right, left)):
        if op == "*" and other.kind == "integer" and one.kind in ("string", "array"):
            return STRING if one.kind == "string" else array(one.items or ANY)
    return ANY


# -- the library ---------------------------------------------------------------------------------------------------

_Arguments = Sequence[ast.Expr]
_Named = Sequence[tuple[str, ast.Expr]]
_KINDS: Mapping[str, Type] = {
    "string": STRING,
    "integer": INTEGER,
    "number": NUMBER,
    "boolean": BOOLEAN,
    "array": array(),
    "object": Type("object"),
}


def _maybe(type: Type) -> Type:
    """Null where there is nothing."""
    return replace(type, nullable=True) if type.kind != "any" else ANY


def _items(first: Type) -> Type:
    return first.items or ANY


def _one(first: Type) -> Type:
    """An item of a list, or a character of a text."""
    return _maybe(_items(first) if first.kind == "array" else STRING if first.kind == "string" else ANY)


def _same(first: Type) -> Type:
    return replace(first, nullable=False) if first.kind == "array" else array()


def _flat(first: Type) -> Type:
    inner = _items(first)
    return array(_items(inner)) if inner.kind == "array" and not inner.nullable else array()


_OF_FIRST: Mapping[str, Callable[[Type], Type]] = {
    "sort": _same,
    "unique": _same,
    "compact": lambda first: array(replace(_items(first), nullable=False)),
    "select": _same,
    "reject": _same,
    "flatten": _flat,
    "batch": lambda first: array(array(_items(first))),
    "slice": lambda first: array(array(_items(first))),
    "first": _one,
    "last": _one,
    "most_common": _one,
    "reverse": lambda first: STRING if first.kind == "string" else _same(first) if first.kind == "array" else ANY,
    "list": lambda first: _same(first) if first.kind == "array" else array(STRING),
    "keys": lambda first: array(STRING),
    "split": lambda first: array(STRING),
    "lines": lambda first: array(STRING),
    "range": lambda first: array(INTEGER),
    "enumerate": lambda first: array(array()),
    "zip": lambda first: array(array()),
    "items": lambda first: array(array()),
    "numbers": lambda first: array(NUMBER),
    "last_number": lambda first: _maybe(NUMBER),
    "mean": lambda first: _maybe(NUMBER),
    "stddev": lambda first: _maybe(NUMBER),
    "argmax": lambda first: _maybe(INTEGER),
    "index_of": lambda first: _maybe(INTEGER),
    "abs": lambda first: Type(first.kind) if first.kind in NUMERIC else NUMBER,
    "values": lambda first: array(of_all(first.fields.values()) if first.closed and first.fields else ANY),
}
"""Functions whose result depends on their first argument, or says more than its kind."""


def _result(name: str, args: _Arguments, named: _Named, lookup: Lookup) -> Type:
    if name in ("messages", "transcript"):
        return array(MESSAGE) if name == "messages" else STRING
    function = LIBRARY.get(name)
    if function is None or not args:
        return ANY if function is None else _KINDS.get(function.returns, ANY)
    keys = {key for key, _ in named}
    first = infer(args[0], lookup)
    own = function.name
    if own == "default":
        other = infer(args[1], lookup) if len(args) > 1 else ANY
        return ANY if first.kind in ("any", "null") else join_types(replace(first, nullable=False), other)
    if own in ("min", "max"):
        # `first` is not looked at again: in a chain of 30 filters that doubled with each
        return of_all([first, *(infer(arg, lookup) for arg in args[1:])]) if len(args) > 1 else _one(first)
    if own == "sum" and ("attribute" in keys or len(args) > 1 or keys):
        return ANY
    if own == "map":
        path = attribute_of(named) if keys == {"attribute"} else None
        return array(_mapped(args, keys, str(path.value) if path is not None else None, _items(first)))
    if own == "sort" and first.kind != "array":
        return array()
    of_first = _OF_FIRST.get(own)
    return of_first(first) if of_first is not None else _KINDS.get(function.returns, ANY)


def part_at(whole: Type, path: str) -> Type:
    """The type of the part that a path names, as in `map(attribute='a.0.b')`."""
    for name in path.split("."):
        whole = (whole.items or ANY) if whole.kind == "array" else _field(whole, name)
    return whole


def attribute_of(named: _Named) -> ast.Literal | None:
    """The path that `attribute='…'` writes out."""
    value = next((value for key, value in named if key == "attribute"), None)
    return value if isinstance(value, ast.Literal) and isinstance(value.value, str) else None


def _mapped(args: _Arguments, keys: set[str], attribute: str | None, item: Type) -> Type:
    """What the function that `map` names makes of an item, or the part that `attribute` names."""
    if len(args) == 1 and attribute is not None:
        return part_at(item, attribute)
    if keys or len(args) != 2 or not isinstance(args[1], ast.Literal) or not isinstance(args[1].value, str):
        return ANY
    place = args[1]
    return _result(args[1].value, (ast.Name(place.start, place.end, "item"),), (), lambda name: item)


# -- what functions take -------------------------------------------------------------------------------------------

_TEXT = frozenset({"string", "integer", "number", "boolean"})
_LIST = frozenset({"array"})
_BOTH = frozenset({"string", "array"})
_NUMBER = frozenset(NUMERIC)
_OBJECT = frozenset({"object"})

TAKES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            "strip",
            "lstrip",
            "rstrip",
            "lower",
            "upper",
            "title",
            "split",
            "lines",
            "replace",
            "startswith",
            "endswith",
            "truncate",
            "indent",
            "quote",
            "from_json",
            "numbers",
            "last_number",
            "regex_search",
            "regex_findall",
            "regex_replace",
        ),
        _TEXT,
    ),
    **dict.fromkeys(
        (
            "bullets",
            "enumerate",
            "zip",
            "batch",
            "slice",
            "flatten",
            "compact",
            "unique",
            "most_common",
            "map",
            "select",
            "reject",
            "group_by",
            "all",
            "any",
            "sum",
            "mean",
            "stddev",
            "argmax",
        ),
        _LIST,
    ),
    **dict.fromkeys(("join", "reverse", "first", "last"), _BOTH),
    **dict.fromkeys(("len", "list"), _BOTH | _OBJECT),
    "sort": _LIST | _OBJECT,
    **dict.fromkeys(("keys", "values", "items"), _OBJECT),
    **dict.fromkeys(("range", "exp", "log", "sqrt", "abs", "round"), _NUMBER),
    "index_of": _TEXT | _LIST,
    "contains": _TEXT | _LIST | _OBJECT,
}
"""The kinds of value that a function takes first; one that is not here takes any."""

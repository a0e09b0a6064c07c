"""Operations that fail whatever the values are: text plus number, a list in capitals, a field that does not exist."""

from __future__ import annotations

from collections.abc import Iterator

from sglspec.analysis.comparisons import TypeProblem
from sglspec.analysis.constants import constant_problems, guards, leads
from sglspec.analysis.declarations import nearest
from sglspec.analysis.infer import NUMERIC, TAKES, attribute_of, infer
from sglspec.analysis.types import Lookup, Type
from sglspec.expressions import LIBRARY, ast
from sglspec.expressions.names import children

_WORDS = {
    "string": "text", "integer": "a number", "number": "a number", "boolean": "true or false", "array": "a list",
    "object": "an object",
}  # fmt: skip
_NUMBERS_HELP = "`int` and `float` turn text into a number; `~` puts texts together."
_ORDER_HELP = "Compare numbers with numbers and texts with texts; `int` and `float` turn text into a number."


def check_operations(expr: ast.Expr, lookup: Lookup) -> Iterator[TypeProblem]:
    """The faults of an expression: of the types in it, then of its constants."""
    typed = list(_typed(expr, lookup, guarded=False))
    yield from typed
    for problem in constant_problems(expr):
        if not any(other.start < problem.end and problem.start < other.end for other in typed):
            yield problem


def _typed(expr: ast.Expr, lookup: Lookup, *, guarded: bool) -> Iterator[TypeProblem]:
    """`guarded`: a missing field is no fault, as in `x.a | default(…)`."""
    for part in children(expr):
        yield from _typed(part, lookup, guarded=guards(expr, part) or (guarded and leads(expr)))
    problem = _of(expr, lookup, guarded)
    if problem is not None:
        yield problem


def check_loop(expr: ast.Expr, lookup: Lookup) -> list[TypeProblem]:
    """What a `{% for %}` goes over: a list, or the keys of an object."""
    type = infer(expr, lookup)
    if type.kind in ("any", "null", "array", "object") or type.nullable:
        return []
    help = "Make a list of the text: `x | lines`, `x | split(',')`, or `x | list` for its characters."
    if type.kind != "string":
        help = "`range(n)` counts." if type.kind in NUMERIC else None
    return [_fault(expr, f"`for` goes over a list, and this is {_WORDS[type.kind]}", help)]


def _of(expr: ast.Expr, lookup: Lookup, guarded: bool) -> TypeProblem | None:
    match expr:
        case ast.Binary(op=op, left=left, right=right):
            return _binary(expr, op, infer(left, lookup), infer(right, lookup)) or _by_zero(expr)
        case ast.MapLit(entries=entries):
            return next((problem for key, _ in entries if (problem := _key(key, infer(key, lookup)))), None)
        case ast.Unary(op="-" | "+", operand=operand):
            return _negative(expr, infer(operand, lookup))
        case ast.Compare(first=first, rest=((op, right),)):
            return _compared(expr, op, infer(first, lookup), infer(right, lookup))
        case ast.Filter(function=name, value=first) | ast.Call(function=name, args=(first, *_)):
            type = infer(first, lookup)
            return _taken(expr, name, type) or _by_attribute(expr, type)
        case ast.Attribute(value=value):
            return _attribute(expr, infer(value, lookup), guarded)
        case ast.Index(value=value, index=index):
            if isinstance(index, ast.Literal) and isinstance(index.value, str) and not guarded:
                problem = _missing(index.value, infer(value, lookup), index.start, index.end)
                if problem is not None:
                    return problem
            return _index(expr, infer(value, lookup), infer(index, lookup))
        case ast.Slice(value=value):
            kind = infer(value, lookup).kind
            if kind in ("integer", "number", "boolean", "object"):
                return _fault(expr, f"`[:]` takes a part of a list or text, and this is {_WORDS[kind]}")
            return None
        case _:
            return None


def _fault(expr: ast.Expr, message: str, help: str | None = None) -> TypeProblem:
    return TypeProblem("S408", message, expr.start, expr.end, help)


def _binary(expr: ast.Binary, op: str, left: Type, right: Type) -> TypeProblem | None:
    kinds = (left.kind, right.kind)
    if any(kind in ("any", "null") for kind in kinds):
        return None
    numbers = all(kind in NUMERIC for kind in kinds)
    same = op == "+" and kinds in (("string", "string"), ("array", "array"))
    times = op == "*" and any(one in ("string", "array") and other in NUMERIC for one, other in (kinds, kinds[::-1]))
    if numbers or same or times:
        return None
    if op == "%" and left.kind == "string":
        return _fault(expr, "`%` does not fill texts here", "Write `'%s' | format(x)`.")
    return _fault(expr, f"`{op}` does not work on {_WORDS[left.kind]} and {_WORDS[right.kind]}", _NUMBERS_HELP)


def _by_zero(expr: ast.Binary) -> TypeProblem | None:
    zero = isinstance(expr.right, ast.Literal) and not isinstance(expr.right.value, bool) and expr.right.value == 0
    return _fault(expr, "division by zero") if zero and expr.op in ("/", "//", "%") else None


def _key(key: ast.Expr, type: Type) -> TypeProblem | None:
    if type.kind in ("any", "string"):
        return None
    word = "null" if type.kind == "null" else _WORDS.get(type.kind)
    message = f"the keys of an object are texts, and this is {word}"
    return _fault(key, message, "Put it in quotes, or write `str(…)`.") if word is not None else None


def _negative(expr: ast.Unary, operand: Type) -> TypeProblem | None:
    if operand.kind in ("any", "null", *NUMERIC):
        return None
    return _fault(expr, f"`-` wants a number, and this is {_WORDS[operand.kind]}", _NUMBERS_HELP)


def _compared(expr: ast.Compare, op: str, left: Type, right: Type) -> TypeProblem | None:
    if op in ("in", "not in"):
        if right.kind in ("integer", "number", "boolean"):
            return _fault(expr, f"`in` wants a list, text or an object, and this is {_WORDS[right.kind]}")
        if right.kind in ("string", "object") and left.kind not in ("any", "null", "string"):
            whole = "text" if right.kind == "string" else "an object"
            message = f"`in` looks for text in {whole}, and this is {_WORDS[left.kind]}"
            return _fault(expr, message, "`str` makes text.")
        return None
    if op in ("==", "!=") or left.kind in ("any", "null") or right.kind in ("any", "null"):
        return None
    alike = left.kind == right.kind or (left.kind in NUMERIC and right.kind in NUMERIC)
    if alike and left.kind != "object":
        return None
    return _fault(expr, f"there is no order between {_WORDS[left.kind]} and {_WORDS[right.kind]}", _ORDER_HELP)


def _taken(expr: ast.Filter | ast.Call, name: str, first: Type) -> TypeProblem | None:
    function = LIBRARY.get(name)
    takes = TAKES.get(function.name) if function is not None else None
    if takes is None or first.kind in takes or first.kind in ("any", "null"):
        return None
    wanted = list(dict.fromkeys(_WORDS[kind] for kind in _WORDS if kind in takes and kind not in ("boolean",)))
    if "string" in takes:
        wanted = [word for word in wanted if word != "a number"]
    message = f"`{name}` needs {' or '.join(wanted)}, and this is {_WORDS[first.kind]}"
    return TypeProblem("S408", message, expr.name_start, expr.name_end, _taken_help(name, first, takes))


def _taken_help(name: str, first: Type, takes: frozenset[str]) -> str | None:
    if first.kind == "array" and "string" in takes:
        return f"For every item: `map('{name}')`; one text of all: `join(', ')`."
    if first.kind == "string" and takes == frozenset(NUMERIC):
        return "`int` and `float` turn text into a number."
    return "`split` and `lines` make lists of texts." if first.kind == "string" and "array" in takes else None


def _missing(name: str, owner: Type, start: int, end: int) -> TypeProblem | None:
    """A field that an object does not have, where all are known."""
    if owner.kind != "object" or owner.fields is None or not owner.closed or name in owner.fields:
        return None
    close = nearest(name, list(owner.fields))
    known = ", ".join(list(owner.fields)[:12])
    help = f"Did you mean `{close}`?" if close else f"It has: {known}." if known else None
    return TypeProblem("S409", f"there is no field `{name}` here", start, end, help)


def _by_attribute(expr: ast.Filter | ast.Call, listed: Type) -> TypeProblem | None:
    """`attribute='…'` names a field that the items do not have."""
    path = attribute_of(expr.kwargs)
    if path is None or listed.kind != "array" or listed.items is None:
        return None
    whole = listed.items
    paths = str(path.value).split(",") if expr.function == "sort" else [str(path.value)]
    for name in paths:
        problem = _missing(name.split(".")[0], whole, path.start, path.end)
        if problem is not None:
            return problem
    return None


def _attribute(expr: ast.Attribute, owner: Type, guarded: bool) -> TypeProblem | None:
    start, end = expr.name_start, expr.name_start + len(expr.name)
    if owner.kind == "object":
        return _missing(expr.name, owner, start, end) if not guarded else None
    if owner.kind in ("any", "null"):
        return None
    help = f"Write `x | {expr.name}`." if expr.name in LIBRARY else None
    if owner.kind == "array":
        help = help or f"An item is `x[0].{expr.name}`; of all items, `x | map(attribute='{expr.name}')`."
    message = f"`.{expr.name}` takes a part of an object, and this is {_WORDS[owner.kind]}"
    return TypeProblem("S408", message, start, end, help)


def _index(expr: ast.Index, owner: Type, index: Type) -> TypeProblem | None:
    if owner.kind in ("integer", "number", "boolean"):
        return _fault(expr, f"{_WORDS[owner.kind]} has no parts")
    if owner.kind in ("array", "string") and index.kind not in ("any", "null", *NUMERIC):
        whole = "a list" if owner.kind == "array" else "text"
        return _fault(expr, f"a part of {whole} is named by a whole number, not by {_WORDS[index.kind]}")
    return None

"""What a template or expression reads: its free variables, and the functions that it calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sglspec.expressions import ast


@dataclass(frozen=True, slots=True)
class NameUse:
    """One use of a variable that the text itself does not bind.

    `guarded`: the use cannot fail where the variable is unbound, because it stands inside `x is defined` or
    `x | default(…)`, or where a condition has made sure of it (`x if x is defined else …`). `meta`: it is the
    argument of `meta(x)`.
    """

    name: str
    start: int
    end: int
    guarded: bool = False
    meta: bool = False


@dataclass(frozen=True, slots=True)
class Reads:
    """All uses in the order of the text; each function once."""

    names: tuple[NameUse, ...]
    functions: tuple[str, ...]


def reads_of_expression(expr: ast.Expr) -> Reads:
    """What an expression reads."""
    reader = _Reader()
    reader.expr(expr, frozenset())
    return reader.result()


def reads_of_template(body: Sequence[ast.Stmt]) -> Reads:
    """What a template reads."""
    reader = _Reader()
    reader.body(body, frozenset())
    return reader.result()


_Safe = frozenset[str]


class _Reader:
    """`safe`: the variables that are bound for sure at this place."""

    def __init__(self) -> None:
        self._uses: list[NameUse] = []
        self._functions: dict[str, None] = {}
        self._bound: list[set[str]] = []

    def result(self) -> Reads:
        return Reads(tuple(sorted(self._uses, key=lambda use: (use.start, use.end))), tuple(self._functions))

    def body(self, body: Iterable[ast.Stmt], safe: _Safe) -> None:
        for statement in body:
            if isinstance(statement, ast.Output):
                self.expr(statement.value, safe)
            elif isinstance(statement, ast.If):
                here = safe
                for branch in statement.branches:
                    if branch.test is None:
                        self.body(branch.body, here)
                        continue
                    self.expr(branch.test, here)
                    if_true, if_false = _narrow(branch.test)
                    self.body(branch.body, here | if_true)
                    here |= if_false
            elif isinstance(statement, ast.For):
                self._for(statement, safe)

    def _for(self, statement: ast.For, safe: _Safe) -> None:
        self.expr(statement.items, safe)
        targets = {target.name for target in statement.targets}
        inner = safe
        if statement.filter is not None:
            self._bound.append(targets)
            self.expr(statement.filter, safe)
            self._bound.pop()
            inner = safe | _narrow(statement.filter)[0]
        self._bound.append(targets | {"loop"})
        self.body(statement.body, inner)
        self._bound.pop()
        self.body(statement.otherwise, safe)

    def _name(self, name: ast.Name, guarded: bool, meta: bool = False) -> None:
        if meta or not any(name.name in names for names in self._bound):
            self._uses.append(NameUse(name.name, name.start, name.end, guarded, meta))

    def expr(self, expr: ast.Expr, safe: _Safe) -> None:
        match expr:
            case ast.Name():
                self._name(expr, expr.name in safe)
            case ast.Call() | ast.Filter():
                self._call(expr, safe)
            case ast.Test():
                self._value(expr.value, safe, expr.test in ("defined", "undefined"))
                self._all(expr.args, safe)
            case ast.Logical():
                here = safe
                for operand in expr.operands:
                    self.expr(operand, here)
                    if_true, if_false = _narrow(operand)
                    here |= if_true if expr.op == "and" else if_false
            case ast.Conditional():
                self.expr(expr.test, safe)
                if_true, if_false = _narrow(expr.test)
                self.expr(expr.body, safe | if_true)
                if expr.otherwise is not None:
                    self.expr(expr.otherwise, safe | if_false)
            case _:
                self._all(children(expr), safe)

    def _all(self, exprs: Iterable[ast.Expr], safe: _Safe) -> None:
        for expr in exprs:
            self.expr(expr, safe)

    def _call(self, call: ast.Call | ast.Filter, safe: _Safe) -> None:
        self._functions[call.function] = None
        args = (call.value, *call.args) if isinstance(call, ast.Filter) else call.args
        if call.function == "meta" and isinstance(args[0], ast.Name):
            self._name(args[0], args[0].name in safe, meta=True)
            return
        for at, arg in enumerate(args):
            self._value(arg, safe, at == 0 and call.function == "default")
        for key, arg in call.kwargs:
            self._value(arg, safe, key == "value" and call.function == "default")

    def _value(self, expr: ast.Expr, safe: _Safe, guarded: bool) -> None:
        """An operand; with `guarded`, of a construct that takes what is not there."""
        if not guarded:
            self.expr(expr, safe)
            return
        while isinstance(expr, ast.Attribute | ast.Index):
            if isinstance(expr, ast.Index):
                self.expr(expr.index, safe)
            expr = expr.value
        if isinstance(expr, ast.Name):
            self._name(expr, True)
        else:
            self.expr(expr, safe)


def _narrow(test: ast.Expr) -> tuple[_Safe, _Safe]:
    """The variables that are bound if the test is true, and those that are bound if it is false."""
    nothing: _Safe = frozenset()
    if isinstance(test, ast.Test) and test.test in ("defined", "undefined"):
        value = test.value
        while isinstance(value, ast.Attribute | ast.Index):
            value = value.value
        names: _Safe = frozenset({value.name}) if isinstance(value, ast.Name) else nothing
        positive = (test.test == "defined") != test.negated
        return (names, nothing) if positive else (nothing, names)
    if isinstance(test, ast.Unary) and test.op == "not":
        if_true, if_false = _narrow(test.operand)
        return if_false, if_true
    if isinstance(test, ast.Logical):
        sides = [_narrow(operand) for operand in test.operands]
        if test.op == "and":
            return nothing.union(*(side[0] for side in sides)), nothing
        return nothing, nothing.union(*(side[1] for side in sides))
    return nothing, nothing


def children(expr: ast.Expr) -> tuple[ast.Expr, ...]:
    """The direct parts of an expression, in the order of the text."""
    match expr:
        case ast.Name() | ast.Literal():
            return ()
        case ast.ListLit():
            return expr.items
        case ast.MapLit():
            return tuple(part for entry in expr.entries for part in entry)
        case ast.Attribute():
            return (expr.value,)
        case ast.Index():
            return (expr.value, expr.index)
        case ast.Slice():
            return (expr.value, *(part for part in (expr.lower, expr.upper, expr.step) if part is not None))
        case ast.Call():
            return (*expr.args, *(arg for _, arg in expr.kwargs))
        case ast.Filter():
            return (expr.value, *expr.args, *(arg for _, arg in expr.kwargs))
        case ast.Test():
            return (expr.value, *expr.args)
        case ast.Compare():
            return (expr.first, *(operand for _, operand in expr.rest))
        case ast.Binary():
            return (expr.left, expr.right)
        case ast.Concat():
            return expr.parts
        case ast.Unary():
            return (expr.operand,)
        case ast.Logical():
            return expr.operands
        case ast.Conditional():
            others = () if expr.otherwise is None else (expr.otherwise,)
            return (expr.body, expr.test, *others)

"""Parts of expressions that read no variable, and have no value: a division by zero, an endless list."""

from __future__ import annotations

from collections.abc import Iterator

from sglspec.analysis.comparisons import TypeProblem
from sglspec.expressions import SCOPE_FUNCTIONS, Budget, EvaluationError, Origin, Value, ast
from sglspec.expressions.budget import MAX_STEPS
from sglspec.expressions.names import children
from sglspec.expressions.walk import Walk

_STEPS = 2_000
"""What is spent on one constant at check time; one that takes longer is left to the run."""


def constant_problems(expr: ast.Expr) -> Iterator[TypeProblem]:
    """The faults of what is the same in every run."""
    found: list[ast.Expr] = []
    if _collect(expr, found, guarded=False):
        found.append(expr)
    for constant in found:
        problem = _problem(constant)
        if problem is not None:
            yield problem


def constant_value(expr: ast.Expr) -> Value:
    """The value of an expression that is the same in every run; null where it is not, or has none."""
    try:
        return _evaluated(expr, Budget(steps=_STEPS)) if _collect(expr, [], guarded=False) else None
    except EvaluationError:
        return None


def guards(expr: ast.Expr, part: ast.Expr) -> bool:
    """Whether a part may be missing: it stands before `default`, or before `is defined`."""
    match expr:
        case ast.Filter(function="default", value=value):
            return part is value
        case ast.Call(function="default", args=(value, *_)):
            return part is value
        case ast.Test(test="defined" | "undefined", value=value):
            return part is value
        case _:
            return False


def leads(expr: ast.Expr) -> bool:
    """Whether an expression takes a part of another one."""
    return isinstance(expr, ast.Attribute | ast.Index)


def _collect(expr: ast.Expr, found: list[ast.Expr], *, guarded: bool) -> bool:
    """Whether an expression is a constant. If not, its largest constant parts are in `found`."""
    if isinstance(expr, ast.Name | ast.Literal):
        return isinstance(expr, ast.Literal)
    constant = not (isinstance(expr, ast.Call | ast.Filter) and expr.function in SCOPE_FUNCTIONS)
    parts: list[ast.Expr] = []
    for part in children(expr):
        may_miss = guards(expr, part) or (guarded and leads(expr))
        if not _collect(part, found, guarded=may_miss):
            constant = False
        elif not (may_miss and leads(part)):
            parts.append(part)
    if not constant:
        found += parts
    return constant


def _problem(constant: ast.Expr) -> TypeProblem | None:
    budget = Budget(steps=_STEPS)
    try:
        _evaluated(constant, budget)
    except EvaluationError as error:
        if 0 > budget.steps >= _STEPS - MAX_STEPS:
            return None  # within what a run may spend
        return TypeProblem(error.cause or "S408", error.message.rstrip("."), error.start, error.end, error.help)
    return None


def _evaluated(constant: ast.Expr, budget: Budget) -> Value:
    walk = Walk(_Empty(), budget)
    return walk.guarded(lambda: walk.eval(constant))


class _Empty:
    """A scope without variables."""

    def lookup(self, name: str) -> tuple[Value, Origin]:
        raise KeyError(name)

    def meta(self, name: str) -> Value:
        raise KeyError(name)

    def messages(self) -> Value:
        return []

    def transcript(self) -> str:
        return ""

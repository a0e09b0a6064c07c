"""What is said about functions before a run is what they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from sglspec.analysis.infer import TAKES, infer
from sglspec.analysis.operations import check_operations
from sglspec.analysis.types import Type, of_value
from sglspec.expressions import LIBRARY, Value, ast, evaluate, parse_expression
from sglspec.expressions.errors import EvaluationError
from tests.expressions.scopes import PlainScope

VALUES: dict[str, list[Value]] = {
    "string": ["", "a", "7", '{"a": 1}'], "integer": [0, 1, 3], "number": [0.5, 2.0], "boolean": [True, False],
    "array": [[], [1, 2], ["a"], [[1]], [["a", 1]], [{}]], "object": [{}, {"a": 1}, {"a": "b"}],
}  # fmt: skip
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "<", "<=", "in"]


def with_value(name: str) -> ast.Expr | None:
    """The function's example with the variable `v` in front of all other arguments."""
    root = parse_expression(LIBRARY[name].example[0]).root
    if isinstance(root, ast.Filter):
        return replace(root, function=name, value=ast.Name(root.start, root.start, "v"))
    if isinstance(root, ast.Call) and root.args:
        return replace(root, function=name, args=(ast.Name(root.start, root.start, "v"), *root.args[1:]))
    return None


def outcome(root: ast.Expr, value: Value) -> tuple[bool, Value]:
    """Whether there is a value, and which."""
    try:
        return True, evaluate(replace(parse_expression("v"), root=root), PlainScope({"v": value}))
    except EvaluationError:
        return False, None


def fits(kind: str, value: Value) -> bool:
    own = of_value(value).kind
    return kind in ("any", own) or (kind == "number" and own == "integer")


@pytest.mark.parametrize("name", [name for name in LIBRARY if name not in ("format", "min", "max", "zip")])
def test_functions_take_and_give_what_is_said(name: str) -> None:
    root = with_value(name)
    assert root is not None
    takes = TAKES.get(LIBRARY[name].name, frozenset(VALUES))
    for kind, values in VALUES.items():
        results = [outcome(root, value) for value in values]
        if kind not in takes:
            assert not any(done for done, _ in results), f"`{name}` takes {kind}"
        else:
            assert any(done for done, _ in results), f"`{name}` takes no {kind}"
        for value, (done, result) in zip(values, results, strict=True):
            type = infer(root, lambda _, value=value: of_value(value))
            if done:
                assert fits(type.kind, result) or (result is None and type.nullable), (name, value, result, type)


@pytest.mark.parametrize("op", OPERATORS)
def test_operators_fail_where_it_is_said_and_only_there(op: str) -> None:
    root = parse_expression(f"v {op} w").root
    for left, lefts in VALUES.items():
        for right, rights in VALUES.items():
            scopes: list[dict[str, Any]] = [{"v": one, "w": other} for one in lefts for other in rights]
            done: list[Value] = []
            for scope in scopes:
                try:
                    done.append(evaluate(replace(parse_expression("v"), root=root), PlainScope(scope)))
                except EvaluationError:
                    continue
            types = {"v": of_value(lefts[-1]), "w": of_value(rights[-1])}
            problems = list(check_operations(root, types.__getitem__))
            assert not (problems and done), (left, op, right, done)
            # a number may be whole, so a text times a number may work
            assert problems or done or (op == "*" and "number" in (left, right)), (left, op, right)
            for value in done:
                assert fits(infer(root, types.__getitem__).kind, value), (left, op, right, value)


@pytest.mark.parametrize("name", list(LIBRARY))
def test_a_chain_of_filters_is_gone_through_once(name: str) -> None:
    """A function that looked at its value twice would double the work with every filter."""
    looked: list[str] = []

    def lookup(variable: str) -> Type:
        looked.append(variable)
        return of_value([1])

    root: ast.Expr = ast.Name(0, 1, "v")
    for _ in range(12):
        root = replace(CHAINED, function=name, value=root)
    infer(root, lookup)
    assert len(looked) <= 1


CHAINED = cast(ast.Filter, parse_expression("v | join('a')").root)

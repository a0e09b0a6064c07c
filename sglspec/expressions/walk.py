"""The walk over an expression under a budget. Nothing of Python is reachable from a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sglspec.expressions import ast, operators
from sglspec.expressions.access import part_at, part_by_name
from sglspec.expressions.budget import NODE_COST, Budget
from sglspec.expressions.errors import ArgumentProblem, EvaluationError, Problem
from sglspec.expressions.function import Context, bind
from sglspec.expressions.library import LIBRARY, SCOPE_FUNCTIONS, TESTS
from sglspec.expressions.scope import Scope
from sglspec.expressions.values import (
    Origin,
    Value,
    char_width,
    compare,
    describe,
    equal,
    least_trusted,
    text_width,
    truthy,
    value_to_text,
)


class Walk:
    """One evaluation. `origin` is the least trusted origin read since it was last reset."""

    def __init__(self, scope: Scope, budget: Budget) -> None:
        self.scope = scope
        self.budget = budget
        self.origin: Origin = "author"
        self.locals: list[dict[str, tuple[Value, Origin]]] = []
        self._context = Context(budget, self._apply, self._test)

    def guarded(self, work: Callable[[], Any]) -> Any:
        """Run the evaluation; a stack that is too deep is an error of the template."""
        try:
            return work()
        except RecursionError:
            raise EvaluationError("S707", "This is nested too deeply.", 0, 1, None, "S253") from None

    def eval(self, node: ast.Expr) -> Value:
        try:
            self.budget.charge(NODE_COST)
            return _HANDLERS[type(node)](self, node)
        except Problem as problem:
            raise placed(problem, node) from None

    def literal(self, node: ast.Literal) -> Value:
        return node.value

    def name(self, node: ast.Name) -> Value:
        value, origin = self._lookup(node.name)
        self.origin = least_trusted(self.origin, origin)
        return value

    def _lookup(self, name: str) -> tuple[Value, Origin]:
        for names in reversed(self.locals):
            if name in names:
                return names[name]
        try:
            return self.scope.lookup(name)
        except KeyError:
            help = f"Bind it first, or write `{name} | default('…')`."
            raise Problem(f"`{name}` has no value here.", help, "S301") from None

    def list_(self, node: ast.ListLit) -> Value:
        return [self.eval(item) for item in node.items]

    def map_(self, node: ast.MapLit) -> Value:
        built: dict[str, Value] = {}
        for key_node, value_node in node.entries:
            key = self.eval(key_node)
            if not isinstance(key, str):
                message = f"The keys of an object are texts, and this is {describe(key)}."
                raise EvaluationError("S707", message, key_node.start, key_node.end, "Put it in quotes.", "S408")
            built[key] = self.eval(value_node)
        return built

    def attribute(self, node: ast.Attribute) -> Value:
        return part_by_name(self.eval(node.value), node.name)

    def index(self, node: ast.Index) -> Value:
        return part_at(self.eval(node.value), self.eval(node.index))

    def slice_(self, node: ast.Slice) -> Value:
        value = self.eval(node.value)
        lower, upper, step = map(self._bound, (node.lower, node.upper, node.step))
        if step == 0:
            raise Problem("The step of a part must not be 0.", cause="S408")
        if not isinstance(value, str | list):
            raise Problem(f"`[:]` takes a part of a list or text, and this is {describe(value)}.", None, "S408")
        part = slice(lower, upper, step)
        count = len(range(*part.indices(len(value))))
        if isinstance(value, str):
            self.budget.text(count, char_width(value))
        else:
            self.budget.items(count)
        return value[part]

    def _bound(self, node: ast.Expr | None) -> int | None:
        bound = None if node is None else self.eval(node)
        if bound is None or (isinstance(bound, int) and not isinstance(bound, bool)):
            return bound
        raise Problem(f"A part of a list is named by whole numbers, not by {describe(bound)}.", None, "S408")

    def call(self, node: ast.Call | ast.Filter) -> Value:
        name = node.function
        if name in SCOPE_FUNCTIONS:
            return self._ask(node)
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        nodes = (node.value, *node.args) if isinstance(node, ast.Filter) else node.args
        for at, arg in enumerate(nodes):
            args.append(self._or_null(arg) if name == "default" and at == 0 else self.eval(arg))
        for key, arg in node.kwargs:
            kwargs[key] = self._or_null(arg) if name == "default" and key == "value" else self.eval(arg)
        return self._apply(name, args, kwargs)

    def _ask(self, node: ast.Call | ast.Filter) -> Value:
        # The conversation and what is known about a generation hold what the model wrote.
        self.origin = "generated"
        if node.function == "messages":
            return self.scope.messages()
        if node.function == "transcript":
            return self.scope.transcript()
        named = node.value if isinstance(node, ast.Filter) else node.args[0]
        assert isinstance(named, ast.Name)
        try:
            return self.scope.meta(named.name)
        except KeyError:
            raise Problem(f"There is no `meta` of `{named.name}` here.", None, "S301") from None

    def _apply(self, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Call a library function."""
        function = LIBRARY.get(name)
        if function is None:
            raise Problem(f"There is no function `{name}`.", None, "S304")
        try:
            positional, named = bind(function, args, kwargs)
            return function.implementation(self._context, *positional, **named)
        except ArgumentProblem as problem:
            raise Problem(f"`{name}` {problem.message}", problem.help, problem.cause) from None

    def _test(self, name: str, value: Value, args: Sequence[Value]) -> bool:
        """A test, or a library function used as one."""
        entry = TESTS.get(name)
        if entry is None:
            return truthy(self._apply(name, (value, *args), {}))
        if len(args) != entry.arguments:
            raise Problem(f"The test `{name}` takes {entry.arguments} arguments, not {len(args)}.", None, "S406")
        return entry.holds(value, tuple(args), self.budget)

    def test(self, node: ast.Test) -> Value:
        lenient = node.test in ("defined", "undefined")
        value = self._or_null(node.value) if lenient else self.eval(node.value)
        return self._test(node.test, value, [self.eval(arg) for arg in node.args]) != node.negated

    def _or_null(self, node: ast.Expr) -> Value:
        """The value, and null for what is not there: an unbound name, a part of null, an index out of range."""
        if isinstance(node, ast.Name):
            try:
                return self.name(node)
            except Problem:
                return None
        if not isinstance(node, ast.Attribute | ast.Index):
            return self.eval(node)
        base = self._or_null(node.value)
        if base is None:
            return None
        if isinstance(node, ast.Attribute):
            return part_by_name(base, node.name)
        index = self.eval(node.index)
        if isinstance(base, list) and isinstance(index, int) and not -len(base) <= index < len(base):
            return None
        return part_at(base, index)

    def compare(self, node: ast.Compare) -> Value:
        left = self.eval(node.first)
        for op, right_node in node.rest:
            right = self.eval(right_node)
            if not _holds(op, left, right, self.budget):
                return False
            left = right
        return True

    def binary(self, node: ast.Binary) -> Value:
        return _ARITHMETIC[node.op](self.eval(node.left), self.eval(node.right), self.budget)

    def concat(self, node: ast.Concat) -> Value:
        texts = [value_to_text(self.eval(part), self.budget) for part in node.parts]
        self.budget.text(sum(map(len, texts)), text_width(texts))
        return "".join(texts)

    def unary(self, node: ast.Unary) -> Value:
        value = self.eval(node.operand)
        if node.op == "not":
            return not truthy(value)
        return operators.negate(value) if node.op == "-" else operators.negate(operators.negate(value))

    def logical(self, node: ast.Logical) -> Value:
        value: Value = None
        for operand in node.operands:
            value = self.eval(operand)
            if truthy(value) == (node.op == "or"):
                return value
        return value

    def conditional(self, node: ast.Conditional) -> Value:
        if truthy(self.eval(node.test)):
            return self.eval(node.body)
        return None if node.otherwise is None else self.eval(node.otherwise)


def _holds(op: ast.CompareOp, left: Value, right: Value, budget: Budget) -> bool:
    if op in ("==", "!="):
        return equal(left, right, budget) == (op == "==")
    if op in ("in", "not in"):
        return operators.contains(left, right, budget) == (op == "in")
    order = compare(left, right, budget)
    if op == "<":
        return order < 0
    if op == "<=":
        return order <= 0
    return order > 0 if op == ">" else order >= 0


def placed(problem: Problem, node: ast.Node) -> EvaluationError:
    return EvaluationError("S707", problem.message, node.start, node.end, problem.help, problem.cause)


_ARITHMETIC: dict[ast.BinaryOp, Callable[[Value, Value, Budget], Value]] = {
    "+": operators.add,
    "-": operators.subtract,
    "*": operators.multiply,
    "/": operators.divide,
    "//": operators.floor_divide,
    "%": operators.modulo,
    "**": operators.power,
}

_HANDLERS: dict[type[ast.Node], Callable[[Walk, Any], Value]] = {
    ast.Literal: Walk.literal,
    ast.Name: Walk.name,
    ast.ListLit: Walk.list_,
    ast.MapLit: Walk.map_,
    ast.Attribute: Walk.attribute,
    ast.Index: Walk.index,
    ast.Slice: Walk.slice_,
    ast.Call: Walk.call,
    ast.Filter: Walk.call,
    ast.Test: Walk.test,
    ast.Compare: Walk.compare,
    ast.Binary: Walk.binary,
    ast.Concat: Walk.concat,
    ast.Unary: Walk.unary,
    ast.Logical: Walk.logical,
    ast.Conditional: Walk.conditional,
}

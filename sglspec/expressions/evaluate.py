"""Evaluation of expressions to values and of templates to segments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sglspec.expressions import ast
from sglspec.expressions.budget import NODE_COST, Budget
from sglspec.expressions.errors import EvaluationError, Problem
from sglspec.expressions.scope import Scope
from sglspec.expressions.syntax import Expression, Template
from sglspec.expressions.values import Origin, Segment, Value, describe, truthy, value_to_text
from sglspec.expressions.walk import Walk, placed


def evaluate(expression: Expression, scope: Scope, budget: Budget | None = None) -> Value:
    """The value of an expression. Raises `EvaluationError`."""
    return evaluate_traced(expression, scope, budget)[0]


def evaluate_traced(expression: Expression, scope: Scope, budget: Budget | None = None) -> tuple[Value, Origin]:
    """The value, and the least trusted origin among the variables that were read."""
    evaluator = Walk(scope, budget if budget is not None else Budget())
    value = evaluator.guarded(lambda: evaluator.eval(expression.root))
    return value, evaluator.origin


def render(template: Template, scope: Scope, budget: Budget | None = None) -> list[Segment]:
    """The text of a template as segments, neighbours of one kind merged. Raises `EvaluationError`.

    Literal text is the author's; an inserted value has the least trusted origin among the variables that it read.
    """
    evaluator = _TemplateWalk(scope, budget if budget is not None else Budget())
    evaluator.guarded(lambda: evaluator.run(template.body))
    pieces = evaluator.pieces
    if template.is_message and template.ends_in_tag_line and pieces:
        last = pieces[-1]
        if last.literal and last.text.endswith("\n"):
            pieces[-1] = Segment(last.text[:-1], last.origin, literal=True)
    return _merged(pieces)


def _merged(pieces: list[Segment]) -> list[Segment]:
    """Neighbours of one kind as one segment."""
    groups = groupby(pieces, key=lambda piece: (piece.origin, piece.literal))
    merged = (Segment("".join(piece.text for piece in run), origin, literal) for (origin, literal), run in groups)
    return [segment for segment in merged if segment.text]


class _TemplateWalk(Walk):
    """Adds the statements; `pieces` is the text so far."""

    def __init__(self, scope: Scope, budget: Budget) -> None:
        super().__init__(scope, budget)
        self.pieces: list[Segment] = []

    def run(self, body: Sequence[ast.Stmt]) -> None:
        for statement in body:
            try:
                self.budget.charge(NODE_COST)
                if isinstance(statement, ast.Text):
                    self._emit(statement.text, "author", literal=True)
                elif isinstance(statement, ast.Output):
                    self.origin = "author"
                    value = self.eval(statement.value)
                    self._emit(value_to_text(value, self.budget), self.origin)
                elif isinstance(statement, ast.If):
                    self._if(statement)
                else:
                    self._for(statement)
            except Problem as problem:
                raise placed(problem, statement) from None

    def _emit(self, text: str, origin: Origin, *, literal: bool = False) -> None:
        self.budget.emit(text)
        if text:
            self.pieces.append(Segment(text, origin, literal))

    def _if(self, statement: ast.If) -> None:
        for branch in statement.branches:
            if branch.test is None or truthy(self.eval(branch.test)):
                self.run(branch.body)
                return

    def _for(self, statement: ast.For) -> None:
        self.origin = "author"
        items = self._items(statement)
        origin = self.origin
        self.locals.append({})
        try:
            if statement.filter is not None:
                items = [item for item in items if self._bind(statement, item, origin) and self._passes(statement)]
            for at, item in enumerate(items):
                self.budget.charge(NODE_COST)
                self._bind(statement, item, origin)
                if statement.uses_loop:
                    self.locals[-1]["loop"] = (_loop(at, len(items)), "author")
                self.run(statement.body)
        finally:
            self.locals.pop()
        if not items:
            self.run(statement.otherwise)

    def _items(self, statement: ast.For) -> list[Value]:
        value = self.eval(statement.items)
        if isinstance(value, dict):
            value = list[Value](value)
        if isinstance(value, list):
            self.budget.items(len(value))
            return value
        help = "`default` gives a list for null: `x | default([])`."
        if isinstance(value, str):
            help = "Make a list of the text: `x | lines`, `x | split(',')`, or `x | list` for its characters."
        message = f"`for` goes over a list, and this is {describe(value)}."
        place = statement.items
        raise EvaluationError("S707", message, place.start, place.end, help, "S408")

    def _passes(self, statement: ast.For) -> bool:
        return statement.filter is not None and truthy(self.eval(statement.filter))

    def _bind(self, statement: ast.For, item: Value, origin: Origin) -> bool:
        targets, names = statement.targets, self.locals[-1]
        if len(targets) == 1:
            names[targets[0].name] = (item, origin)
            return True
        if not isinstance(item, list) or len(item) != len(targets):
            has = f"{len(item)} items" if isinstance(item, list) else describe(item)
            message = f"The loop has {len(targets)} variables, and an item is {has}."
            raise EvaluationError("S707", message, targets[0].start, targets[-1].end, None, "S408")
        for target, part in zip(targets, item, strict=True):
            names[target.name] = (part, origin)
        return True


def _loop(at: int, length: int) -> Value:
    return {"index": at + 1, "index0": at, "first": at == 0, "last": at + 1 == length, "length": length}

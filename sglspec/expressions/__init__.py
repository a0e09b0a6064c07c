"""Templates and expressions: parsing, static information, budgeted evaluation, and the library of functions."""

from sglspec.expressions.budget import Budget
from sglspec.expressions.errors import EvaluationError, ExpressionSyntaxError, Problem
from sglspec.expressions.evaluate import evaluate, evaluate_traced, render
from sglspec.expressions.function import Function, Param
from sglspec.expressions.library import LIBRARY, SCOPE_FUNCTIONS, TESTS
from sglspec.expressions.names import NameUse
from sglspec.expressions.scope import Scope
from sglspec.expressions.syntax import (
    Expression,
    Template,
    looks_like_expression,
    parse_expression,
    parse_template,
)
from sglspec.expressions.values import Origin, Segment, Value, describe, least_trusted, truthy, value_to_text

__all__ = [
    "LIBRARY",
    "SCOPE_FUNCTIONS",
    "TESTS",
    "Budget",
    "EvaluationError",
    "Expression",
    "ExpressionSyntaxError",
    "Function",
    "NameUse",
    "Origin",
    "Param",
    "Problem",
    "Scope",
    "Segment",
    "Template",
    "Value",
    "describe",
    "evaluate",
    "evaluate_traced",
    "least_trusted",
    "looks_like_expression",
    "parse_expression",
    "parse_template",
    "render",
    "truthy",
    "value_to_text",
]

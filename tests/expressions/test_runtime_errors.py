"""Expressions that fail on the data: the place, the cause, and words of the message."""

from __future__ import annotations

import pytest

from sglspec.expressions import Budget, EvaluationError, evaluate, parse_expression, parse_template, render
from sglspec.expressions.budget import MAX_STEPS
from tests.expressions.scopes import PlainScope, value_of

VALUES = {"text": "tea", "n": 3, "nothing": None, "items": [1, 2], "person": {"name": "Zoë"}, "yes": True}

# expression, cause, the text pointed at, words
ROWS = [
    ("ghost", "S301", "ghost", "has no value"),
    ("ghost.x", "S301", "ghost", "default"),
    ("nothing.x", "S408", "nothing.x", "null has no `x`"),
    ("nothing[0]", "S408", "nothing[0]", "default"),
    ("text.x", "S408", "text.x", "text"),
    ("text.upper", "S408", "text.upper", "x | upper"),
    ("items.name", "S408", "items.name", "map(attribute='name')"),
    ("items[2]", "S408", "items[2]", "2 items"),
    ("items[-3]", "S408", "items[-3]", "no item -3"),
    ("items['a']", "S408", "items['a']", "whole number"),
    ("items[1.0]", "S408", "items[1.0]", "whole number"),
    ("items[true]", "S408", "items[true]", "whole number"),
    ("items['a':]", "S408", "items['a':]", "whole numbers"),
    ("items[::0]", "S408", "items[::0]", "must not be 0"),
    ("n[0]", "S408", "n[0]", "no parts"),
    ("n[1:]", "S408", "n[1:]", "number"),
    ("person[true]", "S408", "person[true]", "named by text"),
    ("{n: 1}", "S408", "n", "keys of an object"),
    ("1 + text", "S408", "1 + text", "`~`"),
    ("text - 1", "S408", "text - 1", "does not work"),
    ("2 * (text - 1)", "S408", "text - 1", "text and a number"),
    ("nothing + 1", "S408", "nothing + 1", "default(0)"),
    ("yes + 1", "S408", "yes + 1", "true"),
    ("'%s' % n", "S408", "'%s' % n", "format"),
    ("1 / 0", "S408", "1 / 0", "zero"),
    ("1 // 0", "S408", "1 // 0", "zero"),
    ("1 % 0", "S408", "1 % 0", "zero"),
    ("0 ** -1", "S408", "0 ** -1", "no result"),
    ("(0 - 8) ** 0.5", "S408", "(0 - 8) ** 0.5", "no result"),
    ("1e308 * 10", "S408", "1e308 * 10", "finite"),
    ("2 ** 64", "S253", "2 ** 64", "too large"),
    ("9223372036854775807 + 2", "S253", "9223372036854775807 + 2", "too large"),
    ("-text", "S408", "-text", "wants a number"),
    ("text < 1", "S408", "text < 1", "no order"),
    ("nothing < 1", "S408", "nothing < 1", "between null and a number"),
    ("person < person", "S408", "person < person", "no order"),
    ("1 in text", "S408", "1 in text", "text"),
    ("1 in n", "S408", "1 in n", "wants a list"),
    ("text is odd", "S408", "text is odd", "whole number"),
    ("n is divisibleby 0", "S408", "n is divisibleby 0", "zero"),
    ("nothing | upper", "S408", "nothing | upper", "default"),
    ("items | upper", "S408", "items | upper", "a list"),
    ("n | join", "S408", "n | join", "needs a list"),
    ("text | sum", "S408", "text | sum", "needs a list"),
    ("['a', 1] | sum", "S408", "['a', 1] | sum", "needs a number"),
    ("['a', 1] | sort", "S408", "['a', 1] | sort", "no order"),
    ("text | split('')", "S408", "text | split('')", "not empty"),
    ("range(1, 2, 0)", "S408", "range(1, 2, 0)", "not 0"),
    ("range(1.5)", "S408", "range(1.5)", "whole number"),
    ("zip([1], [1, 2])", "S408", "zip([1], [1, 2])", "one length"),
    ("batch(items, 0)", "S408", "batch(items, 0)", "at least 1"),
    ("text | bool", "S408", "text | bool", "yes, no"),
    ("text | from_json", "S408", "text | from_json", "needs JSON"),
    ("'[NaN]' | from_json", "S408", "'[NaN]' | from_json", "NaN"),
    ("'\"\\\\ud800\"' | from_json", "S408", "'\"\\\\ud800\"' | from_json", "needs JSON"),
    ("'%d' | format(text)", "S408", "'%d' | format(text)", "needs a number"),
    ("'%s %s' | format(1)", "S406", "'%s %s' | format(1)", "more placeholders"),
    ("'%s' | format(1, 2)", "S406", "'%s' | format(1, 2)", "placeholders"),
    ("'%q' | format(1)", "S406", "'%q' | format(1)", "%q"),
    ("'%(a)s' | format(b=1)", "S406", "'%(a)s' | format(b=1)", "`%(a)s`"),
    ("text | regex_search('(' ~ '')", "S501", "text | regex_search('(' ~ '')", "wrong pattern"),
    ("text | regex_replace('t', '\\1')", "S406", "text | regex_replace('t', '\\1')", "no group"),
    ("items | map('upper') | map('sum')", "S408", "items | map('upper') | map('sum')", "`sum` needs a list"),
    ("items | map(attribute='x')", "S408", "items | map(attribute='x')", "no parts"),
    ("sqrt(0 - 1)", "S408", "sqrt(0 - 1)", "no result"),
    ("meta(ghost)", "S301", "meta(ghost)", "no `meta`"),
    ("truncate('abcdefghijk', 1)", "S408", "truncate('abcdefghijk', 1)", "at least 3"),
]


@pytest.mark.parametrize(("expression", "cause", "pointed", "words"), ROWS)
def test_evaluation_error(expression: str, cause: str, pointed: str, words: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        value_of(expression, VALUES)
    error = caught.value
    assert (error.code, error.cause) == ("S707", cause), error
    assert expression[error.start : error.end] == pointed
    assert words in f"{error.message} {error.help}"


LOOPS = [
    ("{% for c in text %}{% endfor %}", "lines"),
    ("{% for c in n %}{% endfor %}", "a number"),
    ("{% for c in nothing %}{% endfor %}", "default([])"),
    ("{% for a, b in items %}{% endfor %}", "2 variables"),
    ("{% for a, b in [[1, 2, 3]] %}{% endfor %}", "3 items"),
]


@pytest.mark.parametrize(("template", "words"), LOOPS)
def test_loop_error(template: str, words: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        render(parse_template(template), PlainScope(VALUES))
    assert words in f"{caught.value.message} {caught.value.help}"


def test_a_budget_can_be_shared_by_several_evaluations() -> None:
    budget = Budget(steps=1000)
    expression = parse_expression("range(200) | len")
    evaluate(expression, PlainScope(), budget)
    spent = 1000 - budget.steps
    assert 200 < spent < 500
    with pytest.raises(EvaluationError) as caught:
        for _ in range(10):
            evaluate(expression, PlainScope(), budget)
    assert caught.value.is_limit
    assert Budget().steps == MAX_STEPS


def test_the_output_is_counted_in_bytes() -> None:
    template = parse_template("{{ x }}")
    render(template, PlainScope({"x": "é" * 10}), Budget(output=20))
    with pytest.raises(EvaluationError) as caught:
        render(template, PlainScope({"x": "é" * 10}), Budget(output=19))
    assert caught.value.is_limit

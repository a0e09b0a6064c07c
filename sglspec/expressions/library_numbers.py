"""Library functions over numbers, and conversions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import NoReturn

from sglspec.expressions.errors import ArgumentProblem
from sglspec.expressions.function import (
    Context,
    Function,
    as_integer,
    as_list,
    as_number,
    as_text,
    folded,
    function,
    item_at,
)
from sglspec.expressions.operators import add, bounded
from sglspec.expressions.tokens import MAX_INTEGER
from sglspec.expressions.values import (
    MAX_DEPTH,
    Value,
    compare,
    finite,
    truthy,
)
from sglspec.expressions.values import to_json as write_json

_NUMBER = re.compile(
    r"(?:(?<![\w.])[-+])?(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3}(?!\w))?"
    r"|(?:(?<![\w.])[-+])?(?<![\w.])\.\d+"
)
_TRUE = ("true", "yes", "y", "on", "1")
_FALSE = ("false", "no", "n", "off", "0", "")
_MAX_DIGITS = 400


def int_(ctx: Context, value: Value, default: Value = 0, base: Value = 10) -> Value:
    """The value as a whole number; `default` where it is none."""
    if isinstance(value, str):
        text = value.strip() if len(value) <= _MAX_DIGITS else ""
        try:
            return bounded(int(text, as_integer(base, 2, 36)))
        except ValueError:
            pass
        try:
            number = float(text)
        except ValueError:
            return default
        return bounded(int(number)) if math.isfinite(number) else default
    if isinstance(value, int | float):
        return bounded(int(value))
    return default


def float_(ctx: Context, value: Value, default: Value = 0.0) -> Value:
    """The value as a number with a decimal point; `default` where it is none."""
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and len(value) <= _MAX_DIGITS:
        try:
            number = float(value)
        except ValueError:
            return default
        return number if math.isfinite(number) else default
    return default


def bool_(ctx: Context, value: Value) -> Value:
    """True or false; of texts, `true yes y on 1` and `false no n off 0` in any case."""
    if not isinstance(value, str):
        return truthy(value)
    word = value.strip().lower() if len(value) < 100 else value
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    help = "Compare it with a text: `x == 'yes'`."
    raise ArgumentProblem("needs a word like yes, no, true or false, and this is another text.", help)


def from_json(ctx: Context, value: Value) -> Value:
    """The value that the text describes as JSON."""
    text = as_text(value)
    ctx.budget.scan(len(text) * 4)
    ctx.budget.text(len(text), 2)
    ctx.budget.items(sum(map(text.count, ",:[{")), 4)
    if _deepest(text) > MAX_DEPTH:
        raise ArgumentProblem(f"takes JSON up to {MAX_DEPTH} levels deep.", cause="S253")
    try:
        parsed = json.loads(text, parse_int=_json_int, parse_float=_json_float, parse_constant=_no_constant)
        if "\\u" in text:
            json.dumps(parsed, ensure_ascii=False).encode()
    except ArgumentProblem:
        raise
    except (ValueError, RecursionError) as error:
        where = f" (at character {error.pos + 1})" if isinstance(error, json.JSONDecodeError) else ""
        raise ArgumentProblem(f"needs JSON, and this text is not{where}.", None, "S408") from None
    return parsed


def _deepest(text: str) -> int:
    """An upper bound of the nesting of a JSON text; brackets inside strings may count, those that close do too."""
    deepest = depth = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{\]}]', text):
        character = match.group()[0]
        depth += 1 if character in "[{" else -1 if character in "]}" else 0
        deepest = max(deepest, depth)
    return deepest


def _json_int(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > MAX_INTEGER:
        raise ArgumentProblem("finds a number that is too large.")
    return int(digits)


def _json_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ArgumentProblem("finds a number that is too large.")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ArgumentProblem(f"needs JSON, and `{name}` is not.")


def to_json(ctx: Context, value: Value, indent: Value = None) -> Value:
    """The value as JSON; with `indent`, on several lines."""
    return write_json(value, ctx.budget, None if indent is None else as_integer(indent, 0, 16))


def numbers(ctx: Context, value: Value) -> Value:
    """All numbers in the text, `1,234.5` included."""
    text = as_text(value)
    ctx.budget.charge(len(text) // 4)
    found: list[Value] = []
    for match in _NUMBER.finditer(text):
        ctx.budget.charge(8)
        digits = match.group().replace(",", "")
        if len(digits) > _MAX_DIGITS:
            raise ArgumentProblem("finds a number that is too large.")
        found.append(_json_float(digits) if any(mark in digits for mark in ".eE") else bounded(int(digits)))
    return found


def last_number(ctx: Context, value: Value) -> Value:
    """The last number in the text; null if there is none."""
    found = numbers(ctx, value)
    return found[-1] if isinstance(found, list) and found else None


def sum_(ctx: Context, value: Value, attribute: Value = None, start: Value = 0) -> Value:
    """The sum of the items; nulls are left out."""
    total: Value = start
    for item in _present(ctx, value, attribute):
        ctx.budget.charge(2)
        total = add(total, as_number(item) if not isinstance(start, list | str) else item, ctx.budget)
    return total


def mean(ctx: Context, value: Value, attribute: Value = None) -> Value:
    """The average of the items; nulls are left out; null for an empty list."""
    found = [as_number(item) for item in _present(ctx, value, attribute)]
    return finite(math.fsum(found) / len(found)) if found else None


def stddev(ctx: Context, value: Value, sample: Value = False) -> Value:
    """The standard deviation of the items (`sample`: the estimate from a sample); nulls are left out."""
    found = [as_number(item) for item in _present(ctx, value, None)]
    count = len(found) - (1 if truthy(sample) else 0)
    if count < 1:
        return None
    middle = math.fsum(found) / len(found)
    return finite(math.sqrt(math.fsum((number - middle) ** 2 for number in found) / count))


def min_(ctx: Context, value: Value, *more: Value, case_sensitive: Value = False, attribute: Value = None) -> Value:
    """The smallest item, the first of several; nulls are left out; null for an empty list."""
    return _extreme(ctx, _several(value, more), case_sensitive, attribute, -1)[0]


def max_(ctx: Context, value: Value, *more: Value, case_sensitive: Value = False, attribute: Value = None) -> Value:
    """The largest item, the first of several; nulls are left out; null for an empty list."""
    return _extreme(ctx, _several(value, more), case_sensitive, attribute, 1)[0]


def argmax(ctx: Context, value: Value, attribute: Value = None) -> Value:
    """Where the largest item stands, counted from 0, the first of several; null for an empty list."""
    return _extreme(ctx, value, True, attribute, 1)[1]


def _several(value: Value, more: tuple[Value, ...]) -> Value:
    """`max(a, b)` and `max([a, b])` are the same."""
    return [value, *more] if more else value


def _extreme(
    ctx: Context, value: Value, case_sensitive: Value, attribute: Value, sign: int
) -> tuple[Value, int | None]:
    best: tuple[Value, int | None] = (None, None)
    best_key: Value = None
    items = as_list(value)
    ctx.budget.items(len(items), 3)
    for at, item in enumerate(items):
        key = item if attribute is None or item is None else item_at(item, attribute)
        if key is None:
            continue
        if isinstance(key, str) and not truthy(case_sensitive):
            key = folded(ctx, key).lower()
        if best[1] is None or compare(key, best_key, ctx.budget) * sign > 0:
            best, best_key = (item, at), key
    return best


def exp(ctx: Context, value: Value) -> Value:
    """e to the power of the number."""
    return _computed(math.exp, value)


def log(ctx: Context, value: Value, base: Value = None) -> Value:
    """The logarithm of the number, natural unless a base is given."""
    return _computed(math.log, value) if base is None else _computed(math.log, value, as_number(base))


def sqrt(ctx: Context, value: Value) -> Value:
    """The square root of the number."""
    return _computed(math.sqrt, value)


def abs_(ctx: Context, value: Value) -> Value:
    """The number without its sign."""
    return abs(as_number(value))


def round_(ctx: Context, value: Value, precision: Value = 0, method: Value = "common") -> Value:
    """The number rounded to `precision` digits: `common` (to the nearest), `ceil` (up) or `floor` (down)."""
    number, digits = as_number(value), as_integer(precision, -18, 18)
    if method == "common":
        return round(number, digits)
    if method not in ("ceil", "floor"):
        raise ArgumentProblem("has the methods `common`, `ceil` and `floor`.", cause="S406")
    whole = (math.ceil if method == "ceil" else math.floor)(finite(number * 10**digits))
    return finite(whole / 10**digits)


def _computed(operation: Callable[..., float], value: Value, *more: int | float) -> float:
    number = as_number(value)
    try:
        return finite(operation(number, *more))
    except (ValueError, OverflowError, ZeroDivisionError):
        raise ArgumentProblem(f"has no result for {number}.") from None


def _present(ctx: Context, value: Value, attribute: Value) -> list[Value]:
    items = as_list(value)
    ctx.budget.items(len(items), 3)
    if attribute is not None:
        items = [None if item is None else item_at(item, attribute) for item in items]
    return [item for item in items if item is not None]


NUMBERS: tuple[Function, ...] = (
    function(int_, "integer", "'42.9' | int", 42),
    function(float_, "number", "'1.5' | float", 1.5),
    function(bool_, "boolean", "'Yes' | bool", True),
    function(from_json, "any", "'{\"a\": [1]}' | from_json", {"a": [1]}),
    function(to_json, "string", "{'a': [1, null]} | to_json", '{"a": [1, null]}'),
    function(numbers, "array", "'2 of 1,200 cost -3.5' | numbers", [2, 1200, -3.5]),
    function(last_number, "any", "'so 3 + 4 = 7.' | last_number", 7),
    function(sum_, "number", "[1, 2.5, null] | sum", 3.5),
    function(mean, "any", "[1, 2, null] | mean", 1.5),
    function(stddev, "any", "[1, 3] | stddev", 1.0),
    function(min_, "any", "[3, 1, null] | min", 1),
    function(max_, "any", "[3, 1, null] | max", 3),
    function(argmax, "any", "[0.1, 0.7, 0.2] | argmax", 1),
    function(exp, "number", "exp(0)", 1.0),
    function(log, "number", "log(8, 2)", 3.0),
    function(sqrt, "number", "sqrt(9)", 3.0),
    function(abs_, "number", "-2 | abs", 2),
    function(round_, "number", "2.345 | round(1)", 2.3),
)

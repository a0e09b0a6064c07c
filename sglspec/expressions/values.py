"""Values are JSON-like. How they count as conditions, how they become text, how they compare."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, Union

from sglspec.expressions.budget import Budget
from sglspec.expressions.errors import Problem

Value: TypeAlias = Union[bool, int, float, str, list["Value"], dict[str, "Value"], None]  # noqa: UP007 (recursive)

Origin = Literal["author", "input", "tool", "generated"]
"""Who wrote a text, from the most to the least trusted: author, input, tool, generated."""

_TRUST: dict[Origin, int] = {"author": 0, "input": 1, "tool": 2, "generated": 3}

MAX_DEPTH = 64
"""How deep lists and objects may be nested where they are compared, written as text or read from text."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of text from one origin. `literal` tells the template's own text from inserted values."""

    text: str
    origin: Origin
    literal: bool = field(default=False, compare=False)


def least_trusted(first: Origin, second: Origin) -> Origin:
    """The origin of something made out of two things."""
    return first if _TRUST[first] >= _TRUST[second] else second


def truthy(value: Value) -> bool:
    """How a value counts as a condition: null, false, zero and everything empty are false."""
    return bool(value)


def describe(value: Value) -> str:
    """The kind of a value in the words of an author."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"


def value_to_text(value: Value, budget: Budget | None = None) -> str:
    """A value as it stands in a prompt: text as it is, null as nothing, everything else as JSON.

    Raises `Problem` for a number that JSON cannot write and for a value that is too large or too deep.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return to_json(value, budget)


def to_json(value: Value, budget: Budget | None = None, indent: int | None = None) -> str:
    """JSON with `", "` and `": "`, characters outside ASCII kept."""
    if isinstance(value, list | dict):
        measure(value, budget if budget is not None else Budget(), indent=indent or 0)
    elif isinstance(value, str) and budget is not None:
        budget.text(len(value) + 2, char_width(value))
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError:
        raise Problem("A number is too large to be written as text.", cause="S408") from None


def measure(value: Value, budget: Budget, indent: int = 0) -> None:
    """Charge for a walk over the whole value before somebody walks it, and refuse what is nested too deeply.

    The walk counts a part as often as it occurs, so a small value that holds itself many times over is charged for
    its full size.
    """
    stack: list[tuple[Value, int]] = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, str):
            budget.text(len(item), char_width(item))
            continue
        budget.charge(6)
        if not isinstance(item, list | dict) or not item:
            continue
        if depth > MAX_DEPTH:
            raise Problem(f"A value is nested deeper than {MAX_DEPTH} levels.", cause="S253")
        budget.charge(len(item))
        if indent:
            budget.text((indent * depth + 1) * (len(item) + 1))
        if isinstance(item, dict):
            budget.text(sum(map(len, item)) + 4 * len(item))
            stack.extend((part, depth + 1) for part in item.values())
        else:
            stack.extend((part, depth + 1) for part in item)


def char_width(text: str) -> int:
    """Bytes that one character of this text takes in memory: 1, 2 or 4. Constant time."""
    if not text or text.isascii():
        return 1
    each = round((sys.getsizeof(text) - 72) / len(text))
    return 1 if each <= 1 else 2 if each == 2 else 4


def equal(left: Value, right: Value, budget: Budget) -> bool:
    """Equality as JSON means it: 1 and 1.0 are equal, true and 1 are not."""
    if isinstance(left, str):
        if not isinstance(right, str) or len(left) != len(right):
            return False
        budget.scan(len(left))
        return left == right
    if isinstance(left, list | dict):
        if type(left) is not type(right) or len(left) != len(right):  # pyright: ignore[reportArgumentType]
            return False
        measure(left, budget)
        return _same(left, right)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return not isinstance(right, list | dict | str) and left == right


def _same(left: Value, right: Value) -> bool:
    """Deep equality of values whose left side is known to be small and shallow."""
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(_same(part, right[key]) for key, part in left.items())
        )
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def compare(left: Value, right: Value, budget: Budget) -> int:
    """Negative, zero or positive, for `<` and for sorting. Numbers, texts, and lists of those have an order."""
    if isinstance(left, list) and isinstance(right, list):
        measure(left, budget)
        return _compare_lists(left, right, budget)
    if isinstance(left, str) and isinstance(right, str):
        budget.scan(min(len(left), len(right)))
        return (left > right) - (left < right)
    if isinstance(left, bool) and isinstance(right, bool):
        return left - right
    if _is_number(left) and _is_number(right):
        return (left > right) - (left < right)  # type: ignore[operator]  # pyright: ignore
    raise Problem(
        f"There is no order between {describe(left)} and {describe(right)}.",
        "Compare numbers with numbers and texts with texts; `int` and `float` turn text into a number.",
        "S408",
    )


def _compare_lists(left: list[Value], right: list[Value], budget: Budget) -> int:
    for a, b in zip(left, right, strict=False):
        budget.charge(1)
        order = compare(a, b, budget)
        if order:
            return order
    return len(left) - len(right)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def key_of(value: Value, budget: Budget) -> object:
    """A hashable stand-in for a value, equal exactly when the values are `equal`."""
    if isinstance(value, str):
        budget.scan(len(value))
        return value
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, list | dict):
        measure(value, budget)
    return _frozen(value)


def _frozen(value: Value) -> object:
    if isinstance(value, list):
        return ("list", *map(_frozen, value))
    if isinstance(value, dict):
        return ("object", frozenset((key, _frozen(part)) for key, part in value.items()))
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    return value


def finite(number: float) -> float:
    """The number itself; `Problem` where it is infinite or not a number."""
    if not math.isfinite(number):
        raise Problem("The result is not a finite number.", cause="S408")
    return number


def text_width(texts: Iterable[str]) -> int:
    """The widest `char_width` among some texts."""
    return max(map(char_width, texts), default=1)

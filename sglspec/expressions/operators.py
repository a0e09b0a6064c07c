"""Arithmetic and comparison, bounded: whole numbers stay within 64 bits, texts and lists within the budget."""

from __future__ import annotations

from sglspec.expressions.budget import Budget
from sglspec.expressions.errors import Problem
from sglspec.expressions.tokens import MAX_INTEGER
from sglspec.expressions.values import Value, char_width, describe, equal, finite, text_width

_NUMBERS_HELP = "`int` and `float` turn text into a number; `~` puts texts together."


def bounded(number: int) -> int:
    """The number itself; `Problem` where it is too large."""
    if not -MAX_INTEGER <= number <= MAX_INTEGER:
        raise Problem("The number is too large.", cause="S253")
    return number


def add(left: Value, right: Value, budget: Budget) -> Value:
    """`+`: numbers, two texts, two lists."""
    if isinstance(left, str) and isinstance(right, str):
        budget.text(len(left) + len(right), text_width((left, right)))
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        budget.items(len(left) + len(right))
        return left + right
    a, b = _numbers("+", left, right)
    return _number(a + b)


def subtract(left: Value, right: Value, budget: Budget) -> Value:
    """`-`."""
    a, b = _numbers("-", left, right)
    return _number(a - b)


def multiply(left: Value, right: Value, budget: Budget) -> Value:
    """`*`: numbers, or a text or list and how often to repeat it."""
    if isinstance(right, str | list) and not isinstance(left, str | list):
        left, right = right, left
    if isinstance(left, str | list) and isinstance(right, int) and not isinstance(right, bool):
        size = len(left) * max(right, 0)
        if isinstance(left, str):
            budget.text(size, char_width(left))
        else:
            budget.items(size)
        return left * right
    a, b = _numbers("*", left, right)
    return _number(a * b)


def divide(left: Value, right: Value, budget: Budget) -> Value:
    """`/`."""
    a, b = _divisible("/", left, right)
    return _number(a / b)


def floor_divide(left: Value, right: Value, budget: Budget) -> Value:
    """`//`."""
    a, b = _divisible("//", left, right)
    return _number(a // b)


def modulo(left: Value, right: Value, budget: Budget) -> Value:
    """`%`: the remainder."""
    if isinstance(left, str):
        raise Problem("`%` does not fill texts here.", "Write `'%s' | format(x)`.", "S408")
    a, b = _divisible("%", left, right)
    return _number(a % b)


def power(left: Value, right: Value, budget: Budget) -> Value:
    """`**`."""
    a, b = _numbers("**", left, right)
    if isinstance(a, int) and isinstance(b, int) and b >= 0 and abs(a) > 1 and (a.bit_length() - 1) * b > 64:
        raise Problem("The number is too large.", cause="S253")
    try:
        result = a**b
    except (OverflowError, ZeroDivisionError):
        raise Problem(f"{a} ** {b} has no result.", cause="S408") from None
    if isinstance(result, complex):
        raise Problem(f"{a} ** {b} has no result.", cause="S408")
    return _number(result)


def contains(item: Value, container: Value, budget: Budget) -> bool:
    """`in`: an item of a list, a part of a text, a key of an object."""
    if isinstance(container, list):
        budget.items(len(container))
        return any(equal(item, part, budget) for part in container)
    if isinstance(container, str | dict):
        if not isinstance(item, str):
            whole = "text" if isinstance(container, str) else "an object"
            raise Problem(f"`in` looks for text in {whole}, and this is {describe(item)}.", "`str` makes text.", "S408")
        if isinstance(container, str):
            budget.scan(len(container))
        return item in container
    raise Problem(f"`in` wants a list, text or an object, and this is {describe(container)}.", None, "S408")


def negate(value: Value) -> Value:
    """The number with the other sign."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem(f"`-` wants a number, and this is {describe(value)}.", _NUMBERS_HELP, "S408")
    return _number(-value)


def _numbers(op: str, left: Value, right: Value) -> tuple[int | float, int | float]:
    for value in (left, right):
        if isinstance(value, bool) or not isinstance(value, int | float):
            both = f"{describe(left)} and {describe(right)}"
            raise Problem(f"`{op}` does not work on {both}.", _help(left, right), "S408")
    return left, right  # type: ignore[return-value]  # pyright: ignore


def _help(left: Value, right: Value) -> str:
    if left is None or right is None:
        return "`default` gives a value for null: `x | default(0)`."
    return _NUMBERS_HELP


def _divisible(op: str, left: Value, right: Value) -> tuple[int | float, int | float]:
    a, b = _numbers(op, left, right)
    if b == 0:
        raise Problem("Division by zero.", cause="S408")
    return a, b


def _number(number: int | float) -> int | float:
    return bounded(number) if isinstance(number, int) else finite(number)

"""Arithmetic in one line, as models write it: the tool `calculator`.

A recursive descent over + - * / // % ** and parentheses, on exact fractions (0.1 + 0.2 is 0.3). Length, nesting and the
size of every number on the way are bounded, so that no expression takes long.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

MAX_LENGTH = 1_000
MAX_NESTING = 50
MAX_BITS = 4_096
"""Of a numerator or denominator: about 1,200 digits."""
MAX_EXPONENT = 308

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?P<exponent>[eE][+-]?[0-9]+)?|(?P<op>\*\*|//|.))"
)
_SPELLINGS = {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "[": "(", "]": ")"}


@dataclass(frozen=True, slots=True)
class _Token:
    """`value` is the number's; `text` is an operator, "" at the end. `column` counts from 1."""

    text: str
    column: int
    value: Fraction | None = None


def calculate(expression: str) -> int | float:
    """The value: a whole number where it is one, otherwise a float. Raises ValueError with what is wrong and where."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"the expression is longer than {MAX_LENGTH} characters")
    parser = _Parser(_tokens(expression.strip().removesuffix("=")))
    value = parser.sum()
    parser.end()
    if value.denominator == 1:
        return value.numerator
    try:
        return float(value)
    except OverflowError:
        raise ValueError("the result is too large") from None


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        assert match is not None
        column = match.end() - len(match[0].lstrip()) + 1
        if match["number"] is not None:
            found.append(_Token(match[0].strip(), column, _number(match["number"], match["exponent"])))
        else:
            found.append(_Token(_SPELLINGS.get(match["op"], match["op"]), column))
        position = match.end()
    return [*found, _Token("", len(text) + 1)]


def _number(digits: str, exponent: str | None) -> Fraction:
    power = exponent[1:] if exponent else "0"
    if len(power) > 4 or abs(int(power)) > MAX_EXPONENT:
        raise ValueError(f"the exponent of a number is at most {MAX_EXPONENT}")
    digits = digits.replace(",", "")
    return _bounded(Fraction("0" + digits + ("0" if digits.endswith(".") else "")) * Fraction(10) ** int(power))


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise ValueError("a number on the way is too large")
    return value


class _Parser:
    """sum: term (+ term)*; term: signed (* signed)*; signed: -signed | power; power: atom [** signed]."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def sum(self) -> Fraction:
        value = self._term()
        while operator := self._take("+", "-"):
            other = self._term()
            value = _bounded(value + other if operator == "+" else value - other)
        return value

    def end(self) -> None:
        if self._here.text:
            raise ValueError(f"{self._here.text!r} is not expected at column {self._here.column}")

    @property
    def _here(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *operators: str) -> str | None:
        token = self._here
        if token.value is not None or token.text not in operators:
            return None
        self._at += 1
        return token.text

    def _term(self) -> Fraction:
        value = self._signed()
        while operator := self._take("*", "/", "//", "%"):
            other = self._signed()
            if operator != "*" and other == 0:
                raise ValueError("division by zero")
            match operator:
                case "*":
                    value *= other
                case "/":
                    value /= other
                case "//":
                    value = Fraction(value // other)
                case _:
                    value %= other
            _bounded(value)
        return value

    def _signed(self) -> Fraction:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ValueError(f"the expression is nested deeper than {MAX_NESTING}")
        sign = self._take("+", "-")
        value = self._power() if sign is None else self._signed()
        self._depth -= 1
        return -value if sign == "-" else value

    def _power(self) -> Fraction:
        base = self._atom()
        return base if self._take("**") is None else _power(base, self._signed())

    def _atom(self) -> Fraction:
        token = self._here
        if token.value is not None:
            self._at += 1
            return token.value
        if self._take("(") is not None:
            value = self.sum()
            if self._take(")") is None:
                raise ValueError(f"`)` is missing at column {self._here.column}")
            return value
        found = f", found {token.text!r}" if token.text else ""
        raise ValueError(f"a number is missing at column {token.column}{found}")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    """Exact for whole exponents; roots by floating point."""
    if base == 0 and exponent < 0:
        raise ValueError("division by zero")
    if exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        # 0, 1 and -1 stay small whatever the exponent is
        if abs(exponent) * (bits - 1) > MAX_BITS or exponent.numerator.bit_length() > 64:
            raise ValueError("a number on the way is too large")
        return _bounded(Fraction(base**exponent.numerator))
    if base < 0:
        raise ValueError("a root of a negative number is not a number")
    try:
        value = float(base) ** float(exponent)
    except OverflowError:
        raise ValueError("a number on the way is too large") from None
    if not math.isfinite(value):
        raise ValueError("a number on the way is too large")
    return _bounded(Fraction(repr(value)))


__all__ = ["calculate"]

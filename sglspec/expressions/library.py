"""The library: one namespace of functions, used as `f(x)` or as `x | f`; and the tests after `is`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sglspec.expressions.budget import Budget
from sglspec.expressions.errors import Problem
from sglspec.expressions.function import Function
from sglspec.expressions.library_format import FORMAT
from sglspec.expressions.library_lists import LISTS
from sglspec.expressions.library_numbers import NUMBERS
from sglspec.expressions.library_regex import REGEX
from sglspec.expressions.library_text import TEXT
from sglspec.expressions.operators import contains
from sglspec.expressions.values import Value, compare, describe, equal

SCOPE_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "messages": "The messages of the conversation so far, as a list of `{role, content}`.",
        "transcript": "The text of the context so far, as the template writes it.",
        "meta": "What is known about how a variable was generated: `meta(name)`.",
    }
)
"""Functions that ask the run and not their arguments."""


def _table(*groups: tuple[Function, ...]) -> Mapping[str, Function]:
    table: dict[str, Function] = {}
    for group in groups:
        for entry in group:
            for name in (entry.name, *entry.aliases):
                assert name not in table, name
                table[name] = entry
    return MappingProxyType(table)


LIBRARY: Mapping[str, Function] = _table(TEXT, FORMAT, LISTS, NUMBERS, REGEX)
"""Name or alias → function."""


@dataclass(frozen=True, slots=True)
class TestEntry:
    """A test: how many arguments it takes, and what it answers."""

    arguments: int
    holds: Callable[[Value, tuple[Value, ...], Budget], bool]


def _whole(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise Problem(f"This test wants a whole number, and this is {describe(value)}.", None, "S408")
    return int(value)


def _divisible(value: Value, by: Value) -> bool:
    if not _whole(by):
        raise Problem("Nothing is divisible by zero.", cause="S408")
    return _whole(value) % _whole(by) == 0


def _number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _tests() -> Mapping[str, TestEntry]:
    def kind(check: Callable[[Value], bool]) -> TestEntry:
        return TestEntry(0, lambda value, _args, _budget: check(value))

    def order(check: Callable[[int], bool]) -> TestEntry:
        return TestEntry(1, lambda value, args, budget: check(compare(value, args[0], budget)))

    equals = TestEntry(1, lambda value, args, budget: equal(value, args[0], budget))
    differs = TestEntry(1, lambda value, args, budget: not equal(value, args[0], budget))
    less, at_most = order(lambda o: o < 0), order(lambda o: o <= 0)
    more, at_least = order(lambda o: o > 0), order(lambda o: o >= 0)
    table = {
        "defined": kind(lambda v: v is not None),
        "undefined": kind(lambda v: v is None),
        "none": kind(lambda v: v is None),
        "true": kind(lambda v: v is True),
        "false": kind(lambda v: v is False),
        "boolean": kind(lambda v: isinstance(v, bool)),
        "integer": kind(lambda v: isinstance(v, int) and not isinstance(v, bool)),
        "float": kind(lambda v: isinstance(v, float)),
        "number": kind(_number),
        "string": kind(lambda v: isinstance(v, str)),
        "mapping": kind(lambda v: isinstance(v, dict)),
        "sequence": kind(lambda v: isinstance(v, list)),
        "odd": kind(lambda v: _whole(v) % 2 == 1),
        "even": kind(lambda v: _whole(v) % 2 == 0),
        "divisibleby": TestEntry(1, lambda value, args, _budget: _divisible(value, args[0])),
        "in": TestEntry(1, lambda value, args, budget: contains(value, args[0], budget)),
        **dict.fromkeys(("==", "eq", "equalto"), equals),
        **dict.fromkeys(("!=", "ne"), differs),
        **dict.fromkeys(("<", "lt", "lessthan"), less),
        **dict.fromkeys(("<=", "le"), at_most),
        **dict.fromkeys((">", "gt", "greaterthan"), more),
        **dict.fromkeys((">=", "ge"), at_least),
    }
    table["null"] = table["none"]
    return MappingProxyType(table)


TESTS: Mapping[str, TestEntry] = _tests()
"""The tests after `is` and in `select` and `reject`."""

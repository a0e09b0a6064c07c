"""Every library function is documented, and its example is true."""

from __future__ import annotations

import pytest

from sglspec.expressions import LIBRARY, SCOPE_FUNCTIONS, Function, Value
from tests.expressions.scopes import value_of

# language.md, section 3.
LISTED = [
    "len",
    "length",
    "range",
    "enumerate",
    "zip",
    "batch",
    "str",
    "int",
    "float",
    "bool",
    "from_json",
    "to_json",
    "strip",
    "lstrip",
    "rstrip",
    "lower",
    "upper",
    "title",
    "split",
    "join",
    "lines",
    "replace",
    "startswith",
    "endswith",
    "contains",
    "index_of",
    "slice",
    "format",
    "truncate",
    "indent",
    "quote",
    "bullets",
    "first",
    "last",
    "flatten",
    "compact",
    "sum",
    "mean",
    "min",
    "max",
    "argmax",
    "sort",
    "unique",
    "reverse",
    "most_common",
    "vote",
    "map",
    "select",
    "reject",
    "group_by",
    "regex_search",
    "regex_findall",
    "regex_replace",
    "numbers",
    "last_number",
    "exp",
    "log",
    "sqrt",
    "stddev",
    "round",
    "abs",
    "default",
    "all",
    "any",
    "keys",
    "values",
    "items",
    "trim",
]


def test_the_library_has_what_the_language_lists() -> None:
    assert sorted(set(LISTED) - set(LIBRARY)) == []
    assert sorted(set(LIBRARY) - set(LISTED)) == ["list"]
    assert sorted(SCOPE_FUNCTIONS) == ["messages", "meta", "transcript"]


@pytest.mark.parametrize("function", {entry.name: entry for entry in LIBRARY.values()}.values(), ids=lambda f: f.name)
def test_example(function: Function) -> None:
    expression, expected = function.example
    value = value_of(expression)
    assert value == expected
    assert type(value) is type(expected)
    assert function.name in expression
    assert function.doc.endswith(".")
    assert _matches(function.returns, value)


def _matches(kind: str, value: Value) -> bool:
    types: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "array": list,
        "object": dict,
        "any": object,
    }
    return isinstance(value, types[kind])


def test_signatures_read_like_calls() -> None:
    assert LIBRARY["indent"].signature == "indent(value, width=4, first=false, blank=false)"
    assert LIBRARY["join"].signature == "join(value, d='', attribute=null)"
    assert LIBRARY["zip"].signature == "zip(value, more…)"
    assert LIBRARY["default"].signature == "default(value, default_value='', boolean=false)"

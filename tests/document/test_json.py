"""The JSON reader: RFC 8259, places, limits, messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec.diagnostics import Diagnostic, Position, Report
from sglspec.document.nodes import Node, to_python, walk
from sglspec.document.read import parse, source_from_text


def read(text: str) -> tuple[Node | None, list[Diagnostic]]:
    report = Report()
    node = parse(source_from_text(text, "t.json"), report)
    assert (node is None) == report.has_errors
    return node, report.sorted()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, -0, 1.5, 1e3, -2E-2, true, false, null, "x"]}',
        ' \t\r\n{"a":{}, "b":[]} \n',
        '"\\u00e9 \\ud83d\\ude00 \\/ \\b\\f\\n\\r\\t\\"\\\\"',
        '"\x7f\u2028"',
        "17",
        '{"": 1, "' + "k" * 5000 + '": 2}',
        '{"<<": {"a": 1}}',
        "9007199254740992",
    ],
)
def test_valid(text: str) -> None:
    node, found = read(text)
    assert found == []
    assert node is not None
    assert to_python(node) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "code", "where", "message"),
    [
        ("", "S112", (1, 1), "empty"),
        (" \n ", "S112", (2, 2), "empty"),
        ('{"a": 1,}', "S102", (1, 8), "no comma before `}`"),
        ("[1, 2, ]", "S102", (1, 6), "no comma before `]`"),
        ("[1,, 2]", "S102", (1, 3), "comma"),
        ("[, 1]", "S102", (1, 2), "before this comma"),
        ("[1 2]", "S102", (1, 4), "missing"),
        ('{"a": 1 "b": 2}', "S102", (1, 9), "missing"),
        ('{"a" 1}', "S102", (1, 6), "`:`"),
        ('{"a": }', "S102", (1, 7), "value is missing"),
        ('{"a":', "S102", (1, 6), "value is missing"),
        ('{"a": 1', "S102", (1, 1), "never closed"),
        ('{"a": [1, 2}', "S102", (1, 12), "missing"),
        ("[1,", "S102", (1, 1), "never closed"),
        ('{"a": "x}', "S102", (1, 7), "never closed"),
        ('{"a": "x\n}', "S102", (1, 7), "never closed"),
        ('{"a": "x\ny"}', "S102", (1, 9), "line break"),
        ('{"a": "x\ty"}', "S102", (1, 9), "tab"),
        ('{"a": "x\x01y"}', "S102", (1, 9), "U+0001"),
        ('{"a": "\\d"}', "S102", (1, 8), "`\\d`"),
        ('{"a": "\\u12"}', "S102", (1, 8), "4 hexadecimal"),
        ('{"a": "\\ud83d"}', "S113", (1, 7), "half of a character"),
        ('{"a": "\\ude00x"}', "S113", (1, 7), "half of a character"),
        ('{"a": "\\ud83d\\u0041"}', "S113", (1, 7), "half of a character"),
        ("{'a': 1}", "S102", (1, 2), "double quotes"),
        ("{\"a\": 'x'}", "S102", (1, 7), "double quotes"),
        ("{a: 1}", "S102", (1, 2), "double quotes"),
        ("{1: 1}", "S102", (1, 2), "double quotes"),
        ("{[1]: 1}", "S110", (1, 2), "key"),
        ('{"a": x}', "S102", (1, 7), "double quotes"),
        ('{"a": 1} // c', "S102", (1, 10), "comments"),
        ('{"a": /* c */ 1}', "S102", (1, 7), "comments"),
        ('{"a": 1 # c\n}', "S102", (1, 9), "comments"),
        ('{"a": NaN}', "S102", (1, 7), "`NaN`"),
        ('{"a": -Infinity}', "S102", (1, 7), "`-Infinity`"),
        ('{"a": True}', "S102", (1, 7), "`True`"),
        ('{"a": None}', "S102", (1, 7), "`None`"),
        ('{"a": 01}', "S102", (1, 7), "not a number"),
        ('{"a": +1}', "S102", (1, 7), "not a number"),
        ('{"a": .5}', "S102", (1, 7), "not a number"),
        ('{"a": 1.}', "S102", (1, 7), "not a number"),
        ('{"a": 0x1F}', "S102", (1, 7), "not a number"),
        ('{"a": 1_000}', "S102", (1, 7), "not a number"),
        ('{"a": ١}', "S102", (1, 7), "double quotes"),
        ('{"a": 9007199254740993}', "S108", (1, 7), "too large"),
        ('{"a": -9007199254740993}', "S108", (1, 7), "too large"),
        ('{"a": 1e400}', "S108", (1, 7), "too large"),
        ('{"a": ' + "9" * 5000 + "}", "S108", (1, 7), "too large"),
        ('{"a": 1} x', "S102", (1, 10), "after the end"),
        ('{"a": 1}{"b": 2}', "S102", (1, 9), "after the end"),
        ('{\n  "a": 1,\n  "a": 2\n}', "S103", (3, 3), "written twice"),
        ("[" * 65 + "]" * 65, "S109", (1, 65), "levels"),
        ("[" * 200_000, "S109", (1, 65), "levels"),
        ('{"a":' * 200_000, "S109", (1, 321), "levels"),
        ("[" + "1," * 60_000 + "1]", "S109", (1, 100_000), "50,000"),
    ],
)
def test_fault(text: str, code: str, where: tuple[int, int], message: str) -> None:
    _, found = read(text)
    assert [d.code for d in found] == [code]
    assert found[0].range is not None
    assert (found[0].range.start.line, found[0].range.start.column) == where
    assert message in found[0].message


def test_a_duplicate_names_both_places() -> None:
    _, found = read('{"a": 1,\n "a": 2}')
    assert found[0].related[0].range.start == Position(1, 2)


def test_duplicates_and_numbers_are_reported_at_once() -> None:
    _, found = read('{"a": 1e999, "a": 2, "b": "\\ud800"}')
    assert [d.code for d in found] == ["S108", "S103", "S113"]


def test_places() -> None:
    node, _ = read('{"é": [1,\r\n "\U0001f600", {"b": null}]}')
    assert node is not None
    found = {pointer: (part.range.start, part.range.end) for pointer, part in walk(node)}
    assert found == {
        "": (Position(1, 1), Position(2, 20)),
        "/é": (Position(1, 7), Position(2, 19)),
        "/é/0": (Position(1, 8), Position(1, 9)),
        "/é/1": (Position(2, 2), Position(2, 5)),
        "/é/2": (Position(2, 7), Position(2, 18)),
        "/é/2/b": (Position(2, 13), Position(2, 17)),
    }


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**53), max_value=2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x00")),
    lambda data: st.lists(data, max_size=5) | st.dictionaries(st.text(st.characters(codec="utf-8")), data, max_size=5),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(_JSON, st.booleans(), st.sampled_from([None, 0, 2]))
def test_what_json_dumps_is_read_back(data: Any, ascii: bool, indent: int | None) -> None:
    node, found = read(json.dumps(data, ensure_ascii=ascii, indent=indent))
    assert found == []
    assert node is not None
    assert to_python(node) == data


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(st.sampled_from('{}[]:,"\\u d0eE+-.1tfn\n/'), max_size=25))
def test_it_accepts_what_python_accepts(text: str) -> None:
    try:
        json.loads(text, parse_constant=lambda name: 1 / 0)
        valid = True
    except (ValueError, ZeroDivisionError):
        valid = False
    _, found = read(text)
    codes = {d.code for d in found}
    if valid:
        assert codes <= {"S103", "S108", "S113"}
    else:
        assert codes & {"S102", "S110", "S112"} or codes

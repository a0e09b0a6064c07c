"""What YAML means: values, texts, ranges, anchors and merges."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec.diagnostics import Position, Range, Report
from sglspec.document import yaml_events
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence, to_python, walk
from sglspec.document.read import parse, source_from_text


def read(text: str) -> Node:
    report = Report()
    node = parse(source_from_text(text, "t.yaml"), report)
    assert report.sorted() == []
    assert node is not None
    return node


def value(text: str) -> Any:
    return to_python(read(f"key: {text}\n"))["key"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("-7", -7),
        ("+7", 7),
        ("1e3", 1000.0),
        ("1.0", 1.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-1.5E-2", -0.015),
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("~", None),
        ("", None),
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("tRUE", "tRUE"),
        ("nUll", "nUll"),
        ("0o8", "0o8"),
        ("0xG", "0xG"),
        ("1e", "1e"),
        (".", "."),
        ("NaN", "NaN"),
        ("inf", "inf"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("'~'", "~"),
        ("9007199254740992", 2**53),
        ("Grade {{ essay }}", "Grade {{ essay }}"),
        ("'\\d+'", "\\d+"),
        ("\\d+", "\\d+"),
        ("gen:answer", "gen:answer"),
        ("C#", "C#"),
        ("https://example.com/#top", "https://example.com/#top"),
        ("a]", "a]"),
    ],
)
def test_core_schema(written: str, expected: Any) -> None:
    found = value(written)
    assert found == expected
    assert type(found) is type(expected)


def test_the_text_of_a_number_is_kept() -> None:
    node = read("a: [012, 1.0, 0x1F, True, ~]")
    assert isinstance(node, Mapping)
    items = node.entries[0].value
    assert isinstance(items, Sequence)
    assert [item.text for item in items.items if isinstance(item, Scalar)] == ["012", "1.0", "0x1F", "True", "~"]


def test_keys_are_their_source_text() -> None:
    assert to_python(read("1: a\ntrue: b\nnull: c\n012: d\n1.0: e\n9007199254740999: f")) == {
        "1": "a",
        "true": "b",
        "null": "c",
        "012": "d",
        "1.0": "e",
        "9007199254740999": "f",
    }


def test_a_quoted_merge_sign_is_an_ordinary_key() -> None:
    assert to_python(read('"<<": {a: 1}')) == {"<<": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: |\n  x\n  y\n", "x\ny\n"),
        ("a: |-\n  x\n", "x"),
        ("a: |+\n  x\n\n", "x\n\n"),
        ("a: >\n  x\n  y\n", "x y\n"),
        ("a: >-\n  x\n\n  y\n", "x\ny"),
        ("a: |2\n   x\n  y\n", " x\ny\n"),
        ("a: x\n  y\n", "x y"),
        ("a: 'x\n\n  y'\n", "x\ny"),
        ('a: "x\\\n  y\\n"\n', "xy\n"),
        ("a: |\r\n  x\r\n  y\r\n", "x\ny\n"),
        ("a: |\n  x # not a comment\n", "x # not a comment\n"),
        ("a: |", ""),
    ],
)
def test_styles(text: str, expected: str) -> None:
    assert to_python(read(text)) == {"a": expected}


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029", "\ufeff", "\U000f0000", "\U0001f600", "\u00a0"])
@pytest.mark.parametrize("form", ["a: x{}y\n", "a: 'x{}y'\n", 'a: "x{}y"\n', "a: |-\n  x{}y\n"])
def test_characters_that_are_not_line_breaks(form: str, character: str) -> None:
    assert to_python(read(form.format(character))) == {"a": f"x{character}y"}


def test_a_stand_in_is_never_taken_from_the_text() -> None:
    assert to_python(read('a: "x\u2028\\U000F0000\U000f0001"')) == {"a": "x\u2028\U000f0000\U000f0001"}


def test_byte_order_mark_and_crlf() -> None:
    report = Report()
    node = parse(source_from_text("\ufeffa: 1\r\nb: 'x'\r\n".encode(), "t.yaml"), report)
    assert node is not None
    assert to_python(node) == {"a": 1, "b": "x"}
    assert node.range.start == Position(1, 1)


def test_ranges() -> None:
    node = read("a: &n |\n  text\n\nb: {c: 1}\nd:\n- x\n-\n  - 'y'\n\n# end\n")
    found = {pointer: (part.range.start, part.range.end) for pointer, part in walk(node)}
    assert found == {
        "": (Position(1, 1), Position(8, 8)),
        "/a": (Position(1, 7), Position(2, 7)),
        "/b": (Position(4, 4), Position(4, 10)),
        "/b/c": (Position(4, 8), Position(4, 9)),
        "/d": (Position(6, 1), Position(8, 8)),
        "/d/0": (Position(6, 3), Position(6, 4)),
        "/d/1": (Position(8, 3), Position(8, 8)),
        "/d/1/0": (Position(8, 5), Position(8, 8)),
    }


def test_columns_count_code_points() -> None:
    node = read("é: {日本: '\U0001f600', b: 1}")
    assert isinstance(node, Mapping)
    inner = node.entries[0].value
    assert isinstance(inner, Mapping)
    assert inner.entries[1].key.range == Range.at(1, 14)


def test_a_missing_value_has_a_place() -> None:
    node = read("user:\nb: 1")
    assert isinstance(node, Mapping)
    assert node.entries[0].value.range == Range.at(1, 6, 0)


def test_an_alias_is_a_fresh_copy_at_the_place_of_the_alias() -> None:
    node = read("a: &x {k: [1, 2]}\nb: *x\nc: *x\n")
    assert to_python(node) == {"a": {"k": [1, 2]}, "b": {"k": [1, 2]}, "c": {"k": [1, 2]}}
    everything = [part for _, part in walk(node)]
    assert len({id(part) for part in everything}) == len(everything)
    assert isinstance(node, Mapping)
    assert node.entries[1].value.range == Range.at(2, 4, 2)


def test_an_anchor_may_be_given_again() -> None:
    assert to_python(read("a: &x 1\nb: *x\nc: &x 2\nd: *x\n")) == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_an_alias_may_be_a_key() -> None:
    assert to_python(read("a: &x name\n*x : 1\n")) == {"a": "name", "name": 1}


def test_one_level_of_merge() -> None:
    text = "base: &b {x: 1, y: 2}\nuse:\n  first: 0\n  <<: *b\n  y: 3\n"
    node = read(text)
    assert to_python(node)["use"] == {"first": 0, "x": 1, "y": 3}
    assert list(to_python(node)["use"]) == ["first", "x", "y"]


def test_merging_a_list_prefers_the_earlier_mapping() -> None:
    text = "a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc:\n  <<: [*a, *b, {z: 3}]\n"
    assert to_python(read(text))["c"] == {"x": 1, "y": 2, "z": 3}


def test_siblings_may_merge_the_same_mapping() -> None:
    text = "a: &a {x: 1}\nb: [{<<: *a}, {<<: *a, y: 2}]\n"
    assert to_python(read(text))["b"] == [{"x": 1}, {"x": 1, "y": 2}]


def test_directives_markers_and_comments() -> None:
    assert to_python(read("%YAML 1.2\n# c\n---\na: 1 # one\n...\n")) == {"a": 1}


def test_a_tab_may_separate_and_may_indent_brackets() -> None:
    assert to_python(read("a:\t1\nb: [\n\t1,\n\t2 ]\n")) == {"a": 1, "b": [1, 2]}


def test_the_pure_reader_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &n |\n  text\nb: {c: 0x1F, d: *n}\ne: [x, 'y\u2028', \"\\t\"]\n"
    expected = [(p, n.range, to_python(n)) for p, n in walk(read(text))]
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert next(event.kind for event in yaml_events.read_events("a: 1")) == "document"
    assert [(p, n.range, to_python(n)) for p, n in walk(read(text))] == expected


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**53), max_value=2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x00\x85\u2028\u2029"), max_size=20)
)
_KEYS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=8)
_DATA = st.dictionaries(
    _KEYS,
    st.recursive(_LEAVES, lambda d: st.lists(d, max_size=4) | st.dictionaries(_KEYS, d, max_size=4), max_leaves=12),
    min_size=1,
    max_size=5,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(_DATA, st.sampled_from([True, False, None]), st.booleans())
def test_what_pyyaml_dumps_is_read_back(data: dict[str, Any], flow: bool | None, unicode: bool) -> None:
    dumped = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=unicode, sort_keys=False)
    report = Report()
    node = parse(source_from_text(dumped, "t.yaml"), report)
    assert not report.has_errors, report.sorted()
    assert node is not None
    assert to_python(node) == data

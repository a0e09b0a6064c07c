"""From an offset in a text back to the place in the document."""

from __future__ import annotations

import json
from typing import cast

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sglspec.diagnostics import Position, Range, Report
from sglspec.document.nodes import Mapping, Scalar, Source, Style
from sglspec.document.read import locate, locate_range, parse, source_from_text


def scalar_of(text: str, name: str = "t.yaml") -> tuple[Source, Scalar]:
    source = source_from_text(text, name)
    report = Report()
    node = parse(source, report)
    assert isinstance(node, Mapping), report.sorted()
    found = node.entries[-1].value
    assert isinstance(found, Scalar)
    return source, found


def character_at(source: Source, position: Position) -> str:
    return source.text[source.offset(position)]


def check(source: Source, scalar: Scalar, ordinary: str) -> None:
    """Every ordinary character is found where it stands, and places never go backwards."""
    before = Position(1, 1)
    for index, character in enumerate(scalar.text):
        place = locate(source, scalar, index)
        assert scalar.range.start <= place
        assert before <= place
        before = place
        if character in ordinary:
            assert character_at(source, place) == character
            assert locate_range(source, scalar, index, index + 1) == Range.at(place.line, place.column)


ORDINARY = "abcdxyz{}.%éß日\U0001f600"
ALPHABET = ORDINARY + " \n'\"\\#:"


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.text(st.sampled_from(ALPHABET), min_size=1, max_size=40),
    st.sampled_from(["'", '"', "|", ">", None]),
    st.booleans(),
    st.integers(min_value=8, max_value=30),
    st.booleans(),
)
def test_every_style_that_pyyaml_writes(text: str, style: str | None, unicode: bool, width: int, crlf: bool) -> None:
    dumped = cast("str", yaml.safe_dump({"k": text}, default_style=style, allow_unicode=unicode, width=width))
    if crlf:
        dumped = dumped.replace("\n", "\r\n")
    source, scalar = scalar_of(dumped)
    assert scalar.text == text
    ordinary = ORDINARY if scalar.style != "double" else "abcdxyz{}.%"
    check(source, scalar, ordinary)


_LINE = st.text(st.sampled_from("ab{} \té日"), max_size=8)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.lists(_LINE, max_size=6),
    st.sampled_from("|>"),
    st.sampled_from(["", "-", "+"]),
    st.sampled_from([0, 1, 2, 4]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "  # comment", " "]),
    st.booleans(),
)
def test_block_scalars_written_by_hand(
    lines: list[str], mark: str, chomp: str, explicit: int, nested: bool, newline: str, rest: str, more: bool
) -> None:
    """Only documents that YAML accepts count: a tab in the indentation is refused elsewhere."""
    parent = "  " if nested else ""
    indent = len(parent) + (explicit or 2)
    body = [(" " * indent + line) if line else "" for line in lines]
    head = (
        ["outer:", f"{parent}k: {mark}{explicit or ''}{chomp}{rest}"]
        if nested
        else [f"k: {mark}{explicit or ''}{chomp}{rest}"]
    )
    tail = ["# end", ""] if more else []
    source = source_from_text(newline.join([*head, *body, *tail]), "t.yaml")
    report = Report()
    node = parse(source, report)
    assume(isinstance(node, Mapping))
    assert isinstance(node, Mapping)
    value = node.entries[0].value
    scalar = value.entries[0].value if isinstance(value, Mapping) else value
    assert isinstance(scalar, Scalar)
    check(source, scalar, "ab{}é日\t")


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.text(st.sampled_from("ab{}' \té"), max_size=8), min_size=1, max_size=5), st.sampled_from("'\"p"))
def test_flow_scalars_over_several_lines(lines: list[str], quote: str) -> None:
    body = "\n  ".join(line.replace("'", "''") if quote == "'" else line.replace("'", "") for line in lines)
    text = f"k: a{body}b" if quote == "p" else f"k: {quote}{body}{quote}"
    source = source_from_text(text, "t.yaml")
    node = parse(source, Report())
    assume(isinstance(node, Mapping))
    assert isinstance(node, Mapping)
    scalar = node.entries[0].value
    assert isinstance(scalar, Scalar)
    check(source, scalar, "ab{}é")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30), st.booleans())
def test_json_strings(text: str, ascii: bool) -> None:
    source, scalar = scalar_of(json.dumps({"k": text}, ensure_ascii=ascii), "t.json")
    escaped = '"\\' + "".join(map(chr, range(32)))
    check(source, scalar, "".join(c for c in text if c not in escaped and (not ascii or "\x20" <= c < "\x7f")))


@pytest.mark.parametrize(
    ("text", "index", "expected"),
    [
        ("k: abc", 2, Position(1, 6)),
        ("k: abc", 3, Position(1, 7)),
        ("k: abc\n  def", 4, Position(2, 3)),
        ("k: 'a''b'", 2, Position(1, 8)),
        ("k: 'a''b'", 3, Position(1, 9)),
        ('k: "a\\n\\x41b"', 3, Position(1, 12)),
        ('k: "a\\\n   b"', 1, Position(2, 4)),
        ('k: "\\U0001F600b"', 1, Position(1, 15)),
        ("k: |\n  ab\n  cd\n", 4, Position(3, 4)),
        ("k: |\n  ab\n  cd\n", 6, Position(4, 1)),
        ("k: |2\n   ab\n", 1, Position(2, 4)),
        ("- k: |-\n    ab", 2, None),
        ("k: >\n  ab\n  cd\n\n  ef\n", 6, Position(5, 3)),
        ("k: ''", 0, Position(1, 5)),
        ("k: |\n", 0, Position(1, 4)),
        ("k: >\n    ab\n    ", 2, Position(2, 7)),
        ("k: &a :x", 1, Position(1, 8)),
        ("k: &a \u2028x", 1, Position(1, 8)),
        ("k: 007", 2, Position(1, 6)),
    ],
)
def test_places(text: str, index: int, expected: Position | None) -> None:
    if expected is None:
        text, expected = text.replace("- k", "k"), Position(2, 7)
    source, scalar = scalar_of(text)
    assert locate(source, scalar, index) == expected


def test_ranges() -> None:
    source, scalar = scalar_of("k: |\n  one {{ two }}\n  {{ three }}\n")
    start = scalar.text.index("{{ two")
    assert locate_range(source, scalar, start, start + 9) == Range.at(2, 7, 9)
    start = scalar.text.index("{{ three")
    assert locate_range(source, scalar, start, start + 11) == Range.at(3, 3, 11)
    assert locate_range(source, scalar, start, start) == Range.at(3, 3, 0)
    assert locate_range(source, scalar, 0, 999) == Range(Position(2, 3), Position(4, 1))


def test_a_surrogate_pair_is_one_character() -> None:
    source, scalar = scalar_of('{"k": "\\ud83d\\ude00{{"}', "t.json")
    assert locate_range(source, scalar, 0, 1) == Range.at(1, 8, 12)
    assert locate(source, scalar, 1) == Position(1, 20)


def test_an_alias_stands_where_it_stands() -> None:
    source, scalar = scalar_of("a: &x |\n  long text\nb: *x\n")
    assert scalar.style == "literal"
    assert locate_range(source, scalar, 3, 5) == Range.at(3, 4, 2)


def test_an_anchored_text() -> None:
    source, scalar = scalar_of("a: &x 'text'")
    assert locate(source, scalar, 1) == Position(1, 9)


STYLES: dict[Style, str] = {
    "plain": "k: x",
    "single": "k: 'x'",
    "double": 'k: "x"',
    "literal": "k: |\n  x",
    "folded": "k: >\n  x",
}


@pytest.mark.parametrize("style", list(STYLES))
def test_styles_are_told(style: Style) -> None:
    assert scalar_of(STYLES[style])[1].style == style

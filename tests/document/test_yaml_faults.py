"""What is wrong with a YAML document, and how it is said."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec.diagnostics import Diagnostic, Position, Report, SpecError
from sglspec.diagnostics.render import render_text
from sglspec.document.read import parse, source_from_text
from sglspec.document.yaml_faults import _value_starts  # pyright: ignore[reportPrivateUsage]
from sglspec.document.yaml_place import VALUE


def faults(text: str) -> list[Diagnostic]:
    report = Report()
    node = parse(source_from_text(text, "t.yaml"), report)
    assert (node is None) == report.has_errors
    return report.sorted()


def only(text: str) -> Diagnostic:
    found = faults(text)
    assert len(found) == 1, found
    return found[0]


def place(diagnostic: Diagnostic) -> tuple[int, int]:
    assert diagnostic.range is not None
    return (diagnostic.range.start.line, diagnostic.range.start.column)


CASES = [
    # the loud and cryptic ones
    ("user: Note: answer", "S101", (1, 11), "colon", '"Note: answer"'),
    ("- user: hi\n- user: a: b", "S101", (2, 10), "colon", '"a: b"'),
    ("user: ${ a } score: ${ b }", "S101", (1, 19), "colon", '"${ a } score: ${ b }"'),
    ("user: @bob", "S101", (1, 7), "`@`", '"@bob"'),
    ("user: %d items", "S101", (1, 7), "`%`", '"%d items"'),
    ("user: `code`", "S101", (1, 7), "backtick", '"`code`"'),
    ("user: *important* read", "S101", (1, 7), "`*`", '"*important* read"'),
    ("user: *important", "S107", (1, 7), "`&important`", '"*important"'),
    ("user: & b", "S101", (1, 7), "`&`", '"& b"'),
    ("user: - a list", "S101", (1, 7), "`- `", "line below its key"),
    ("user: ? what", "S101", (1, 7), "`? `", '"? what"'),
    ("user: > quoted", "S101", (1, 7), "next line", '"> quoted"'),
    ("user: | hello", "S101", (1, 7), "next line", '"| hello"'),
    ("user: , b", "S101", (1, 7), "`,`", '", b"'),
    ("user: ]", "S101", (1, 7), "`]`", '"]"'),
    ("user: 'it's fine'", "S101", (1, 11), "single quotes", "''"),
    ('user: "say "hi" now"', "S101", (1, 13), "double quotes", '\\"'),
    ('user: "\\d+"', "S101", (1, 8), "`\\d`", "single quotes"),
    ('user: "\\u12"', "S101", (1, 8), "4 hexadecimal", None),
    ('user: "\\ud83d\\ude00"', "S113", (1, 8), "not a character", None),
    ("user: [0-9]+", "S101", (1, 12), "`]`", '"[0-9]+"'),
    ('user: "open', "S101", (1, 7), "never closed", "closing"),
    ("user: 'open\nb: 2", "S101", (1, 7), "never closed", "''"),
    ("user: [a, b\nb: 2", "S101", (1, 7), "never closed", "`]`"),
    ("user: {a: b", "S101", (1, 7), "never closed", "`}`"),
    ("a: {b: 1 c: 2}", "S101", (1, 11), "`}`", "quotes"),
    ("a: [1]]", "S101", (1, 7), "too many", None),
    ("a: |3x\n b", "S101", (1, 4), "next line", None),
    ("a: |0\n b", "S101", (1, 4), "from 1 to 9", None),
    ("%FOO\na: 1", "S101", (1, 1), "`%`", None),
    ("a: 1\nword\nb: 2", "S101", (2, 1), "neither", "`|`"),
    ("key with no colon\nother: 1", "S101", (2, 1), "line above", "colon"),
    ("a: 1\n b: 2", "S101", (2, 2), "line above", "column 1"),
    ("- gen: a\n    stop: b", "S101", (2, 5), "line above", "column 3"),
    ("a:\n  b: 1\n c: 2", "S101", (3, 2), "indentation", "column"),
    ("- a\nb: 1", "S101", (2, 1), "list items", "`- `"),
    ("a: 1\n- b", "S101", (2, 1), "list item", "Indent"),
    ("a: Use C # not Java\n  at all", "S101", (2, 3), "comment", "quotes"),
    ("- user: Hello, {{ x }}: how", "S101", (1, 23), "colon", '"Hello, {{ x }}: how"'),
    ("- user: a - {{ x }}: b", "S101", (1, 20), "colon", '"a - {{ x }}: b"'),
    ('if: "no" == x', "S101", (1, 10), "double quotes", "'\"no\" == x'"),
    ('if: x == "a: b"', "S101", (1, 12), "colon", "'x == \"a: b\"'"),
    ("s:\n  -user: hi\n  - gen: x", "S101", (3, 3), "no space after its `-`", "`- `"),
    ("{a: 1}\nb: 2", "S101", (2, 1), "complete", None),
    # tabs
    ("a:\n\tb: 1", "S111", (2, 1), "tab", "spaces"),
    ("a: 1\n\tb: 1", "S111", (2, 1), "tab", "spaces"),
    ("a: |\n\tfoo", "S111", (2, 1), "tab", "spaces"),
    ("a: |\n  foo\n\tbar", "S111", (3, 1), "tab", "spaces"),
    # structure
    ("a: !important read", "S104", (1, 4), "`!important`", '"!important read"'),
    ("a: !!python/object/apply:os.system [ls]", "S104", (1, 4), "tag", None),
    ("a: !<tag:yaml.org,2002:str> x", "S104", (1, 4), "tag", None),
    ("a: !foo!bar x", "S104", (1, 4), "`!`", None),
    ("a: 1\n---\nb: 2", "S105", (2, 1), "second document", "`---`"),
    ("a: &x [*x]", "S107", (1, 8), "contain itself", None),
    ("a: *x\nb: &x 1", "S107", (1, 4), "none above", None),
    ("? [a]\n: b", "S110", (1, 3), "key", None),
    ("[a]: b", "S110", (1, 1), "key", None),
    ("{a: 1}: b", "S110", (1, 1), "key", None),
    ("", "S112", (1, 1), "empty", "sglspec: v1"),
    ("# only a comment\n", "S112", (1, 1), "empty", None),
    ("---\n", "S112", (1, 1), "empty", None),
    # numbers
    ("a: .inf", "S108", (1, 4), "Infinity", '".inf"'),
    ("a: -.INF", "S108", (1, 4), "Infinity", None),
    ("a: .nan", "S108", (1, 4), "Infinity", None),
    ("a: 1e400", "S108", (1, 4), "too large", '"1e400"'),
    ("a: 9007199254740993", "S108", (1, 4), "too large", '"9007199254740993"'),
    ("a: 0x20000000000001", "S108", (1, 4), "too large", None),
    ("a: 0o7777777777777777777", "S108", (1, 4), "too large", None),
    ("a: " + "9" * 5000, "S108", (1, 4), "too large", None),
    ("a: 0x" + "f" * 5000, "S108", (1, 4), "too large", None),
    # characters
    ("a: x\x07y", "S113", (1, 5), "U+0007", "\\x07"),
    ("a: x\x7fy", "S113", (1, 5), "U+007F", None),
    ("a: x\uffffy", "S113", (1, 5), "U+FFFF", None),
    ("a: 1\n\xa0b: 2", "S113", (2, 1), "U+00A0", "ordinary"),
    ("a\xa0: 2", "S113", (1, 2), "U+00A0", "ordinary"),
    ("- user:\xa0hello", "S113", (1, 8), "U+00A0", "ordinary"),
    # braces
    ("user: {{ essay }}", "S207", (1, 7), "`{{`", '"{{ essay }}"'),
    ("- {{ x }}", "S207", (1, 3), "`{{`", '"{{ x }}"'),
    ("{{ x }}", "S207", (1, 1), "`{{`", '"{{ x }}"'),
    ("{{ x }}: y", "S207", (1, 1), "`{{`", None),
    ("user: {{ essay }} is good", "S207", (1, 7), "`{{`", '"{{ essay }} is good"'),
    ("user: {{ essay }}  # it", "S207", (1, 7), "`{{`", '"{{ essay }}"'),
    ("s: [{{ x }}]", "S207", (1, 5), "`{{`", '"{{ x }}"'),
    ("s: [a, {{ x }}]", "S207", (1, 8), "`{{`", '"{{ x }}"'),
    ("s: {a: {{ x }}}", "S207", (1, 8), "`{{`", '"{{ x }}"'),
    ("user: {{ x | join(', ') }}", "S207", (1, 7), "`{{`", "\"{{ x | join(', ') }}\""),
    ('user: {{ x | join("a") }}', "S207", (1, 7), "`{{`", "'{{ x | join(\"a\") }}'"),
    ("user: {{ x[0] }}", "S207", (1, 7), "`{{`", '"{{ x[0] }}"'),
    ("user: {{ a }}: {{ b }}", "S207", (1, 7), "`{{`", '"{{ a }}: {{ b }}"'),
    ("user: {{{ x }}}", "S207", (1, 7), "`{{`", None),
    ("user: {{ x\n }}", "S207", (1, 7), "`{{`", "`|`"),
    ("user: {% if x %}a{% endif %}", "S207", (1, 7), "`{%`", '"{% if x %}a{% endif %}"'),
]


@pytest.mark.parametrize(("text", "code", "where", "message", "help"), CASES)
def test_fault(text: str, code: str, where: tuple[int, int], message: str, help: str | None) -> None:
    found = only(text)
    assert found.code == code
    assert place(found) == where
    assert message in found.message
    if help is not None:
        assert help in (found.help or "")
    assert found.file == "t.yaml"


@pytest.mark.parametrize(("text", "code", "where"), [case[:3] for case in CASES if not case[0].startswith("%")])
def test_the_pure_reader_refuses_the_same(
    text: str, code: str, where: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    found = only(text)
    assert (found.code, place(found)[0]) == (code, where[0])


def test_a_duplicate_key_names_both_places() -> None:
    found = only("steps: 1\nuser: a\nuser: b\n")
    assert found.code == "S103"
    assert place(found) == (3, 1)
    assert [(r.message, r.range.start) for r in found.related] == [("first written here", Position(2, 1))]


def test_keys_are_compared_as_text() -> None:
    assert only('1: a\n"1": b').code == "S103"


def test_several_faults_are_reported_at_once() -> None:
    text = "a: 1\na: 2\nb: {{ x }}\nc: .inf\nd: !t x\ne: *no\n"
    assert [d.code for d in faults(text)] == ["S103", "S207", "S108", "S104", "S107"]


def test_braces_in_a_list_are_each_reported() -> None:
    assert [place(d) for d in faults("s: [{{ x }}, {{ y }}]")] == [(1, 5), (1, 14)]


def test_a_syntax_fault_below_is_still_reported() -> None:
    assert [d.code for d in faults("a: {{ x }} y\n")] == ["S207"]
    assert [d.code for d in faults("a: {{ x }}\nb: 'x' y\n")] == ["S207", "S101"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: &a {<<: &b {x: 1}}\nb: {<<: *a}", (2, 5)),
        ("a: &a {x: 1}\nb: {<<: {<<: *a}}", (2, 5)),
        ("a: &a {x: 1}\nb: &b {<<: *a}\nc: {<<: [*a, *b]}", (3, 5)),
        ("a: {<<: 1}", (1, 9)),
        ("a: &a [1]\nb: {<<: *a}", (2, 9)),
        ("a: {<<: }", (1, 9)),
    ],
)
def test_merge(text: str, where: tuple[int, int]) -> None:
    found = only(text)
    assert found.code == "S106"
    assert place(found) == where


def test_two_merges_in_one_mapping_are_a_key_written_twice() -> None:
    assert only("a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n").code == "S103"


def test_positions_in_crlf_files() -> None:
    assert place(only("a: 1\r\nb: é: c\r\n")) == (2, 5)


def test_half_of_a_character_in_the_pure_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert only('user: "\\ud83d"').code == "S113"


HOSTILE = [
    ("[" * 4000, "S109", "levels"),
    ("{" * 4000, "S109", "levels"),
    ("{a: " * 2000, "S109", "levels"),
    ("[" * 65 + "]" * 65, "S109", "levels"),
    ("".join("  " * i + "a:\n" for i in range(300)), "S109", "levels"),
    ("- " * 3000, "S109", "levels"),
    ("? " * 3000, "S109", "levels"),
    ("\n".join(f"k{i}: 0" for i in range(120_000)), "S109", "1 MB"),
    ("\n".join(f"{i:x}:" for i in range(60_000)), "S109", "50,000"),
    ("[" + "1," * 60_000 + "]", "S109", "50,000"),
    ("a: " + "x" * 10_000_000, "S109", "1 MB"),
    ("a: &a " + "x\n" + "\n".join(f"k{i}: *a" for i in range(101)), "S109", "aliases"),
]


@pytest.mark.parametrize(("text", "code", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile(text: str, code: str, message: str) -> None:
    report = Report()
    try:
        assert parse(source_from_text(text, "t.yaml"), report) is None
        found = report.sorted()
    except SpecError as error:
        found = list(error.diagnostics)
    assert [d.code for d in found] == [code]
    assert message in found[0].message


def test_the_billion_laughs() -> None:
    lines = ["a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for before, after in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]")
    found = only("\n".join(lines))
    assert (found.code, place(found)[0]) == ("S109", 5)
    assert "counting what aliases stand for" in found.message


def test_aliases_cannot_hide_depth() -> None:
    lines = [f"a0: &a0 {'[' * 20}{']' * 20}"]
    lines += [f"a{i}: &a{i} {'[' * 20}*a{i - 1}{']' * 20}" for i in range(1, 5)]
    found = only("\n".join(lines))
    assert (found.code, place(found)[0]) == ("S109", 4)


def test_a_merge_chain() -> None:
    lines = ["m0: &m0 {a: 1}"] + [f"m{i}: &m{i} {{<<: [*m{i - 1}, *m{i - 1}]}}" for i in range(1, 21)]
    found = faults("\n".join(lines))
    assert found[0].code == "S106"
    assert {d.code for d in found} <= {"S106", "S109"}


def test_64_levels_are_allowed() -> None:
    assert faults("[" * 64 + "]" * 64) == []


def test_100_aliases_are_allowed() -> None:
    assert faults("a: &a x\n" + "\n".join(f"k{i}: *a" for i in range(100))) == []


_PIECES = [
    *"ab:-?*&!|>%@`'\"#[]{},.\\~<\t\n ",
    "\n  ",
    "\n    ",
    ": ",
    "- ",
    "{{ ",
    " }}",
    "{% ",
    " #",
    "<<: ",
    "*a ",
    "&a ",
    "---\n",
    "\r\n",
    "\\n",
    "1e999",
    "é",
    "\u2028",
    "\xa0",
]


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(_PIECES), max_size=30).map("".join))
def test_any_text_is_either_read_or_refused_with_a_place(text: str) -> None:
    source = source_from_text(text, "t.yaml")
    report = Report()
    node = parse(source, report)
    assert (node is None) == report.has_errors
    for found in report.sorted():
        assert found.range is not None
        assert found.range.start <= found.range.end
        assert source.offset(found.range.start) <= len(source.text)
    assert bool(report.sorted()) == bool(render_text(report.sorted(), {"t.yaml": text}))


@settings(max_examples=300, derandomize=True)
@given(
    st.lists(
        st.sampled_from(["{{", "{%", "}}", "[", "]", "{", "}", '"', "'", ",", ": ", "- ", "a", " ", "é"]), max_size=12
    )
)
def test_where_values_start_is_decided_by_all_that_stands_before(parts: list[str]) -> None:
    """The line is gone through once; this looks at each place anew."""

    def starts(before: str) -> bool:
        value = VALUE.match(before)
        if value is not None and value.end() == len(before):
            return True
        in_flow = before.count("[") > before.count("]") or before.count("{") > before.count("}")
        in_quotes = before.count('"') % 2 or before.count("'") % 2
        return not in_quotes and in_flow and before.rstrip().endswith(("[", "{", ",", ":"))

    line = "".join(parts)
    places = [match.start() for match in re.finditer(r"\{[{%]", line)]
    assert list(_value_starts(line)) == [place for place in places if starts(line[:place])]

"""The regular-expression dialect: what it takes, what it refuses, and where it says so."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec.analysis.constraints import ConstraintError, regex_constraint
from sglspec.analysis.regexes import escape

MATCHES: list[tuple[str, list[str], list[str]]] = [
    (r"(foo|bar)+", ["foo", "foobar"], ["", "fo", "foob"]),
    (r"^yes|no$", ["yes", "no"], ["yesno", "y"]),
    (r"(?i)yes|no", ["YES", "No"], ["maybe"]),
    (r"(?i:y)es", ["Yes", "yes"], ["yES"]),
    (r"(?s).", ["\n", "a"], [""]),
    (r".", ["a", "é"], ["\n", "ab"]),
    (r"a/b", ["a/b"], ["ab"]),
    (r"\d{3}-\d{4}", ["123-4567"], ["123-456", "abc-defg"]),
    (r"[a-z_\-\]]+", ["a-b_]"], ["A"]),
    (r"[]a]+", ["]a"], ["b"]),
    (r"[^a-c]", ["d", "\n"], ["a"]),
    (r"[a-]", ["a", "-"], ["b"]),
    (r"\p{Lu}\P{Lu}", ["Éa"], ["ea"]),
    (r"(?P<year>\d+)(?<x>a)", ["12a"], ["a"]),
    (r"\x41\u00e9\U0001F600", ["Aé😀"], ["A"]),
    (r"\.\*\?\(\)\[\]\{\}\|\\\/", [".*?()[]{}|\\/"], [""]),
    (r"a.*?b", ["ab", "axbxb"], ["a"]),
    (r"a{2}|b{1,2}|c{2,}", ["aa", "b", "bb", "cccc"], ["a", "bbb", "c"]),
    ("", [""], ["a"]),
    ("a|", ["a", ""], ["b"]),
    ("()", [""], ["a"]),
    ("a\nb\tc", ["a\nb\tc"], ["abc"]),
    (r"\t\n\r", ["\t\n\r"], ["tnr"]),
    (r"""["'#&~]""", ['"', "'", "#", "&", "~"], ["a"]),
    ("[一-龥]+", ["中文"], ["abc"]),
    (r"}\}]", ["}}]"], [""]),
    (r"a b", ["a b"], ["ab"]),
]

REFUSED: list[tuple[str, str, int]] = [
    ("(?=a)", "S502", 0),
    ("a(?!b)", "S502", 1),
    ("(?<=a)b", "S502", 0),
    ("(?<!a)b", "S502", 0),
    (r"(a)\1", "S502", 3),
    ("(?P<a>x)(?P=a)", "S502", 8),
    (r"a\b", "S502", 1),
    (r"\Ba", "S502", 0),
    (r"\Aa", "S502", 0),
    (r"a\Z", "S502", 1),
    (r"a\z", "S502", 1),
    ("[a-z&&[^aeiou]]", "S502", 4),
    ("[a--b]", "S502", 2),
    ("[a~~b]", "S502", 2),
    ("[[a]]", "S502", 1),
    ("[[:alpha:]]", "S502", 1),
    ("(?(1)a|b)", "S502", 0),
    ("(?>a)", "S502", 0),
    ("a*+", "S502", 0),
    ("a++", "S502", 0),
    ("a?+", "S502", 0),
    ("a{2}+", "S502", 0),
    ("(?x)a", "S502", 0),
    ("(?m)a", "S502", 0),
    ("a(?i)b", "S502", 1),
    ("(?#note)a", "S502", 0),
    ("a^b", "S502", 1),
    ("a$b", "S502", 1),
    ("(^a)", "S502", 1),
    ("a{,3}", "S502", 1),
    ("a{", "S502", 1),
    ("{a", "S502", 0),
    (r"\0", "S502", 0),
    (r"\x{41}", "S502", 0),
    (r"\N{BULLET}", "S502", 0),
    (r"\<", "S502", 0),
    ("(a", "S501", 0),
    ("a)", "S501", 1),
    ("[a", "S501", 0),
    ("[]", "S501", 0),
    ("*a", "S501", 0),
    ("a|*", "S501", 2),
    ("foo**", "S501", 4),
    ("a{2}{3}", "S501", 4),
    ("a{3,2}", "S501", 1),
    ("[z-a]", "S501", 1),
    (r"[\d-z]", "S501", 1),
    (r"\q", "S501", 0),
    ("a\\", "S501", 1),
    (r"\x4", "S501", 0),
    (r"\ud800", "S501", 0),
    (r"\p", "S501", 0),
    (r"\p{Nope}", "S501", 0),
    ("(?a", "S501", 0),
    (r"[^\s\S]", "S505", 0),
    ("a{10001}", "S505", 1),
    ("(a{1000}){1000}", "S505", 0),
    ("((a{100}){100}){100}", "S505", 0),
    ("(" * 200 + "a" + ")" * 200, "S505", 100),
    ("a" * 20_001, "S505", 0),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), MATCHES, ids=[repr(row[0]) for row in MATCHES])
def test_matches_like_python(pattern: str, good: list[str], bad: list[str]) -> None:
    constraint = regex_constraint(pattern)
    for text in good:
        assert constraint.parse(text) == text
    for text in bad:
        with pytest.raises(ValueError, match="does not match"):
            constraint.parse(text)
    if r"\p" not in pattern and "(?<x" not in pattern:  # what Python's engine does not have
        compiled = re.compile(pattern)
        assert all(compiled.fullmatch(text) for text in good)
        assert not any(compiled.fullmatch(text) for text in bad)


@pytest.mark.parametrize(("pattern", "code", "offset"), REFUSED, ids=[row[0][:20] for row in REFUSED])
def test_refuses_with_a_place(pattern: str, code: str, offset: int) -> None:
    with pytest.raises(ConstraintError) as caught:
        regex_constraint(pattern)
    assert (caught.value.code, caught.value.start or 0) == (code, offset)
    assert caught.value.message


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "pattern",
    [
        "[ab]*a[ab]{13}", "([ab]*a[ab]{13}){50}", "(a*)*" * 200, "(x+x+)+y", ".{0,10000}", "(.*a.{20}){20}",
        r"(\w+\s){500}", "((a?){100}b?){100}", "|".join(f"word{i}" for i in range(1500)), "a|" * 5000 + "b",
        "(((((a{9}){9}){9}){9}){9}){9}", "(" * 5000, "[" * 5000, "a{1,99999999999999999999}", "(?:" * 90 + "a" + ")" * 90,
    ],
)  # fmt: skip
def test_hostile_patterns_end_quickly(pattern: str) -> None:
    try:
        constraint = regex_constraint(pattern)
        for text in ("a" * 200, "ab" * 100, "x" * 200):
            with contextlib.suppress(ValueError):
                constraint.parse(text)
    except ConstraintError as error:
        assert error.code in ("S501", "S502", "S505")


@given(st.text(max_size=20))
@settings(max_examples=60, deadline=None)
def test_escaped_text_matches_itself(text: str) -> None:
    assert regex_constraint(escape(text)).parse(text) == text


@given(st.text(alphabet="ab01(|)[]{}*+?.^$\\-,dwsnx&~<>=!:iP'/", max_size=14))
@settings(max_examples=150, deadline=None)
def test_what_is_taken_means_the_same_in_python(pattern: str) -> None:
    """Whatever passes our scanner, Python's engine reads too, and agrees on some texts."""
    try:
        constraint = regex_constraint(pattern)
    except ConstraintError:
        return
    if "(?<" in pattern or "\\P" in pattern:
        return
    compiled = re.compile(pattern)
    for text in ("", "a", "b", "ab", "0", "a0", "ba", "-", "1", "aab", "\\", "["):
        try:
            ours = constraint.parse(text) == text
        except ValueError:
            ours = False
        assert ours == bool(compiled.fullmatch(text)), (pattern, text)


def test_escaped_text_is_plain_inside_a_set() -> None:
    constraint = regex_constraint(f"[{escape('a-c&&]^')}]+")
    assert constraint.parse("a-c&]^") == "a-c&]^"
    with pytest.raises(ValueError, match="does not match"):
        constraint.parse("b")

"""The text face and the JSON face of diagnostics."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec.diagnostics import Diagnostic, Position, Range, Related
from sglspec.diagnostics.record import MAX_REPORTED
from sglspec.diagnostics.render import render_json, render_text, summary
from sglspec.diagnostics.snippet import harmless, underlined

TEXT = "steps:\n  - usr: Hello\n  - user: Bye\n"


def test_one_error() -> None:
    found = Diagnostic(
        "S201", "There is no key `usr` here.", file="judge.yaml", range=Range.at(2, 5, 3), help="Did you mean `user`?"
    )
    assert render_text([found], {"judge.yaml": TEXT}) == (
        "judge.yaml:2:5: error S201: There is no key `usr` here.\n"
        "2 |   - usr: Hello\n"
        "  |     ^^^\n"
        "help: Did you mean `user`?\n"
        "\n"
        "1 error\n"
    )


def test_related_places_have_snippets_of_their_own() -> None:
    related = (Related("first written here", Range.at(2, 5, 3)), Related("and there", Range.at(1, 1, 2), "b.yaml"))
    found = Diagnostic("S103", "Twice.", file="a.yaml", range=Range.at(3, 5, 4), related=related)
    assert render_text([found], {"a.yaml": TEXT, "b.yaml": "xyz"}) == (
        "a.yaml:3:5: error S103: Twice.\n"
        "3 |   - user: Bye\n"
        "  |     ^^^^\n"
        "note: first written here (a.yaml:2:5)\n"
        "2 |   - usr: Hello\n"
        "  |     ^^^\n"
        "note: and there (b.yaml:1:1)\n"
        "1 | xyz\n"
        "  | ^^\n"
        "\n"
        "1 error\n"
    )


def test_without_a_place_or_a_source() -> None:
    assert render_text([Diagnostic("S402", "Missing.")], {}) == "error S402: Missing.\n\n1 error\n"
    found = Diagnostic("S707", "Bad.", file="a.yaml", range=Range.at(9, 1), cause="S406")
    assert render_text([found], {"a.yaml": "x"}) == "a.yaml:9:1: error S707 (caused by S406): Bad.\n\n1 error\n"
    assert render_text([found], {}).startswith("a.yaml:9:1: error")


def test_nothing_to_say() -> None:
    assert render_text([], {}) == ""
    assert summary([]) == "no errors"


def test_counting() -> None:
    error, warning = Diagnostic("S100", "x"), Diagnostic("W101", "y", severity="warning")
    assert summary([error, error, warning]) == "2 errors, 1 warning"
    assert summary([error]) == "1 error"
    assert summary([warning, warning]) == "2 warnings"


def test_the_cap() -> None:
    many = [Diagnostic("S201", f"number {i}", file="a", range=Range.at(1, 1)) for i in range(MAX_REPORTED + 7)]
    text = render_text(many, {})
    assert text.count("error S201") == MAX_REPORTED
    assert text.endswith("and 7 more\n\n57 errors\n")


def test_colour() -> None:
    found = Diagnostic("S201", "No.", file="a", range=Range.at(1, 1, 2), help="Yes.")
    coloured = render_text([found], {"a": "abc"}, color=True)
    assert "\x1b[1;31m" in coloured
    plain = coloured
    for style in ("0", "1", "1;31", "1;34", "1;36"):
        plain = plain.replace(f"\x1b[{style}m", "")
    assert plain == render_text([found], {"a": "abc"})


def test_control_characters_never_reach_the_terminal() -> None:
    source = "a: \x1b[31m\u202ex\x9b\r\n"
    found = Diagnostic("S113", "Bad \x1b[2J thing", file="e\x07.yaml", range=Range.at(1, 4, 3), help="\x1b]0;x\x07")
    text = render_text([found], {"e\x07.yaml": source})
    assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in text)
    assert "a: \ufffd[31m\ufffdx\ufffd" in text


def test_tabs_and_wide_characters_line_up() -> None:
    assert underlined("a\tbc", Range.at(1, 3, 2), 80) == ("a   bc", "    ^^")
    assert underlined("日本: x", Range.at(1, 5, 1), 80) == ("日本: x", "      ^")
    assert underlined("日本: x", Range.at(1, 1, 2), 80) == ("日本: x", "^^^^")
    assert underlined("e\u0301x", Range.at(1, 3, 1), 80) == ("e\u0301x", " ^")
    assert underlined("a\tb", Range.at(1, 2, 1), 80) == ("a   b", " ^^^")


def test_ranges_that_are_empty_long_or_outside() -> None:
    assert underlined("user:", Range.at(1, 6, 0), 80) == ("user:", "     ^")
    assert underlined("user: |", Range(Position(1, 7), Position(3, 2)), 80) == ("user: |", "      ^")
    assert underlined("key: value  ", Range(Position(1, 1), Position(3, 2)), 80) == ("key: value", "^^^^^^^^^^")
    assert underlined("ab", Range.at(1, 90, 5), 80) == ("ab", "  ^")
    assert underlined("", Range.at(1, 1, 1), 80) == ("", "^")


def test_long_lines_are_clipped_around_the_caret() -> None:
    line = "a" * 200 + "HERE" + "b" * 200
    shown, carets = underlined(line, Range.at(1, 201, 4), 40)
    assert len(shown) == 40
    assert shown[0] == shown[-1] == "…"
    assert shown[carets.index("^") :].startswith("HERE")
    assert carets.strip() == "^^^^"
    shown, carets = underlined(line, Range.at(1, 3, 300), 40)
    assert shown == "a" * 38 + "…"
    assert carets == "  " + "^" * 36


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.text(st.sampled_from("ab \t日é\u0301\x1b\U0001f600"), max_size=80),
    st.integers(1, 90),
    st.integers(0, 90),
    st.integers(20, 60),
)
def test_a_snippet_always_fits(line: str, column: int, length: int, room: int) -> None:
    shown, carets = underlined(line, Range.at(1, column, length), room)
    assert "^" in carets
    assert len(carets) <= room + 3
    assert carets.strip(" ").strip("^") == ""
    assert "\x1b" not in shown


def test_harmless_keeps_lines_where_told() -> None:
    assert harmless("a\nb") == "a\ufffdb"
    assert harmless("a\nb\x1b", keep_breaks=True) == "a\nb\ufffd"


def test_json() -> None:
    found = Diagnostic("S201", "No é.", file="a.yaml", range=Range.at(2, 3, 4), pointer="/steps/0")
    assert json.loads(render_json([found])) == [
        {
            "code": "S201",
            "severity": "error",
            "message": "No é.",
            "file": "a.yaml",
            "range": {"start": {"line": 2, "column": 3}, "end": {"line": 2, "column": 7}},
            "pointer": "/steps/0",
        }
    ]
    assert render_json([]) == "[]"


def test_half_characters_can_be_written() -> None:
    """A text that a program hands over may hold what no file can."""
    found = Diagnostic("S201", "no key `\ud800`.", file="a\udfff.yaml", range=Range.at(1, 1))
    (face,) = json.loads(render_json([found]).encode())
    assert (face["message"], face["file"]) == (found.message, found.file)
    assert "\ufffd" in render_text([found], {"a\udfff.yaml": "\ud800: 1"}).encode().decode()

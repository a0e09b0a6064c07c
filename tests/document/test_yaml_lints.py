"""The silent traps: what is warned about, and what is left alone."""

from __future__ import annotations

import pytest

from sglspec.diagnostics import Report
from sglspec.document.read import parse, source_from_text


def lints(text: str) -> list[str]:
    report = Report()
    assert parse(source_from_text(text, "t.yaml"), report) is not None
    assert not report.has_errors
    return [d.code for d in report.sorted()]


@pytest.mark.parametrize(
    "text",
    [
        "user: Use C # not Java",
        "- user: Write a post about #ai",
        "user: Compare C and C # in two lines",
        "- Answer with # first",
        'if: x == "a #b" and y',
        "user: several words\n  over two lines # cut",
    ],
)
def test_a_comment_that_cuts_a_text(text: str) -> None:
    assert lints(text) == ["W101"]


@pytest.mark.parametrize(
    "text",
    [
        "max: 8 # at most",
        "user: hello # greeting",
        "user: Write a summary.  # a comment",
        "user: Write a summary. # a comment",
        "user: Write a summary  # a comment",
        "if: related == 'no' # leave",
        "user: 'Use C' # a comment",
        'user: "two words" # a comment',
        "# a comment of its own\nuser: two words",
        "user: two words\n# a comment\n",
        "user: |\n  two words # text\n",
        "user: C#\n",
    ],
)
def test_a_comment_that_is_one(text: str) -> None:
    assert lints(text) == []


@pytest.mark.parametrize("text", ["user: &co means company", "user: &co\nb: 1", "- &co x"])
def test_an_unused_anchor(text: str) -> None:
    assert lints(text) == ["W102"]


@pytest.mark.parametrize(
    "text",
    ["a: &x word\nb: *x", "a: &x {b: 1}", "a: &x\n  b: 1", "a: &x |\n  text\n", "a: &x [1]", 'a: "&co x"'],
)
def test_an_anchor_that_takes_no_text(text: str) -> None:
    assert lints(text) == []


def test_a_windows_path() -> None:
    assert lints('a: "C:\\new\\table"') == ["W103"]
    assert lints('a: "open C:\\temp now"') == ["W103"]


@pytest.mark.parametrize(
    "text",
    [
        'a: "Q:\\nWhat?\\nA:"',
        'a: "C:\\\\new"',
        "a: 'C:\\new'",
        'a: "one\\ntwo\\tthree"',
        'a: "A:\\nx"',
        'a: "B:\\n\\nC:\\n"',
    ],
)
def test_escapes_that_are_meant(text: str) -> None:
    assert lints(text) == []


def test_a_lint_is_a_warning_with_a_fix() -> None:
    report = Report()
    parse(source_from_text("user: Use C # not Java", "t.yaml"), report)
    (found,) = report.sorted()
    assert found.severity == "warning"
    assert '"Use C # not Java"' in (found.help or "")


def test_no_lints_beside_errors() -> None:
    report = Report()
    parse(source_from_text("user: Use C # not Java\nuser: 1", "t.yaml"), report)
    assert [d.code for d in report.sorted()] == ["S103"]

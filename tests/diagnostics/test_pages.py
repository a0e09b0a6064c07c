"""Every code has a page, and the pages of the reader's codes tell the truth."""

from __future__ import annotations

import re

import pytest

from sglspec.diagnostics import Report, SpecError
from sglspec.diagnostics.codes import CODES
from sglspec.diagnostics.explain import explain, find_code
from sglspec.document.read import parse, source_from_text

_EXAMPLE = re.compile(r"(Wrong|Right):\n\n```(yaml|json)\n(.*?)\n```", re.DOTALL)
READING = [code for code in CODES if code.startswith(("S10", "S11", "W10")) and code not in ("S100", "S109")] + ["S207"]


def page(code: str) -> str:
    text = explain(code)
    assert text is not None
    return text


def codes_of(text: str, format: str) -> set[str]:
    report = Report()
    try:
        parse(source_from_text(text, f"t.{format}"), report)
    except SpecError as error:
        return {d.code for d in error.diagnostics}
    return {d.code for d in report.sorted()}


@pytest.mark.parametrize("code", list(CODES))
def test_every_code_has_a_page(code: str) -> None:
    lines = page(code).splitlines()
    assert lines[0] == f"# {code} {CODES[code].slug}: {CODES[code].title}"
    assert 3 <= len(lines) <= 45
    assert all(len(line) <= 130 for line in lines)


@pytest.mark.parametrize("code", [c for c in CODES if c not in READING and c != "S109"])
def test_examples_are_readable_documents(code: str) -> None:
    for _, format, example in _EXAMPLE.findall(page(code)):
        assert codes_of(example, format) == set()


@pytest.mark.parametrize("code", READING)
def test_the_reader_says_what_the_page_says(code: str) -> None:
    examples = _EXAMPLE.findall(page(code))
    assert [kind for kind, _, _ in examples] == ["Wrong", "Right"]
    for kind, format, example in examples:
        assert codes_of(example, format) == ({code} if kind == "Wrong" else set())


def test_codes_and_slugs_in_any_case() -> None:
    assert explain("s201") == explain(" S201 ") == explain("unknown-key") == explain("Unknown-Key")
    assert explain("S999") is None
    assert explain("../codes") is None
    assert find_code("unknown-key") == "S201"


def test_slugs_are_unique() -> None:
    assert len({row.slug for row in CODES.values()}) == len(CODES)

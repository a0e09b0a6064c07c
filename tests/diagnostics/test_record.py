"""The record and the report."""

from __future__ import annotations

import pytest

from sglspec.diagnostics import Diagnostic, Position, Range, Related, Report, SpecError


def test_a_report_sorts_and_drops_repetitions() -> None:
    report = Report(file="a.yaml")
    report.extend(
        [
            Diagnostic("S201", "later", range=Range.at(2, 1)),
            Diagnostic("W101", "earlier", severity="warning", range=Range.at(1, 1)),
            Diagnostic("S201", "the same place again", range=Range.at(2, 1)),
            Diagnostic("S402", "no place"),
            Diagnostic("S402", "no place either"),
        ]
    )
    assert [d.message for d in report.sorted()] == ["no place", "no place either", "earlier", "later"]
    assert {d.file for d in report.sorted()} == {"a.yaml"}
    assert report.has_errors


def test_warnings_are_no_errors() -> None:
    report = Report()
    report.add(Diagnostic("W101", "x", severity="warning"))
    assert not report.has_errors
    report.raise_errors()
    report.add(Diagnostic("S101", "y"))
    with pytest.raises(SpecError) as caught:
        report.raise_errors()
    assert [d.code for d in caught.value.diagnostics] == ["S101", "W101"]
    assert "S101: y" in str(caught.value)


def test_the_json_face_leaves_out_what_says_nothing() -> None:
    assert Diagnostic("S1", "m").as_dict() == {"code": "S1", "severity": "error", "message": "m", "pointer": ""}
    full = Diagnostic(
        "S1", "m", file="f", range=Range.at(1, 2), help="h", cause="S2", related=(Related("r", Range.at(3, 4), "g"),)
    )
    assert full.as_dict()["related"] == [
        {"message": "r", "range": {"start": {"line": 3, "column": 4}, "end": {"line": 3, "column": 5}}, "file": "g"}
    ]
    assert list(full.as_dict()) == [
        "code",
        "severity",
        "message",
        "file",
        "range",
        "pointer",
        "help",
        "related",
        "cause",
    ]


def test_ranges_compare() -> None:
    assert Range.at(1, 2, 3) == Range(Position(1, 2), Position(1, 5))
    assert Position(1, 9) < Position(2, 1)

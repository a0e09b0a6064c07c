"""Diagnostics for code review tools."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec.diagnostics import Diagnostic, Position, Range, Related
from sglspec.diagnostics.annotations import render_github, render_sarif

TYPO = Diagnostic("S201", "There is no key `usr` here.", file="my judge.yaml", range=Range.at(2, 5, 3), help="`user`?")


def test_github() -> None:
    line = "::error file=my judge.yaml,line=2,col=5,endLine=2,endColumn=7,title=S201::There is no key `usr` here.%0A`user`?\n"
    assert render_github([TYPO]) == line
    assert render_github([]) == ""


def test_github_values_cannot_become_commands() -> None:
    odd = Diagnostic("S201", "100%\n::stop::x", severity="warning", file="a,line=9:b.yaml")
    assert render_github([odd]) == "::warning file=a%2Cline=9%3Ab.yaml,title=S201::100%25%0A::stop::x\n"


def test_github_over_several_lines_has_no_end_column() -> None:
    long = Diagnostic("S201", "x", file="a.yaml", range=Range(Position(2, 5), Position(4, 1)))
    assert render_github([long]) == "::error file=a.yaml,line=2,col=5,title=S201::x\n"


def test_sarif() -> None:
    twice = Diagnostic(
        "S103", "Twice.", file="a.yaml", range=Range.at(3, 1), related=(Related("here", Range.at(1, 1), "b.yaml"),)
    )
    face = json.loads(render_sarif([TYPO, twice], "1.2"))
    (run,) = face["runs"]
    assert face["version"] == "2.1.0"
    assert run["tool"]["driver"]["version"] == "1.2"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["S103", "S201"]
    typo, second = run["results"]
    assert (typo["ruleId"], typo["ruleIndex"], typo["level"]) == ("S201", 1, "error")
    assert typo["message"]["text"] == "There is no key `usr` here.\n`user`?"
    assert typo["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "my%20judge.yaml"},
                "region": {"startLine": 2, "startColumn": 5, "endLine": 2, "endColumn": 8},
            }
        }
    ]
    assert second["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "b.yaml"


def test_sarif_of_nothing_is_a_run_without_results() -> None:
    assert json.loads(render_sarif([], "1"))["runs"][0]["results"] == []


@settings(max_examples=100, derandomize=True)
@given(st.text(), st.text())
def test_any_text_can_be_written(message: str, file: str) -> None:
    item = Diagnostic("W301", message + "\ud800", severity="warning", file=file + "\udfff", range=Range.at(1, 1))
    assert json.loads(render_sarif([item], "1").encode())["runs"][0]["results"][0]["level"] == "warning"
    assert render_github([item]).encode("utf-8", "replace").count(b"\n") == 1

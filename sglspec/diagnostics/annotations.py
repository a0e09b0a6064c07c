"""Diagnostics for code review tools: SARIF 2.1.0 (OASIS) and workflow commands of GitHub Actions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from sglspec.diagnostics.codes import CODES
from sglspec.diagnostics.record import Diagnostic, Range
from sglspec.diagnostics.snippet import harmless

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_GITHUB_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_GITHUB_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def render_github(diagnostics: Iterable[Diagnostic]) -> str:
    """One workflow command a line: GitHub shows them beside the lines of a pull request."""
    return "".join(f"{_command(item)}\n" for item in diagnostics)


def render_sarif(diagnostics: Iterable[Diagnostic], version: str) -> str:
    """One run of the tool `sglspec`. Columns count code points, as ours do. version: the tool's."""
    items = list(diagnostics)
    rules = sorted({item.code for item in items})
    driver = {"name": "sglspec", "version": version, "rules": [_rule(code) for code in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(item, rules.index(item.code)) for item in items],
    }
    # escapes instead of characters beyond ASCII: half characters, which no encoding has, are safe then
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _command(item: Diagnostic) -> str:
    properties: dict[str, str] = {}
    if item.file is not None:
        properties["file"] = item.file
    if item.range is not None:
        start, end = item.range.start, item.range.end
        properties |= {"line": str(start.line), "col": str(start.column)}
        # end columns count only within one line, and name the last character, not the one after it
        if end.line == start.line:
            properties |= {"endLine": str(end.line), "endColumn": str(max(start.column, end.column - 1))}
    properties["title"] = item.code
    shown = ",".join(f"{name}={harmless(value).translate(_GITHUB_PROPERTY)}" for name, value in properties.items())
    return f"::{item.severity} {shown}::{harmless(_text(item), keep_breaks=True).translate(_GITHUB_DATA)}"


def _rule(code: str) -> dict[str, Any]:
    known = CODES.get(code)
    return {"id": code, **({"name": known.slug, "shortDescription": {"text": known.title}} if known else {})}


def _result(item: Diagnostic, rule: int) -> dict[str, Any]:
    out: dict[str, Any] = {
        "ruleId": item.code,
        "ruleIndex": rule,
        "level": item.severity,
        "message": {"text": _text(item)},
    }
    if item.file is not None:
        out["locations"] = [_location(item.file, item.range)]
    if item.related:
        out["relatedLocations"] = [
            {"id": number, "message": {"text": related.message}, **_location(related.file or item.file, related.range)}
            for number, related in enumerate(item.related, 1)
        ]
    return out


def _location(file: str | None, place: Range | None) -> dict[str, Any]:
    physical: dict[str, Any] = {}
    if file is not None:
        physical["artifactLocation"] = {"uri": quote(file.replace("\\", "/").encode("utf-8", "replace"))}
    if place is not None:
        physical["region"] = {
            "startLine": place.start.line,
            "startColumn": place.start.column,
            "endLine": place.end.line,
            "endColumn": place.end.column,
        }
    return {"physicalLocation": physical}


def _text(item: Diagnostic) -> str:
    return f"{item.message}\n{item.help}" if item.help else item.message


__all__ = ["render_github", "render_sarif"]

"""One document through everything that reads documents, and what must hold whatever it says."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

import jsonschema
from pydantic import BaseModel

from sglspec.analysis import Program, load_program
from sglspec.diagnostics import Diagnostic, Report, SpecError
from sglspec.diagnostics.annotations import render_github, render_sarif
from sglspec.diagnostics.render import render_json, render_text
from sglspec.document.edit import format_source
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence, Source, to_python
from sglspec.document.read import parse, source_from_text
from sglspec.document.schema import editor_schema
from sglspec.document.upgrade import upgrade_source

OUTCOMES = ("unreadable", "wrong", "accepted")
"""How far a document came: not even a tree, faults in it, a program."""


DEEPEST, LONGEST = 16, 8_000
"""Levels and characters of a document up to which the schema is tried: the validator that tests use is slow, and needs
many frames for each level."""


class Fault(AssertionError):
    """Something that must hold does not."""


def examine(data: str | bytes, name: str) -> str:
    """Read, check, look at with the editors' schema, lay out, upgrade, and show what was found. The outcome.

    Raises `Fault` for a broken promise, and lets every other exception out.
    """
    try:
        source = source_from_text(data, name)
    except SpecError as error:
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        text = re.sub("\r(?!\n)", "\n", text.removeprefix("\ufeff"))  # lines as editors show them
        _diagnostics(error.diagnostics, Source(name, text, "yaml"))
        return OUTCOMES[0]
    report = Report(name)
    program = load_program(source, report)
    found = report.sorted()
    _diagnostics(found, source)
    _expect((program is None) == report.has_errors, "there is a program exactly when there is no error")
    readable = _layout(source, program, found)
    _upgrade(source, readable=readable)
    if program is None:
        return OUTCOMES[1] if readable else OUTCOMES[0]
    if len(source.text) <= LONGEST and depth(program.document.root) <= DEEPEST:
        first = next(_schema().iter_errors(to_python(program.document.root)), None)
        _expect(first is None, f"the schema for editors refuses what `check` accepts: {first and first.message}")
    return OUTCOMES[2]


def depth(node: Node) -> int:
    """Levels of lists and mappings."""
    match node:
        case Scalar():
            return 0
        case Sequence():
            return 1 + max(map(depth, node.items), default=0)
        case Mapping():
            return 1 + max((depth(entry.value) for entry in node.entries), default=0)


@cache
def _schema() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(editor_schema())


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise Fault(what)


def _diagnostics(found: Iterable[Diagnostic], source: Source) -> None:
    """Each has a place inside the document, and all can be shown in every face."""
    found = list(found)
    for one in found:
        _expect(one.range is not None, f"{one.code} has no place")
        for place in (one.range, *(r.range for r in one.related if r.file in (None, source.name))):
            assert place is not None
            _expect(place.start <= place.end, f"{one.code} ends before it starts")
            for position in (place.start, place.end):
                inside = 1 <= position.line <= len(source.lines)
                inside = inside and 1 <= position.column <= len(source.lines[position.line - 1]) + 1
                _expect(inside, f"{one.code} is outside of the document: {position}")
        _expect(one.message.strip() != "" and one.help != "", f"{one.code} says nothing")
    texts = {source.name: source.text}
    for width in (20, 100):
        render_text(found, texts, color=width == 20, width=width).encode()
    faces = json.loads(render_json(found).encode())
    _expect([face["code"] for face in faces] == [one.code for one in found], "the JSON face lists others")
    results = json.loads(render_sarif(found, "1").encode())["runs"][0]["results"]
    _expect([face["ruleId"] for face in results] == [one.code for one in found], "the SARIF face lists others")
    _expect(render_github(found).encode().count(b"\n") == len(found), "the face for GitHub is not one line each")


def _layout(source: Source, program: Program | None, checked: list[Diagnostic]) -> bool:
    """`fmt` lays out what can be read, once is enough, and the program stays what it was. Whether it can be read."""
    report = Report(source.name)
    text = format_source(source, report)
    if text is None:
        _diagnostics(report.sorted(), source)
        _expect(report.has_errors and report.sorted() == checked, "`fmt` and `check` disagree about what can be read")
        return False
    if text == source.text:
        return True
    laid_out = source_from_text(text, source.name)
    _expect(format_source(laid_out, Report(source.name)) == text, "`fmt` twice is not `fmt` once")
    report = Report(source.name)
    after = load_program(laid_out, report)
    _expect(_codes(report.sorted()) == _codes(checked), "`fmt` changes what `check` finds")
    if program is not None and after is not None:
        _expect(said(program.spec) == said(after.spec), "`fmt` changes the program")
    return True


def _codes(found: list[Diagnostic]) -> Counter[tuple[str, str]]:
    return Counter((one.code, one.pointer) for one in found)


def _upgrade(source: Source, *, readable: bool) -> None:
    """`upgrade` gives a document that can be read, with no more faults in its structure, and is done at once."""
    report = Report(source.name)
    text = upgrade_source(source, report)
    _expect((text is not None) == readable, "`upgrade` and `fmt` disagree about what can be read")
    if text is None or text == source.text:
        return
    upgraded = source_from_text(text, source.name)
    _expect(parse(upgraded, Report(source.name)) is not None, "what `upgrade` writes cannot be read")
    _expect(upgrade_source(upgraded, Report(source.name)) == text, "`upgrade` twice is not `upgrade` once")


def said(value: Any) -> Any:
    """What a model says, without places and layout: equal for two documents that are the same program."""
    match value:
        case Scalar():
            return (type(value.value).__name__, value.value, value.text)
        case Sequence():
            return [said(item) for item in value.items]
        case Mapping():
            return [(entry.key.text, said(entry.value)) for entry in value.entries]
        case BaseModel():
            return (type(value).__name__, [(name, said(getattr(value, name))) for name in type(value).model_fields])
        case dict():
            return [(said(key), said(item)) for key, item in cast("dict[Any, Any]", value).items()]
        case list() | tuple():
            return [said(item) for item in cast("list[Any]", value)]
        case _ if is_dataclass(value):
            return (type(value).__name__, [said(getattr(value, one.name)) for one in fields(value)])
        case _:
            return value

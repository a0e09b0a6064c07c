"""Documents rewritten: `fmt` lays a document out anew, `replace` changes single places of it.

Both work on the text itself, so that what they do not touch, comments above all, stays as its author wrote it. A
library that loads and dumps YAML moves comments and changes quotes, and takes seconds for a small hostile file; the
events of our own reader have the place of everything and its limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sglspec.diagnostics import Range, Report
from sglspec.document.layout_json import lay_out_json
from sglspec.document.layout_yaml import lay_out_yaml
from sglspec.document.nodes import Node, Source, to_python
from sglspec.document.read import parse


class MeaningChanged(Exception):
    """The new layout would not read as the same document. A fault of ours; the document is to be left as it is."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `text` in place of a range."""

    range: Range
    text: str


def format_source(source: Source, report: Report) -> str | None:
    """The document in the one layout that `fmt` writes, or None when it cannot be read; then `report` says why.

    Formatting twice changes nothing more, and the result reads as the same document: it is read again to make sure.
    Line ends stay CRLF where the first one is. Raises MeaningChanged.
    """
    reading = Report(source.name)
    unix = replace(source, text=source.text.replace("\r\n", "\n").replace("\r", "\n"))
    root = parse(unix, reading)
    if root is None:  # said again over the text that the author has
        parse(source, report)
        return None
    text = lay_out_json(unix, root) if source.format == "json" else lay_out_yaml(unix)
    if not same(root, parse(replace(unix, text=text), Report(source.name))):
        raise MeaningChanged(source.name)
    return text.replace("\n", "\r\n") if _ends_lines_with_crlf(source.text) else text


def same(one: Node, other: Node | None) -> bool:
    """Whether two trees hold the same values, keys in the same order; 1, 1.0 and true are three values."""
    return other is not None and repr(to_python(one)) == repr(to_python(other))


def edited(source: Source, edits: Iterable[Edit]) -> Source:
    """The document with each edit applied; of two that overlap the one that starts first."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: edit.range):
        start, end = source.offset(edit.range.start), source.offset(edit.range.end)
        if start >= at:
            parts += (source.text[at:start], edit.text)
            at = end
    return replace(source, text="".join((*parts, source.text[at:])))


def _ends_lines_with_crlf(text: str) -> bool:
    first = text.find("\n")
    return first > 0 and text[first - 1] == "\r"

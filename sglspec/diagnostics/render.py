"""Diagnostics for people (text with snippets) and for programs (JSON)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from sglspec.diagnostics.record import MAX_REPORTED, Diagnostic, Range
from sglspec.diagnostics.snippet import harmless, underlined

_WIDTH = 120
_HALF = re.compile("[\ud800-\udfff]")
_RED, _YELLOW, _BLUE, _CYAN, _BOLD = "1;31", "1;33", "1;34", "1;36", "1"


def render_text(
    diagnostics: Iterable[Diagnostic],
    sources: Mapping[str, str],
    color: bool = False,
    width: int | None = None,
) -> str:
    """All diagnostics with snippets, and a last line with their number; "" for none.

    `sources` maps file names to whole texts; a file that is not there gets no snippet. `width` is that of the
    terminal (120 columns unless told), `color` adds ANSI colours.
    """
    items = list(diagnostics)
    if not items:
        return ""
    painter = _Painter(sources, color, width or _WIDTH)
    blocks = [painter.block(item) for item in items[:MAX_REPORTED]]
    if len(items) > MAX_REPORTED:
        blocks.append(f"and {len(items) - MAX_REPORTED} more")
    blocks.append(summary(items))
    return "\n\n".join(blocks) + "\n"


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """A JSON list of the records. Half characters, which no encoding has, are written as escapes."""
    text = json.dumps([item.as_dict() for item in diagnostics], ensure_ascii=False, indent=2)
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """How many: "2 errors, 1 warning"."""
    severities = [item.severity for item in diagnostics]
    parts = [
        f"{count} {name}{'' if count == 1 else 's'}"
        for name in ("error", "warning")
        if (count := severities.count(name))
    ]
    return ", ".join(parts) or "no errors"


class _Painter:
    def __init__(self, sources: Mapping[str, str], color: bool, width: int) -> None:
        self._sources = sources
        self._lines: dict[str, list[str]] = {}
        self._color = color
        self._width = width

    def block(self, item: Diagnostic) -> str:
        """One diagnostic: head line, snippet, help, related places."""
        tint = _RED if item.severity == "error" else _YELLOW
        where = _where(item.file, item.range)
        cause = f" (caused by {item.cause})" if item.cause else ""
        head = self._paint(f"{where}: ", _BOLD) if where else ""
        head += self._paint(f"{item.severity} {item.code}{cause}", tint)
        lines = [f"{head}: {harmless(item.message, keep_breaks=True)}"]
        lines += self._snippet(item.file, item.range, tint)
        if item.help:
            lines.append(f"{self._paint('help:', _CYAN)} {harmless(item.help, keep_breaks=True)}")
        for related in item.related:
            file = related.file or item.file
            place = _where(file, related.range)
            lines.append(f"{self._paint('note:', _BLUE)} {harmless(related.message)} ({place})")
            lines += self._snippet(file, related.range, _BLUE)
        return "\n".join(lines)

    def _snippet(self, file: str | None, place: Range | None, tint: str) -> list[str]:
        line = self._line(file, place)
        if line is None or place is None:
            return []
        number = str(place.start.line)
        gutter = " " * len(number)
        shown, carets = underlined(line, place, self._width - len(number) - 3)
        bar = self._paint("|", _BLUE)
        text = f" {shown}" if shown else ""
        return [
            f"{self._paint(number, _BLUE)} {bar}{text}",
            f"{gutter} {bar} {' ' * (len(carets) - len(carets.lstrip()))}{self._paint(carets.lstrip(), tint)}",
        ]

    def _line(self, file: str | None, place: Range | None) -> str | None:
        if file is None or place is None or file not in self._sources:
            return None
        if file not in self._lines:
            self._lines[file] = self._sources[file].split("\n")
        lines = self._lines[file]
        return lines[place.start.line - 1] if 0 < place.start.line <= len(lines) else None

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._color and text else text


def _where(file: str | None, place: Range | None) -> str:
    parts = [harmless(file)] if file else []
    if place is not None:
        parts += [str(place.start.line), str(place.start.column)]
    return ":".join(parts)

"""A line of the document with carets under a part of it, made fit for a terminal."""

from __future__ import annotations

import re
import unicodedata

from sglspec.diagnostics.record import Range

_TAB = 4
_NARROWEST = 20
# Control characters move the cursor or change colours; the bidirectional ones show a line in another order.
_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def harmless(text: str, *, keep_breaks: bool = False) -> str:
    """`text` with every character that would act on a terminal replaced, one for one."""
    if keep_breaks:
        return "\n".join(harmless(line) for line in text.split("\n"))
    return _UNSAFE.sub("\ufffd", text)


def underlined(line: str, place: Range, room: int) -> tuple[str, str]:
    """The line and its underline, both at most `room` columns wide, the start of the range in sight.

    Wide characters take two columns and tabs are spaces. A range that goes on below is underlined to the line's end.
    """
    line = harmless(line.rstrip("\r\n"))
    start = min(place.start.column - 1, len(line))
    end = place.end.column - 1 if place.end.line == place.start.line else len(line.rstrip())
    cells = _cells(line)
    columns = [0]
    for cell in cells:
        columns.append(columns[-1] + _columns(cell))
    end = min(max(end, start), len(line))
    left, right = columns[start], max(columns[end], columns[start] + 1)
    first, last = _window(columns, start, max(room, _NARROWEST))
    shown = "".join(cells[first:last])
    head = "…" if first > 0 else ""
    tail = "…" if last < len(cells) else ""
    shift = len(head) - columns[first]
    right = min(right, max(columns[last], left + 1))
    return f"{head}{shown}{tail}".rstrip(), " " * (left + shift) + "^" * (right - left)


def _window(columns: list[int], start: int, room: int) -> tuple[int, int]:
    """Which characters to show: all, or as many as fit around the start of the range."""
    count = len(columns) - 1
    if columns[-1] <= room:
        return 0, count
    first = start
    while first > 0 and columns[start] - columns[first - 1] <= room // 3:
        first -= 1
    if columns[start] < room - room // 3:
        first = 0
    last = first
    while last < count and columns[last + 1] - columns[first] <= room - 2:
        last += 1
    return first, last


def _cells(line: str) -> list[str]:
    cells: list[str] = []
    column = 0
    for character in line:
        cell = " " * (_TAB - column % _TAB) if character == "\t" else character
        cells.append(cell)
        column += _columns(cell)
    return cells


def _columns(cell: str) -> int:
    if cell.isascii():
        return len(cell)
    if unicodedata.combining(cell) or unicodedata.category(cell) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(cell) in ("W", "F") else 1

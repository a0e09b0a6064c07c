"""Text on its way to a terminal: headings, boxes, and lines that fit its width."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import IO

from sglspec.cli.streams import printable

BOLD, DIM, RED = "1", "2", "31"

Cell = tuple[str, str | None]
"""A character and its style (the number of an ANSI sequence)."""

_NARROWEST = 20
_TAB = "    "

Sink = Callable[[str, "str | None"], object]
"""Takes printable text and its style."""


class Painter:
    """Writes text that knows whether it is at the start of a line."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._empty = True
        self._gap = False
        self.at_start = True

    def put(self, text: str, style: str | None = None) -> None:
        text = printable(text)
        if not text:
            return
        if self._gap:
            self._sink("\n", None)
            self._gap = False
        self._sink(text, style)
        self._empty = False
        self.at_start = text.endswith("\n")

    def fresh_line(self) -> None:
        if not self.at_start:
            self.put("\n")

    def gap(self) -> None:
        """An empty line, if anything follows."""
        self.fresh_line()
        self._gap = not self._empty

    def heading(self, text: str) -> None:
        """A line of its own, with an empty one before it."""
        self.gap()
        self.put(text, BOLD)
        self.put("\n")

    def box(self, title: str, content: Iterable[Cell], room: int | None, remark: str = "") -> None:
        """A block with a line down its left side, wrapped to `room` columns (None: not at all)."""
        self.heading(_cut(f"┌ {title}", room))
        for row in _rows(content, None if room is None else inside(room)):
            self.put("│ " if row else "│")
            for style, cells in groupby(row, key=lambda cell: cell[1]):
                self.put("".join(character for character, _ in cells), style)
            self.put("\n")
        self.put("└", BOLD)
        for index, row in enumerate(_rows(((c, RED) for c in remark), None if room is None else inside(room))):
            self.put(" " if index == 0 else "\n  ")
            self.put("".join(character for character, _ in row), RED)
        self.put("\n")
        self.gap()


class Canvas:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []

    def __call__(self, text: str, style: str | None) -> None:
        self.cells += [(character, style) for character in text]


def paint(out: IO[str], color: bool) -> Sink:
    """A sink that writes to a stream. Colours end with each line."""

    def write(text: str, style: str | None) -> None:
        if color and style:
            text = "\n".join(f"\x1b[{style}m{line}\x1b[0m" if line else "" for line in text.split("\n"))
        out.write(text)

    return write


def inside(room: int) -> int:
    """The columns that are left in a box."""
    return max(room - 2, _NARROWEST)


def _rows(content: Iterable[Cell], room: int | None) -> Iterator[list[Cell]]:
    """The lines of a box, without empty ones at its start and end."""
    lines: list[list[Cell]] = [[]]
    for character, style in content:
        if character == "\n":
            lines.append([])
        else:
            lines[-1] += [(one, style) for one in (_TAB if character == "\t" else character)]
    full = [index for index, line in enumerate(lines) if _stripped(line)]
    for line in lines[full[0] : full[-1] + 1] if full else []:
        yield from _wrapped(_stripped(line), room)


def _wrapped(line: list[Cell], room: int | None) -> Iterator[list[Cell]]:
    """A line in pieces of at most `room` columns, broken at spaces where there are any."""
    while room is not None and (end := _fitting(line, room)) < len(line):
        spaces = [index for index in range(1, end + 1) if line[index][0] == " " and line[index - 1][0] != " "]
        at = spaces[-1] if spaces else max(end, 1)
        yield _stripped(line[:at])
        line = line[at:]
        while line and line[0][0] == " ":
            line = line[1:]
    yield line


def _fitting(line: list[Cell], room: int) -> int:
    """How many characters fit into `room` columns."""
    used = 0
    for index, (character, _) in enumerate(line):
        used += columns(character)
        if used > room:
            return index
    return len(line)


def columns(character: str) -> int:
    """The columns that a character takes on a terminal."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _stripped(line: list[Cell]) -> list[Cell]:
    """Without spaces at the end."""
    end = len(line)
    while end and line[end - 1][0].isspace():
        end -= 1
    return line[:end]


def _cut(text: str, room: int | None) -> str:
    """One line of at most `room` columns."""
    text = " ".join(text.split())
    cells: list[Cell] = [(character, None) for character in text]
    if room is None or _fitting(cells, room) == len(cells):
        return text
    return text[: _fitting(cells, max(room, _NARROWEST) - 1)].rstrip() + "…"

"""The tree that both readers produce: values with the place they came from.

YAML and JSON become the same nodes, so nothing behind this module knows which one an author wrote.
Nodes compare by identity: two equal texts at two places are two nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sglspec.diagnostics import Position, Range

Style = Literal["plain", "single", "double", "literal", "folded", "json"]
Primitive = str | int | float | bool | None


LONE_STEPS = ("break", "continue", "return")
"""Steps that may be a word with a colon and nothing else. As a text in a list, only quotes tell such a word from a step
whose colon was forgotten."""


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A leaf. `value` is what the YAML 1.2 core rules (or JSON) make of it, `text` the text as written
    (escapes and folding resolved): `007` has value 7 and text "007"."""

    value: Primitive
    text: str
    style: Style
    range: Range


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    items: tuple[Node, ...]
    range: Range


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    key: Scalar
    value: Node


@dataclass(frozen=True, eq=False)
class Mapping:
    """Keys are unique text (the reader refuses anything else); order is the author's."""

    entries: tuple[Entry, ...]
    range: Range

    @cached_property
    def _by_name(self) -> dict[str, Entry]:
        return {entry.key.text: entry for entry in reversed(self.entries)}

    def entry(self, name: str) -> Entry | None:
        return self._by_name.get(name)

    def get(self, name: str) -> Node | None:
        entry = self._by_name.get(name)
        return entry.value if entry is not None else None

    def key(self, name: str) -> Scalar | None:
        """The key's own node, to point at."""
        entry = self._by_name.get(name)
        return entry.key if entry is not None else None

    def names(self) -> list[str]:
        """The keys as text."""
        return [entry.key.text for entry in self.entries]


Node = Scalar | Sequence | Mapping


@dataclass(frozen=True, eq=False)
class Source:
    """A document's text (BOM dropped, CRLF kept as written) and the name it goes by in messages. `path`: the file that
    it was read from; None for a text from elsewhere, which has no folder."""

    name: str
    text: str
    format: Literal["yaml", "json"]
    path: Path | None = None

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset of each line's first character."""
        starts = [0]
        for line in self.lines[:-1]:
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def position(self, offset: int) -> Position:
        """Where the character at `offset` (0-based, code points) stands; past the end counts as the end."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self.line_starts, offset)
        return Position(line, offset - self.line_starts[line - 1] + 1)

    def offset(self, position: Position) -> int:
        """The inverse of `position`; a place outside the text is clamped into it."""
        line = min(max(position.line, 1), len(self.line_starts))
        return min(self.line_starts[line - 1] + max(position.column, 1) - 1, len(self.text))

    def span(self, start: int, end: int) -> Range:
        """The range from offset `start` up to, not including, `end`."""
        return Range(self.position(start), self.position(end))


def to_python(node: Node) -> Any:
    """Plain dicts, lists and primitives."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [to_python(item) for item in node.items]
        case Mapping():
            return {entry.key.text: to_python(entry.value) for entry in node.entries}


def walk(node: Node, pointer: str = "") -> Iterator[tuple[str, Node]]:
    """Every node with its JSON pointer (RFC 6901), parents first."""
    yield pointer, node
    match node:
        case Scalar():
            return
        case Sequence():
            for index, item in enumerate(node.items):
                yield from walk(item, f"{pointer}/{index}")
        case Mapping():
            for entry in node.entries:
                escaped = entry.key.text.replace("~", "~0").replace("/", "~1")
                yield from walk(entry.value, f"{pointer}/{escaped}")


def pointers(root: Node) -> dict[int, str]:
    """The JSON pointer of every node below `root` by the node's id; a key has the pointer of its value."""
    found: dict[int, str] = {}
    for pointer, node in walk(root):
        found.setdefault(id(node), pointer)
        if isinstance(node, Mapping):
            for entry in node.entries:
                escaped = entry.key.text.replace("~", "~0").replace("/", "~1")
                found.setdefault(id(entry.key), f"{pointer}/{escaped}")
    return found

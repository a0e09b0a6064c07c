"""The layout of JSON documents: two spaces per level; what stood on one line and fits there stays on one."""

from __future__ import annotations

from collections.abc import Iterator

from sglspec.document.nodes import Mapping, Node, Scalar, Source

WIDTH = 120
"""Characters of a line. Only what brackets hold is broken; texts are not."""
INDENT = 2


def lay_out_json(source: Source, root: Node) -> str:
    """The text of the document. Texts and numbers keep their spelling."""
    return _Layout(source).block(root, 0, 0) + "\n"


class _Layout:
    def __init__(self, source: Source) -> None:
        self._source = source

    def block(self, node: Node, indent: int, column: int) -> str:
        """A value whose lines are indented by `indent`, the first of them starting in `column`."""
        if isinstance(node, Scalar):
            return self._slice(node)
        opening, closing, parts = self._parts(node)
        if not parts:
            return opening + closing
        if node.range.start.line == node.range.end.line:
            line = self._line(node, WIDTH - 1 - column)  # a comma may follow
            if line is not None:
                return line
        inner = indent + INDENT
        lines = [" " * inner + key + self.block(value, inner, inner + len(key)) for key, value in parts]
        return f"{opening}\n" + ",\n".join(lines) + f"\n{' ' * indent}{closing}"

    def _line(self, node: Node, room: int) -> str | None:
        """A value on one line, None when it is longer than `room`."""
        pieces: list[str] = []
        for piece in self._pieces(node):
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                return None
        return "".join(pieces)

    def _pieces(self, node: Node) -> Iterator[str]:
        if isinstance(node, Scalar):
            yield self._slice(node)
            return
        opening, closing, parts = self._parts(node)
        yield opening
        for number, (key, value) in enumerate(parts):
            yield f"{', ' if number else ''}{key}"
            yield from self._pieces(value)
        yield closing

    def _parts(self, node: Node) -> tuple[str, str, list[tuple[str, Node]]]:
        """Both brackets, and what is between them: each value with the key in front of it."""
        assert not isinstance(node, Scalar)
        if isinstance(node, Mapping):
            return "{", "}", [(f"{self._slice(entry.key)}: ", entry.value) for entry in node.entries]
        return "[", "]", [("", item) for item in node.items]

    def _slice(self, scalar: Scalar) -> str:
        place = scalar.range
        return self._source.text[self._source.offset(place.start) : self._source.offset(place.end)]

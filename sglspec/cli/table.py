"""Rows in columns."""

from __future__ import annotations

from collections.abc import Sequence

from sglspec.cli.streams import printable


def table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the head. Columns as wide as their widest cell, two spaces between them."""
    shown = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown
    )

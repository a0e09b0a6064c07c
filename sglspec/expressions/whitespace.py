"""The whitespace rules: a line that holds only `{% %}` tags vanishes with its newline; every other character stays."""

from __future__ import annotations

import re

from sglspec.expressions.lexer import Piece

_LINE_END = re.compile(r"[ \t]*(\n|\Z)")
_LEADING_BLANK = re.compile(r"(?:[ \t]*\n)+")


def apply(text: str, pieces: list[Piece]) -> bool:
    """Shorten the text pieces (`lo`, `hi`). True when the last line of the template held only tags."""
    ends_in_tag_line = False
    at = 0
    while at < len(pieces):
        if pieces[at].kind != "tag":
            at += 1
            continue
        last = _run_end(text, pieces, at)
        ends_in_tag_line = _take_lines(text, pieces, at, last)
        at = last + 1
    _control_marks(text, pieces)
    return ends_in_tag_line


def message_bounds(text: str) -> tuple[int, int]:
    """Where a message starts and ends that loses the blank lines around it."""
    leading = _LEADING_BLANK.match(text)
    lo = leading.end() if leading else 0
    hi = len(text)
    while hi > lo:
        newline = text.rfind("\n", lo, hi)
        if text[newline + 1 if newline >= 0 else lo : hi].strip(" \t"):
            break
        hi = newline if newline >= 0 else lo
    return lo, hi


def _run_end(text: str, pieces: list[Piece], first: int) -> int:
    """The last tag of a run of tags with nothing but spaces and tabs between them."""
    last = first
    for index in range(first + 1, len(pieces)):
        piece = pieces[index]
        if piece.kind == "tag":
            last = index
        elif piece.kind != "text" or text[piece.start : piece.end].strip(" \t"):
            break
    return last


def _take_lines(text: str, pieces: list[Piece], first: int, last: int) -> bool:
    """Remove the line of a run of tags if it holds nothing else. True when it was the last line."""
    run = pieces[first : last + 1]
    if any("+" in (piece.left, piece.right) for piece in run):
        return False
    before = pieces[first - 1] if first else None
    after = pieces[last + 1] if last + 1 < len(pieces) else None
    if (before is not None and before.kind != "text") or (after is not None and after.kind != "text"):
        return False
    line_start = before.start if before else 0
    if before is not None:
        line_start = max(text.rfind("\n", before.start, before.end) + 1, before.start)
        if text[line_start : before.end].strip(" \t") or (line_start == before.start and first > 1):
            return False
    line_end = None
    if after is not None:
        line_end = _LINE_END.match(text, after.start, after.end)
        if line_end is None or (not line_end.group(1) and last + 2 < len(pieces)):
            return False
    if before is not None:
        before.hi = line_start
    for piece in run:
        piece.hi = piece.lo if piece.kind == "text" else piece.hi
    if after is not None and line_end is not None:
        after.lo = line_end.end()
    return after is None or (last + 2 == len(pieces) and after.lo == after.end)


def _control_marks(text: str, pieces: list[Piece]) -> None:
    """`{%-` and `{{-` strip the text before, `-%}` and `-}}` the text after, newlines included."""
    for index, piece in enumerate(pieces):
        if piece.kind != "text":
            continue
        if index and pieces[index - 1].right == "-":
            kept = text[piece.lo : piece.hi]
            piece.lo += len(kept) - len(kept.lstrip())
        if index + 1 < len(pieces) and pieces[index + 1].left == "-":
            piece.hi = piece.lo + len(text[piece.lo : piece.hi].rstrip())

"""Patterns of JSON Schemas, which are ECMA-262's, in llguidance's reading.

The two differ in `\\s` and `\\S`, and in `.`: ECMA-262 counts U+FEFF as white space and U+0085 not, as the official
test suite of JSON Schema asks for, and its `.` matches none of the four line ends that it knows. `\\d` and `\\w` are
ASCII in both, because llguidance treats them so in patterns of JSON.
"""

from __future__ import annotations

import re

_SPACE = "\\t-\\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NO_SPACE = (
    "\\x00-\\x08\\x0e-\\x1f!-\u009f\u00a1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
    "\u3001-\ufefe\uff00-\U0010ffff"
)
_ANY = "[^\\n\\r\u2028\u2029]"
_FLAG_S = re.compile(r"\(\?[a-z]*s[a-z]*(?:-[a-z]+)?[:)]")


def plain(pattern: str) -> str:
    """The pattern (one that regexes.check_pattern takes) with what the two read differently spelled out."""
    dots = _FLAG_S.search(pattern) is None  # with the flag, an author of ours says what a dot is
    out: list[str] = []
    at, inside = 0, False
    while at < len(pattern):
        piece = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        at += len(piece)
        if piece in (r"\s", r"\S"):
            members = _SPACE if piece == r"\s" else _NO_SPACE
            piece = members if inside else f"[{members}]"
        elif piece == "." and dots and not inside:
            piece = _ANY
        elif piece == "[" and not inside:
            inside = True
            start = re.compile(r"\^?\]?").match(pattern, at)
            piece += start[0] if start else ""
            at += len(piece) - 1
        elif piece == "]":
            inside = False
        out.append(piece)
    return "".join(out)

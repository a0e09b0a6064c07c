"""Warnings for YAML that is valid and yet hardly what the author meant: the silent traps."""

from __future__ import annotations

import re

from sglspec.diagnostics import Diagnostic, Range
from sglspec.document.nodes import Source
from sglspec.document.yaml_events import Event
from sglspec.document.yaml_place import quoted

_COMMENT = re.compile(r"([ \t]+)(#[^\n]*)")
_EXPRESSION = re.compile(r"(?:^|[\s{,])(?:if|while|check|match|in|from|until|expect):[ \t]+$")
_WINDOWS_PATH = re.compile(r"(?<![A-Za-z0-9])[C-Hc-h]:\\(?!\\)[A-Za-z][\w.-]*(?:\\(?!\\)[\w.-]+)*(?![\\\w:])")
_ODD_SPACES = (
    "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u200b\u202f\u205f\u3000\ufeff"
)
_KEY_THEN_ODD_SPACE = re.compile(rf"[a-z_]+:(?=[{_ODD_SPACES}])")


def comment_lint(source: Source, value: str, start: int, end: int) -> Diagnostic | None:
    """W101: an unquoted text of several words that a ` #` cut short, where the rest reads like text.

    Two spaces before `#` say that a comment is meant, and so does a finished sentence before `# …`.
    """
    match = _COMMENT.match(source.text, end)
    if match is None or " " not in value:
        return None
    rest = match[2].rstrip()
    open_quote = value.count('"') % 2 == 1
    if not open_quote:
        tagged = re.match(r"#[^\s#!]", rest) is not None
        line = source.text[source.text.rfind("\n", 0, start) + 1 : start]
        if _EXPRESSION.search(line) or len(match[1]) > 1:
            return None
        if not tagged and value.endswith((".", "!", "?", ":", ";")):
            return None
    whole = f"{source.text[start:end]} {rest}"
    fix = f": {quoted(whole)}" if len(whole) <= 70 and "\n" not in whole else ", or start it with `|` on its own line"
    return Diagnostic(
        "W101",
        "The text ends before ` #`: YAML takes the rest of the line for a comment.",
        severity="warning",
        file=source.name,
        range=source.span(match.start(2), match.start(2) + len(rest)),
        help=f"If it belongs to the text, put quotes around all of it{fix}. "
        "If it is a comment, put two spaces before the `#`.",
    )


def anchor_lint(source: Source, place: Range, event: Event) -> Diagnostic:
    """W102: `&name` in front of a text, used by nothing: the author meant an ampersand."""
    start = source.offset(place.start)
    whole = source.text[start : event.end]
    name = source.text[start : source.offset(place.end)]
    fix = f": {quoted(whole)}" if len(whole) <= 70 and "\n" not in whole else "."
    return Diagnostic(
        "W102",
        f"`{name}` is not part of the text: YAML takes it for an anchor, and nothing uses it.",
        severity="warning",
        file=source.name,
        range=place,
        help=f"If it is text, put quotes around all of it{fix}",
    )


def escape_lint(source: Source, event: Event, place: Range) -> Diagnostic | None:
    r"""W103: `"C:\new"` holds a line break where the author meant a path."""
    if "\n" not in event.value and "\t" not in event.value:
        return None
    start = source.offset(place.start)
    match = _WINDOWS_PATH.search(source.text, start, source.offset(place.end))
    if match is None or not re.search(r"\\[nt]", match[0]):
        return None
    return Diagnostic(
        "W103",
        f"In double quotes `\\n` and `\\t` are a line break and a tab, so `{match[0]}` is not this path.",
        severity="warning",
        file=source.name,
        range=source.span(match.start(), match.end()),
        help=f"Use single quotes: '{match[0]}'",
    )


def odd_space(source: Source, value: str, start: int, is_key: bool) -> Diagnostic | None:
    """S113: a non-breaking or other special space where YAML's structure wants an ordinary one."""
    if not value or value.isascii():
        return None
    if is_key and value[0] in _ODD_SPACES:
        at = start
    elif is_key and value[-1] in _ODD_SPACES:
        at = start + len(value) - 1
    else:
        match = None if is_key else _KEY_THEN_ODD_SPACE.match(value)
        if match is None:
            return None
        at = start + match.end()
    code = ord(source.text[at])
    return Diagnostic(
        "S113",
        f"This is a special space (U+{code:04X}), and YAML only knows the ordinary one.",
        file=source.name,
        range=source.span(at, at + 1),
        help="Replace it by an ordinary space. Such spaces come in with text that is copied from a web page.",
    )

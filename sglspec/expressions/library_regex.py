"""Regular expressions on RE2, which takes time in proportion to the text, whatever the pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import re2

from sglspec.expressions.errors import ArgumentProblem
from sglspec.expressions.function import Context, Function, as_integer, as_text, function
from sglspec.expressions.values import Value, char_width

MAX_PATTERN = 2_000
MAX_PROGRAM = 10_000
"""Instructions of the largest pattern that is run."""
MAX_GROUPS = 50
MAX_MEMORY = 2 << 20
"""Bytes that RE2 may use for one pattern."""

_GROUP = re.compile(r"\\(?:(\d{1,2})|g<(\w+)>|(\\))")


def compile_pattern(pattern: str, ignorecase: bool = False) -> Any:
    """The compiled pattern; `ArgumentProblem` for one that RE2 does not take."""
    if len(pattern) > MAX_PATTERN:
        raise ArgumentProblem(f"takes patterns up to {MAX_PATTERN:,} characters.", cause="S253")
    options = cast("Any", re2.Options())
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    options.case_sensitive = not ignorecase
    try:
        compiled = cast("Any", re2).compile(pattern, options)
    except UnicodeEncodeError:
        raise ArgumentProblem("gets a pattern that is not text.", cause="S501") from None
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        if "too large" in reason or "repetition size" in reason:
            raise ArgumentProblem("gets a pattern that is too large.", cause="S253") from None
        perl = "perl operator" in reason or "escape sequence" in reason
        help = "Lookahead, lookbehind and back-references do not exist here." if perl else None
        raise ArgumentProblem(f"gets a wrong pattern: {reason}.", help, "S502" if perl else "S501") from None
    if compiled.programsize > MAX_PROGRAM or compiled.groups > MAX_GROUPS:
        raise ArgumentProblem("gets a pattern that is too large.", cause="S253")
    return compiled


def regex_search(ctx: Context, value: Value, pattern: Value, ignorecase: Value = False) -> Value:
    """The first match in the text: its first group, or all of it without groups; null if there is none."""
    text = as_text(value)
    compiled = compile_pattern(as_text(pattern), bool(ignorecase))
    _charge(ctx, text, compiled)
    match = _guarded(lambda: compiled.search(text))
    return None if match is None else match.group(1 if compiled.groups else 0)


def regex_findall(ctx: Context, value: Value, pattern: Value, ignorecase: Value = False) -> Value:
    """All matches in the text: whole ones, first groups, or lists of groups, by the number of groups."""
    text = as_text(value)
    compiled = compile_pattern(as_text(pattern), bool(ignorecase))
    found: list[Value] = []
    for match in _matches(ctx, text, compiled):
        if compiled.groups > 1:
            ctx.budget.items(compiled.groups, 3)
            found.append([part or "" for part in match.groups()])
        else:
            found.append(match.group(compiled.groups) or "")
    return found


def regex_replace(
    ctx: Context, value: Value, pattern: Value, replacement: Value, count: Value = 0, ignorecase: Value = False
) -> Value:
    r"""The text with every match (or the first `count`) replaced; `\1` and `\g<name>` stand for groups."""
    text, new, most = as_text(value), as_text(replacement), as_integer(count, 0)
    compiled = compile_pattern(as_text(pattern), bool(ignorecase))
    parts = _replacement_parts(new, compiled)
    width = max(char_width(text), char_width(new))
    pieces: list[str] = []
    at = size = 0
    for number, match in enumerate(_matches(ctx, text, compiled), 1):
        filled = [text[at : match.start()], *(p if isinstance(p, str) else match.group(p) or "" for p in parts)]
        length = sum(map(len, filled))
        size += length
        ctx.budget.items(len(filled))
        ctx.budget.text(size if size > 10_000_000 else length, width)
        pieces.append("".join(filled))
        at = match.end()
        if number == most:
            break
    pieces.append(text[at:])
    ctx.budget.text(size + len(pieces[-1]), width)
    return "".join(pieces)


def _replacement_parts(new: str, compiled: Any) -> list[str | int]:
    parts: list[str | int] = []
    at = 0
    for match in _GROUP.finditer(new):
        parts.append(new[at : match.start()])
        at = match.end()
        if match.group(3):
            parts.append("\\")
            continue
        named = match.group(1) or match.group(2)
        group = int(named) if named.isdecimal() else compiled.groupindex.get(named, -1)
        if not 0 <= group <= compiled.groups:
            raise ArgumentProblem(f"has no group `{match.group()}` in its pattern.", cause="S406")
        parts.append(group)
    parts.append(new[at:])
    return [part for part in parts if part != ""]


def _matches(ctx: Context, text: str, compiled: Any) -> Iterator[Any]:
    """All matches. Every further match may read the rest of the text again, so each is charged for a share of it."""
    _charge(ctx, text, compiled)
    matches = compiled.finditer(text)
    size = len(text.encode("utf-8", "replace"))
    while True:
        match = _guarded(lambda: next(matches, None))
        if match is None:
            return
        ctx.budget.charge(16 + (size - match.end()) // 500)
        yield match


def _charge(ctx: Context, text: str, compiled: Any) -> None:
    ctx.budget.scan(len(text))
    size = len(text) * (1 if text.isascii() else 3)
    ctx.budget.charge(size * compiled.programsize // 100)


def _guarded(step: Any) -> Any:
    try:
        return step()
    except UnicodeEncodeError:
        raise ArgumentProblem("gets a text with half a character in it.") from None


REGEX: tuple[Function, ...] = (
    function(regex_search, "any", "'score: 7/10' | regex_search('([0-9]+)/10')", "7"),
    function(regex_findall, "array", "'a1 b2' | regex_findall('[a-z][0-9]')", ["a1", "b2"]),
    function(regex_replace, "string", r"'2024-05' | regex_replace('(\d+)-(\d+)', '\2/\1')", "05/2024"),
)

"""Grammars that authors write: Lark notation, as llguidance reads it.

The scanner finds the parts that we have rules for (regular expressions, JSON Schemas, what reaches outside the text)
and puts them in the form that every other constraint has: the same dialect of patterns, no keyword ignored, white space
bounded. The rest is llguidance's to judge; its line and column are led back to the author's text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from sglspec.analysis.grammar import STUCK, ConstraintError, Fault, examine, json_rule
from sglspec.analysis.lark_advice import advice
from sglspec.analysis.lark_ends import endless_rule
from sglspec.analysis.regexes import normalise
from sglspec.analysis.schemas import check_schema

MAX_GRAMMAR = 65_536
"""Characters."""

_PART = re.compile(
    r"""
    (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<remark>//[^\n]*|\#[^\n]*)
  | (?P<regex>/(?P<pattern>(?:\\.|[^/\\\n])+)/(?P<flags>[a-zA-Z]*))
  | (?P<directive>%[a-z_]+)
  | (?P<token><[^>\s]*>)
  | (?P<other>@\S+)
  | (?P<attributes>^[?!]?[A-Za-z_]\w*\s*\[(?P<named>[^\]\n]*)\]\s*:)
    """,
    re.VERBOSE | re.MULTILINE,
)
_UNKNOWN = re.compile(r'unknown name: "(\w+)"')
_ATTRIBUTES = ("lazy", "stop", "suffix")
_DIRECTIVES = ("%json", "%import", "%ignore", "%regex")


@dataclass(slots=True)
class _Text:
    """The grammar as it is rewritten, and where each copied or replaced piece came from: (new start, old start)."""

    source: str
    done: int = 0
    out: str = ""
    pieces: tuple[tuple[int, int], ...] = ()

    def copy(self, upto: int) -> None:
        self.pieces += ((len(self.out), self.done),)
        self.out += self.source[self.done : upto]
        self.done = upto

    def replace(self, start: int, end: int, text: str) -> None:
        self.copy(start)
        self.pieces += ((len(self.out), start),)
        self.out += text
        self.done = end

    def origin(self, at: int) -> int:
        """The offset in the source of an offset in the new text; inside a replaced piece, its start."""
        new, old = next(piece for piece in reversed(self.pieces) if piece[0] <= at)
        following = min((p[1] for p in self.pieces if p[0] > new), default=len(self.source))
        return min(old + at - new, max(old, following - 1))


def lark_grammar(source: str) -> str:
    """The grammar for the engine. Raises ConstraintError with offsets: S508 for the grammar, the codes of patterns and
    schemas for those inside it, S505 for limits and when nothing matches."""
    if len(source) > MAX_GRAMMAR:
        raise ConstraintError("S505", f"the grammar is longer than {MAX_GRAMMAR:,} characters")
    text = _Text(source)
    at = 0
    while found := _PART.search(source, at):
        at = _part(text, found)
    text.copy(len(source))
    fault = examine(text.out)
    if fault is not None:
        _refuse(text, fault)
    _comes_to_an_end(source)
    return text.out


def _part(text: _Text, found: re.Match[str]) -> int:
    """Check and rewrite one part; returns where the next may begin."""
    start, end = found.span()
    if found["regex"]:
        text.replace(start, end, f"/{_pattern(found)}/")
    elif found["directive"]:
        return _directive(text, found)
    elif found["token"]:
        help = "Constrained text holds no control tokens. Write ordinary text in quotes."
        raise ConstraintError("S508", "a grammar cannot name tokens of a model", help, start=start, end=end)
    elif found["other"]:
        raise ConstraintError("S508", "there is no other grammar to refer to", start=start, end=end)
    elif found["attributes"]:
        _attributes(found)
    return end


def _pattern(found: re.Match[str]) -> str:
    start = found.start("pattern")
    flags = found["flags"]
    if set(flags) - {"i", "s"}:
        help = "`i` (ignore case) and `s` (`.` matches line breaks too) are the only flags."
        raise ConstraintError(
            "S502", f"the flags `{flags}` are not allowed", help, start=found.start("flags"), end=found.end("flags")
        )
    try:
        pattern = normalise(found["pattern"])
    except ConstraintError as error:
        offset = error.start or 0
        end = error.end if error.end is not None else offset + 1
        raise ConstraintError(error.code, error.message, error.help, start=start + offset, end=start + end) from None
    return f"(?{flags}:{pattern})" if flags else pattern


def _directive(text: _Text, found: re.Match[str]) -> int:
    start, end = found.span()
    word = found["directive"]
    if word not in _DIRECTIVES:
        help = f"Known: {', '.join(_DIRECTIVES)}."
        raise ConstraintError("S508", f"`{word}` is not part of our dialect", help, start=start, end=end)
    if word == "%import":
        if not re.match(r"\s+common\.\w+", text.source[end:]):
            help = "`%import common.INT` and its like are built in. Nothing is read from files."
            raise ConstraintError("S508", "a grammar imports nothing but `common`", help, start=start, end=end)
        return end
    if word == "%ignore":
        return end
    value, stop = _json(text.source, end, start)
    if word == "%json":
        text.replace(start, stop, json_rule(_schema(value, text.source, start, stop)))
    return stop


def _json(source: str, at: int, start: int) -> tuple[Any, int]:
    begin = at + len(source[at:]) - len(source[at:].lstrip())
    try:
        return json.JSONDecoder().raw_decode(source, begin)
    except (ValueError, RecursionError) as error:
        place = min(getattr(error, "pos", begin), len(source) - 1)
        raise ConstraintError("S508", "this is not valid JSON", start=max(place, 0), end=max(place, 0) + 1) from None


def _schema(value: Any, source: str, start: int, end: int) -> dict[str, Any]:
    """The schema as it is enforced; its faults are shown at the key they name, else at the whole."""
    if not isinstance(value, dict):
        raise ConstraintError("S503", "a JSON Schema is a mapping", start=start, end=end)
    try:
        return check_schema(cast("dict[str, Any]", value))
    except ConstraintError as error:
        key = next((json.dumps(step) for step in reversed(error.pointer) if isinstance(step, str)), "")
        at = source.find(key, start, end) if key else -1
        place = (at, at + len(key)) if at >= 0 else (start, end)
        raise ConstraintError(error.code, error.message, error.help, start=place[0], end=place[1]) from None


def _attributes(found: re.Match[str]) -> None:
    for attribute in found["named"].split(","):
        name = attribute.split("=")[0].strip()
        if name not in _ATTRIBUTES:
            help = f"Known: {', '.join(_ATTRIBUTES)}. Sampling options and `max_tokens` are written beside `grammar`."
            start, end = found.span("named")
            raise ConstraintError("S508", f"the attribute `{name}` cannot be enforced", help, start=start, end=end)


def _comes_to_an_end(source: str) -> None:
    endless = endless_rule(source)
    if endless is not None:
        name, start = endless
        message = f"no text matches this grammar: `{name}` contains itself in every alternative"
        help = f'Add an alternative without it: `{name}: … | "the end"`.'
        raise ConstraintError("S505", message, help, start=start, end=start + len(name))


def _refuse(text: _Text, fault: Fault) -> NoReturn:
    """llguidance's reason at its place in the author's text."""
    reason, source = fault.reason, text.source
    start, end = 0, len(source)
    if fault.line is not None and fault.column is not None:
        lines = text.out.split("\n")
        before = lines[: fault.line - 1]
        at = min(sum(len(one) + 1 for one in before) + fault.column - 1, len(text.out))
        start = min(text.origin(at), max(len(source) - 1, 0))
        named = _UNKNOWN.search(reason)  # the place is that of the expression around it
        word = re.compile(rf"\b{named[1]}\b" if named else r"\w+|.").search(source, start)
        start, end = word.span() if word else (start, start + 1)
    if reason == STUCK:
        _comes_to_an_end(source)
        help = "A rule that contains itself needs an alternative that ends."
        raise ConstraintError("S505", "no text matches this grammar", help, start=start, end=end)
    if any(word in reason for word in ("too large", "too many", "limit")):
        help = "Make its repetitions shorter, or its patterns simpler."
        raise ConstraintError("S505", "the grammar is too large to be followed", help, start=start, end=end)
    message, help = advice(reason, source)
    raise ConstraintError("S508", message, help, start=start, end=end)

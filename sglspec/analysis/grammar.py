"""The border to llguidance: grammar texts, their verdict, and exact matching. No tokenizer of a model is needed."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

Step = str | int

STUCK = "nothing can match it"


class ConstraintError(ValueError):
    """A constraint that cannot be used. `start`/`end` are offsets into a regular expression; `pointer` is the way
    into a JSON Schema, and `at_key` says that its last key is meant rather than the value there."""

    def __init__(
        self,
        code: str,
        message: str,
        help: str | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        pointer: tuple[Step, ...] = (),
        at_key: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.help = help
        self.start = start
        self.end = end
        self.pointer = pointer
        self.at_key = at_key


def regex_grammar(normalised: str) -> str:
    """A Lark grammar that matches exactly what a normalised regular expression matches (regexes.normalise)."""
    return f"start: /{normalised}/" if normalised else 'start: ""'


def json_grammar(schema: dict[str, Any], *, pretty: bool = False, lenient: bool = False) -> str:
    """A Lark grammar for JSON under a schema. White space is bounded: at most one space after `,` and `:`, or with
    `pretty` at most one line break with indentation, or one space, between any two signs."""
    options: dict[str, Any] = {"whitespace_flexible": False, "item_separator": ",[ ]?", "key_separator": ":[ ]?"}
    if pretty:
        options = {"whitespace_flexible": True, "whitespace_pattern": r"(\n[ ]{0,64}|[ ])?"}
    if lenient:
        options |= {"lenient": True, "coerce_one_of": True}
    return "start: %json " + json.dumps({**schema, "x-guidance": options}, ensure_ascii=False)


def verdict(grammar: str) -> str | None:
    """None when the grammar compiles and at least one text can begin; else llguidance's reason, one line.

    Compiling is lazy (derivatives), so this ends in milliseconds also for patterns whose automaton is huge.
    """
    from llguidance import LLMatcher

    matcher = LLMatcher(_byte_tokenizer(), grammar, log_level=0)
    if not matcher.is_error() and not matcher.is_accepting() and not any(matcher.compute_bitmask()):
        return STUCK  # asking for the mask may also set the error state
    if not matcher.is_error():
        return None
    reason = _reason(matcher.get_error())
    return STUCK if reason.startswith("NoExtension") else reason


def matches(grammar: str, text: str) -> bool:
    """Whether the whole text is one that the grammar allows. Time is linear in the text."""
    from llguidance import LLMatcher

    matcher = LLMatcher(_byte_tokenizer(), grammar, log_level=0)
    if matcher.is_error():
        return False
    data = list(text.encode("utf-8", "surrogatepass"))
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


@cache
def _byte_tokenizer() -> Any:
    """llguidance's own tokenizer with one token per byte; token ids are the byte values. Immutable."""
    from llguidance import LLTokenizer

    return LLTokenizer("byte")


def _reason(message: str) -> str:
    """The part of llguidance's message that a reader can use: without its position in the grammar text."""
    lines = message.strip().split("\n")
    for line in lines:
        if line.startswith("error: "):
            return line.removeprefix("error: ")
    first = lines[0]
    for mark in ("failed to compile JSON schema: ", 'failed to parse "%json": '):
        if mark in first:
            return first.split(mark, 1)[1]
    return first

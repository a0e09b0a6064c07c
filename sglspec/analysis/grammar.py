"""The border to llguidance: grammar texts, their verdict, and exact matching. No tokenizer of a model is needed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
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


@dataclass(frozen=True, slots=True)
class Fault:
    """Why llguidance refuses a grammar, and where in its text where that is known (from 1)."""

    reason: str
    line: int | None = None
    column: int | None = None


_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): ")


def regex_grammar(normalised: str) -> str:
    """A Lark grammar that matches exactly what a normalised regular expression matches (regexes.normalise)."""
    return f"start: /{normalised}/" if normalised else 'start: ""'


def json_grammar(schema: dict[str, Any], *, pretty: bool = False, lenient: bool = False) -> str:
    """A Lark grammar for JSON under a schema."""
    return "start: " + json_rule(schema, pretty=pretty, lenient=lenient)


def json_rule(schema: dict[str, Any], *, pretty: bool = False, lenient: bool = False) -> str:
    """JSON under a schema, as a part of a Lark grammar. White space is bounded: at most one space after `,` and `:`, or
    with `pretty` at most one line break with indentation, or one space, between any two signs."""
    options: dict[str, Any] = {"whitespace_flexible": False, "item_separator": ",[ ]?", "key_separator": ":[ ]?"}
    if pretty:
        options = {"whitespace_flexible": True, "whitespace_pattern": r"(\n[ ]{0,64}|[ ])?"}
    if lenient:
        options |= {"lenient": True, "coerce_one_of": True}
    return "%json " + json.dumps({**schema, "x-guidance": options}, ensure_ascii=False)


def verdict(grammar: str) -> str | None:
    """None when the grammar compiles and at least one text can begin; else llguidance's reason, one line."""
    found = examine(grammar)
    return None if found is None else found.reason


@lru_cache(maxsize=16)  # a document often says one constraint many times
def examine(grammar: str) -> Fault | None:
    """What is wrong with a grammar: it does not compile, or no text can begin.

    Compiling is lazy (derivatives) and has a limit of work (`_limits`), so this ends soon also for patterns whose
    automaton is huge.
    """
    matcher = _matcher(grammar)
    if not matcher.is_error() and not matcher.is_accepting() and not any(matcher.compute_bitmask()):
        return Fault(STUCK)  # asking for the mask may also set the error state
    return _fault(matcher.get_error()) if matcher.is_error() else None


def matches(grammar: str, text: str) -> bool:
    """Whether the whole text is one that the grammar allows. Time is linear in the text."""
    return Matcher(grammar).matches(text)


class Matcher:
    """A grammar that is compiled once and matched with many texts."""

    def __init__(self, grammar: str) -> None:
        self._grammar = grammar
        self._start = _matcher(grammar)

    def matches(self, text: str) -> bool:
        """Whether the whole text is one that the grammar allows."""
        if self._start.is_error():
            return False
        matcher = self._start.deep_copy()
        found = _takes(matcher, text)
        if matcher.is_error():  # copies share what their grammar may cost, and earlier texts used it up
            self._start = _matcher(self._grammar)
            found = _takes(self._start.deep_copy(), text)
        return found


def _takes(matcher: Any, text: str) -> bool:
    data = list(text.encode("utf-8", "surrogatepass"))
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


@cache
def _byte_tokenizer() -> Any:
    """llguidance's own tokenizer with one token per byte; token ids are the byte values. Immutable."""
    from llguidance import LLTokenizer

    return LLTokenizer("byte")


def _matcher(grammar: str) -> Any:
    from llguidance import LLMatcher

    return LLMatcher(_byte_tokenizer(), grammar, log_level=0, limits=_limits())


@cache
def _limits() -> Any:
    """Work that a grammar may cost, counted by llguidance itself: the same on every machine, and a stop that leaves
    nothing running. Half a second on a slow core, where a usual schema takes milliseconds."""
    from llguidance import LLParserLimits

    return LLParserLimits(initial_lexer_fuel=400_000, step_lexer_fuel=100_000)


def _fault(message: str) -> Fault:
    """The part of llguidance's message that a reader can use."""
    lines = message.strip().split("\n")
    place = _PLACE.match(lines[0])
    line, column = (int(place[1]), int(place[2])) if place else (None, None)
    first = lines[0][place.end() :] if place else lines[0]
    reason = next((one.removeprefix("error: ") for one in lines if one.startswith("error: ")), first)
    for mark in ("failed to compile JSON schema: ", 'failed to parse "%json": '):
        if mark in reason:
            reason = reason.split(mark, 1)[1]
    return Fault(STUCK if reason.startswith("NoExtension") else reason, line, column)

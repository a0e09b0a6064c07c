"""Stop patterns: a regular expression found in a stream of bytes at the moment a match is complete.

Thompson's construction, run as a set of states (Thompson, "Regular expression search algorithm", 1968): time is linear
in the text and in the pattern, whatever that is. Each live state knows the earliest byte from which it was reached, so
a match knows where it began, and what may still become a match can be held back.

The notation: characters, `\\` escapes, `.`, sets, `( )`, `(?: )`, `(?flags: )`, flags in front (`i`, `s`), `|`, and the
repetitions `* + ? {n} {n,} {n,m}`. Single characters are decided by Python's `re`.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field

from sglspec_engine.types import EngineError

MAX_STATES = 5_000
"""Of all patterns of a text together. A character costs a look at each of them at most, about a millisecond."""

_ATOM = re.compile(r"\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_OPENING = re.compile(r"\((?:\?([is]*)(?:-([is]+))?:|\?P?<\w+>|(?!\?))")
_FLAGS = re.compile(r"\(\?([is]+)\)")
_REPEAT = re.compile(r"(?:([*+?])|\{(\d+)(,?)(\d*)\})\??")


@dataclass(slots=True)
class _State:
    """Either a character that is needed (`needs`, then `next[0]`), or free ways on."""

    needs: re.Pattern[str] | None = None
    next: list[int] = field(default_factory=list[int])


class StopPattern:
    """Finds the first place in a text where a match of the pattern is complete.

    Attributes:
        held: bytes at the end of those pushed that may still become part of a match.
        length: bytes of the match, once `step` returned True. Of several matches that end there the one that began
            first is meant.
    """

    def __init__(self, pattern: str) -> None:
        """Raises EngineError("unsupported") for a pattern that cannot be read, is too large, or matches nothing at all
        (every place would be a stop)."""
        self.held = 0
        self.length = 0
        self._states, self._start, self._accept = _Builder(pattern).build()
        self._live: dict[int, int] = {}
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._at = 0
        self._char_from = 0
        # _live: state that needs a character → the earliest offset where its match began, the earliest first.
        # _char_from: where the bytes of the next character begin.
        reached: dict[int, int] = {}
        self._reach(self._start, 0, set(), reached)
        if self._accept in reached:
            raise EngineError("unsupported", f"the stop pattern {pattern!r} matches the empty text")
        self._opening = tuple(reached)

    @property
    def size(self) -> int:
        """How many states it has; a character costs at most so many looks."""
        return len(self._states)

    def step(self, byte: int) -> bool:
        """Advance by one byte; True if a match is complete with it. Afterwards the search goes on."""
        char = self._decoder.decode(bytes((byte,)))
        self._at += 1
        complete = self._advance(char) if char else False
        self.held = self._at - min(self._live.values(), default=self._char_from)
        return complete

    def _advance(self, char: str) -> bool:
        for state in self._opening:
            self._live.setdefault(state, self._char_from)
        following: dict[int, int] = {}
        seen: set[int] = set()
        # In the order of their beginnings, so that the first to reach a state has the earliest.
        for state, began in self._live.items():
            needs = self._states[state].needs
            if needs is not None and needs.match(char):
                self._reach(self._states[state].next[0], began, seen, following)
        self._char_from = self._at
        began = following.pop(self._accept, None)
        self._live = following
        if began is None:
            return False
        self.length = self._at - began
        return True

    def _reach(self, index: int, began: int, seen: set[int], found: dict[int, int]) -> None:
        """Add the states that need a character, and the accepting one, reached from `index` for free."""
        if index in seen:
            return
        seen.add(index)
        todo = [index]
        while todo:
            at = todo.pop()
            state = self._states[at]
            if state.needs is not None or at == self._accept:
                found[at] = began
                continue
            for way in state.next:
                if way not in seen:
                    seen.add(way)
                    todo.append(way)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the automaton: its first state and its last, which has no way on yet."""

    first: int
    last: int


class _Builder:
    """Recursive descent over a pattern. A repeated part is read again for every copy that it needs."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._states: list[_State] = []

    def build(self) -> tuple[list[_State], int, int]:
        """All states, the first, and the accepting one."""
        flags = ""
        if found := _FLAGS.match(self._pattern):
            flags, self._at = found[1], found.end()
        piece = self._alternatives(frozenset(flags))
        if self._at < len(self._pattern):
            raise self._unreadable()
        return self._states, piece.first, piece.last

    def _alternatives(self, flags: frozenset[str]) -> _Piece:
        first, last = self._state(), self._state()
        while True:
            piece = self._sequence(flags)
            self._link(first, piece.first)
            self._link(piece.last, last)
            if not self._pattern.startswith("|", self._at):
                return _Piece(first, last)
            self._at += 1

    def _sequence(self, flags: frozenset[str]) -> _Piece:
        first = last = self._state()
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            piece = self._repeated(flags)
            self._link(last, piece.first)
            last = piece.last
        return _Piece(first, last)

    def _repeated(self, flags: frozenset[str]) -> _Piece:
        begin = self._at
        piece = self._atom(flags)
        found = _REPEAT.match(self._pattern, self._at)
        if found is None:
            return piece
        low, high = _counts(found)
        first, end = self._state(), self._state()
        last = first
        for index in range(max(low, 1) if high is None else high):
            if index:
                self._at = begin
                piece = self._atom(flags)
            if index >= low:
                self._link(last, end)
            self._link(last, piece.first)
            last = piece.last
        self._link(last, end)
        if high is None:
            self._link(last, piece.first)
        self._at = found.end()
        return _Piece(first, end)

    def _atom(self, flags: frozenset[str]) -> _Piece:
        if self._pattern.startswith("(", self._at):
            found = _OPENING.match(self._pattern, self._at)
            if found is None:
                raise self._unreadable()
            self._at = found.end()
            piece = self._alternatives((flags | frozenset(found[1] or "")) - frozenset(found[2] or ""))
            if not self._pattern.startswith(")", self._at):
                raise self._unreadable()
            self._at += 1
            return piece
        found = _ATOM.match(self._pattern, self._at)
        if found is None or found[0] in ("*", "+", "?", "{", "\\"):
            raise self._unreadable()
        self._at = found.end()
        how = (re.IGNORECASE if "i" in flags else 0) | (re.DOTALL if "s" in flags else 0)
        try:
            needs = re.compile(found[0], how)
        except re.error as error:
            raise EngineError("unsupported", f"the stop pattern {self._pattern!r}: {error}") from None
        last = self._state()
        return _Piece(self._state(needs, last), last)

    def _state(self, needs: re.Pattern[str] | None = None, following: int | None = None) -> int:
        if len(self._states) >= MAX_STATES:
            raise EngineError("unsupported", f"the stop pattern {self._pattern[:60]!r} is too large")
        self._states.append(_State(needs, [] if following is None else [following]))
        return len(self._states) - 1

    def _link(self, source: int, target: int) -> None:
        self._states[source].next.append(target)

    def _unreadable(self) -> EngineError:
        return EngineError("unsupported", f"the stop pattern {self._pattern!r} cannot be read at offset {self._at}")


def _counts(found: re.Match[str]) -> tuple[int, int | None]:
    """Least and most repetitions; None for no bound."""
    if found[1]:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[1]]
    low = int(found[2])
    return low, (int(found[4]) if found[4] else None) if found[3] else low

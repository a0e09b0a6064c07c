"""Streaming text out of bytes, with stops.

Works on bytes, so that neither token nor character borders matter: the result depends only on the bytes pushed, not
on how they were cut into tokens. Matching runs one Knuth-Morris-Pratt automaton per stop text (Knuth, Morris, Pratt,
"Fast pattern matching in strings", 1977), whose state is also the number of bytes that must be held back for that stop,
and one `StopPattern` per stop pattern.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from sglspec_engine.text.patterns import MAX_STATES, StopPattern
from sglspec_engine.types import EngineError


class TextStream:
    """Turns pushed bytes into text that is safe to show.

    Held back: an incomplete UTF-8 character, and the longest suffix that may still become a stop. Bytes that are no
    UTF-8 (a model can sample such) are dropped, and so is a character still incomplete at `finish`: U+FFFD appears
    only if the bytes themselves spell it. The dropped bytes still count, since their tokens stay in the context.

    The stop that is complete first wins; of several complete at the same byte, the one that began first (the
    longest). So nothing has to be generated past a complete stop to decide between stops.

    Attributes:
        matched: the text that a stop matched, None while none has.
        surviving_bytes: how many of the pushed bytes belong to the text: all of them until a match, then those
            before the match (with `keep_stop` up to its end). The rest is to be rolled back.
    """

    def __init__(
        self, stops: Sequence[bytes | str] = (), keep_stop: bool = False, patterns: Sequence[str] = ()
    ) -> None:
        """Raises EngineError("unsupported") for an empty stop, and for a pattern that is none (see `StopPattern`)."""
        self.matched: str | None = None
        self.surviving_bytes: int = 0
        self._automata: list[_Automaton | StopPattern] = [
            _Automaton(s.encode("utf-8", "surrogatepass") if isinstance(s, str) else s) for s in stops
        ]
        size = 0
        for pattern in patterns:
            self._automata.append(found := StopPattern(pattern))
            size += found.size
            if size > MAX_STATES:
                raise EngineError("unsupported", "the stop patterns are too large together")
        self._keep = keep_stop
        self._held = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._shown: list[str] = []

    @property
    def text(self) -> str:
        """Everything returned so far."""
        return "".join(self._shown)

    def push(self, data: bytes, *, armed: bool = True) -> str:
        """Add bytes; returns the newly visible text. After a match nothing is taken and "" is returned.

        With `armed` false (below `min_tokens`) a stop that these bytes complete does not count.
        """
        if self.matched is not None:
            return ""
        for position, byte in enumerate(data):
            complete = [a for a in self._automata if a.step(byte)]
            if complete and armed:
                return self._match(max(a.length for a in complete), data[: position + 1])
        self._held += data
        self.surviving_bytes += len(data)
        free = len(self._held) - max((a.held for a in self._automata), default=0)
        return self._show(free)

    def finish(self) -> str:
        """The end of the text: whatever was held back for a stop that did not come. "" after a match."""
        return "" if self.matched is not None else self._show(len(self._held))

    def _match(self, length: int, data: bytes) -> str:
        """The last `length` bytes up to the end of `data` are a stop."""
        end = len(self._held) + len(data)
        keep = end if self._keep else end - length
        # The stop may have begun in an earlier push: then fewer bytes survive than were pushed before this one.
        self.surviving_bytes += keep - len(self._held)
        self._held += data
        self.matched = bytes(self._held[end - length :]).decode("utf-8", "ignore")
        return self._show(keep)

    def _show(self, count: int) -> str:
        text = self._decoder.decode(bytes(self._held[:count]))
        del self._held[:count]
        if text:
            self._shown.append(text)
        return text


class _Automaton:
    """Knuth-Morris-Pratt over one stop. `held` = length of the longest proper prefix that ends the bytes so far."""

    __slots__ = ("_back", "_stop", "held", "length")

    def __init__(self, stop: bytes) -> None:
        if not stop:
            raise EngineError("unsupported", "a stop text is empty")
        self._stop = stop
        self._back = _prefix_function(stop)
        self.held = 0
        self.length = len(stop)

    def step(self, byte: int) -> bool:
        """Advance by one byte; True if the stop is complete with it (the state then is ready for a next match)."""
        state = self.held
        while state and self._stop[state] != byte:
            state = self._back[state - 1]
        if self._stop[state] == byte:
            state += 1
        complete = state == self.length
        self.held = self._back[state - 1] if complete else state
        return complete


def _prefix_function(pattern: bytes) -> list[int]:
    """For each position the length of the longest proper prefix that is also a suffix ending there."""
    table = [0] * len(pattern)
    length = 0
    for i in range(1, len(pattern)):
        while length and pattern[i] != pattern[length]:
            length = table[length - 1]
        if pattern[i] == pattern[length]:
            length += 1
        table[i] = length
    return table

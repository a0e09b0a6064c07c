"""Streaming text out of bytes, with stop strings.

Works on bytes, so that neither token nor character borders matter: the result depends only on the bytes pushed, not
on how they were cut into tokens. Matching runs one Knuth-Morris-Pratt automaton per stop (Knuth, Morris, Pratt, "Fast
pattern matching in strings", 1977), whose state is also the number of bytes that must be held back for that stop.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from sglspec_engine.types import EngineError


class TextStream:
    """Turns pushed bytes into text that is safe to show.

    Held back: an incomplete UTF-8 character, and the longest suffix that may still become a stop. Bytes that are no
    UTF-8 (a model can sample such) are dropped, and so is a character still incomplete at `finish`: U+FFFD appears
    only if the bytes themselves spell it. The dropped bytes still count, since their tokens stay in the context.

    The stop that is complete first wins; of several complete at the same byte, the one that began first (the
    longest). So nothing has to be generated past a complete stop to decide between stops.

    Attributes:
        matched: the stop that matched, None while none has.
        surviving_bytes: how many of the pushed bytes belong to the text: all of them until a match, then those
            before the match (with `keep_stop` up to its end). The rest is to be rolled back.
    """

    def __init__(self, stops: Sequence[bytes | str] = (), keep_stop: bool = False) -> None:
        """Raises EngineError("unsupported") for an empty stop."""
        self.matched: str | None = None
        self.surviving_bytes: int = 0
        self._automata = [_Automaton(s.encode("utf-8", "surrogatepass") if isinstance(s, str) else s) for s in stops]
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
                return self._match(max(complete, key=lambda a: len(a.stop)), data[: position + 1])
        self._held += data
        self.surviving_bytes += len(data)
        free = len(self._held) - max((a.state for a in self._automata), default=0)
        return self._show(free)

    def finish(self) -> str:
        """The end of the text: whatever was held back for a stop that did not come. "" after a match."""
        return "" if self.matched is not None else self._show(len(self._held))

    def _match(self, automaton: _Automaton, data: bytes) -> str:
        self.matched = automaton.stop.decode("utf-8", "replace")
        end = len(self._held) + len(data)
        keep = end if self._keep else end - len(automaton.stop)
        # The stop may have begun in an earlier push: then fewer bytes survive than were pushed before this one.
        self.surviving_bytes += keep - len(self._held)
        self._held += data
        return self._show(keep)

    def _show(self, count: int) -> str:
        text = self._decoder.decode(bytes(self._held[:count]))
        del self._held[:count]
        if text:
            self._shown.append(text)
        return text


class _Automaton:
    """Knuth-Morris-Pratt over one stop. `state` = length of the longest proper prefix that ends the bytes so far."""

    __slots__ = ("_back", "state", "stop")

    def __init__(self, stop: bytes) -> None:
        if not stop:
            raise EngineError("unsupported", "a stop text is empty")
        self.stop = stop
        self.state = 0
        self._back = _prefix_function(stop)

    def step(self, byte: int) -> bool:
        """Advance by one byte; True if the stop is complete with it (the state then is ready for a next match)."""
        state = self.state
        while state and self.stop[state] != byte:
            state = self._back[state - 1]
        if self.stop[state] == byte:
            state += 1
        complete = state == len(self.stop)
        self.state = self._back[state - 1] if complete else state
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

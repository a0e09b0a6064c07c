"""Text on its way into a context: counted in one piece from one generation to the next, as the model takes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from sglspec.analysis.plan.ranges import Length, Range
from sglspec.analysis.plan.state import State
from sglspec.backends.base import Role
from sglspec.backends.markup import Markup, NoMarkup, Piece

BLANK = Piece("blank", "")


@dataclass(frozen=True, slots=True)
class Sizes:
    """In tokens of a model, or in characters without one."""

    markup: Markup

    @property
    def unit(self) -> str:
        return "characters" if isinstance(self.markup, NoMarkup) else "tokens"

    def count(self, pieces: Sequence[Piece]) -> int:
        counted = self.markup.count(pieces)
        return sum(len(piece.text) for piece in pieces) if counted is None else counted

    def text(self, text: str) -> int:
        """A text by itself, behind other text."""
        return self.count([BLANK, Piece("author", text)])

    def open(self, state: State, role: str) -> None:
        self._put(state, self.markup.open(cast(Role, role), first=not state.begun))
        state.role = role

    def close(self, state: State) -> None:
        self._put(state, self.markup.close(cast(Role, state.role)))
        state.role = None

    def write(self, state: State, parts: Iterable[str], whole: bool) -> None:
        """Add text, of which maybe only parts are known."""
        if not state.begun:
            self._put(state, self.markup.start())
        for at, part in enumerate(parts):
            if at:
                state.run.append(BLANK)  # something unknown stands between
            self._put(state, [Piece("author", part)])
        if not whole:
            state.run.append(BLANK)
            state.open = True

    def flush(self, state: State, *, computed: bool = True) -> None:
        """Count what has gathered; what follows is counted apart. Nobody computes what nothing follows."""
        if not state.run and not state.open:
            return
        least = self.count([BLANK, *state.run] if state.length != Length() else state.run)
        size = Range(least, None if state.open else least)
        state.run, state.open = [], False
        state.length = Length(state.length.text + size, state.length.written)
        if computed:
            state.cost = state.cost.plus(text=size)

    @staticmethod
    def _put(state: State, pieces: Sequence[Piece]) -> None:
        state.run.extend(pieces)
        state.begun = True


__all__ = ["BLANK", "Sizes"]

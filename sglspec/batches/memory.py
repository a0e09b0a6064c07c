"""How many rows fit into a backend's memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sglspec.analysis.plan import beginning_of, plan
from sglspec.analysis.plan.texts import Sizes
from sglspec.analysis.program import Program
from sglspec.backends.base import Backend, EngineError, KVMemory, Segment, Usage
from sglspec.backends.markup import Markup, Piece
from sglspec.batches.source import Row
from sglspec.diagnostics import SpecError


@dataclass(frozen=True, slots=True)
class Need:
    """Tokens that a row holds at most: its own, and those that it begins with, which other rows may share."""

    own: int = 0
    beginning: tuple[Segment, ...] = ()
    shared: int = 0


class _Remembering:
    """A markup that knows the last counts: rows say much of the same."""

    def __init__(self, markup: Markup) -> None:
        self._count = lru_cache(64)(markup.count)
        self.name = markup.name
        self.require_chat, self.start = markup.require_chat, markup.start
        self.open, self.close, self.trims = markup.open, markup.close, markup.trims

    def count(self, pieces: Sequence[Piece]) -> int | None:
        return self._count(tuple(pieces))


class Room:
    """Tokens of context that rows hold at most, by their plans, against those that there is memory for.

    Where nothing bounds a part of a plan, such as a text with what was generated before, that part counts with its
    least, and the row as at least as large as any that has ended. The backend takes memory back where that is too
    little.
    """

    def __init__(self, program: Program, backend: Backend) -> None:
        self._memory = backend if isinstance(backend, KVMemory) else None
        self._program = program
        self._markup = _Remembering(self._memory.markup) if self._memory is not None else None
        self._before: dict[str, Any] = {}
        self._largest = 0

    def need(self, row: Row) -> Need:
        """Nothing where nothing is known. Its beginning is what follows from inputs that the row before has, too."""
        if self._memory is None or self._markup is None or row.problem:
            return Need()
        try:
            cost = plan(self._program, row.inputs, self._markup).cost
            common = {k: v for k, v in row.inputs.items() if k in self._before and self._before[k] == v}
            beginning, shared = beginning_of(self._program, common, Sizes(self._markup))
        except (SpecError, EngineError):  # the run will say so
            return Need()
        self._before = dict(row.inputs)
        parts = (cost.text, cost.choices, cost.generated)
        own = max(sum(part.least if part.most is None else part.most for part in parts) - shared, 0)
        if any(part.most is None for part in parts):
            own = max(own, self._largest)
        return Need(min(own, self._memory.kv_tokens), beginning, shared)

    def has(self, needs: Iterable[Need]) -> bool:
        """Whether rows with these needs fit together."""
        if self._memory is None:
            return True
        needs = list(needs)
        beginnings = {need.beginning: need.shared for need in needs}
        return sum(need.own for need in needs) + sum(beginnings.values()) <= self._memory.kv_tokens

    def ended(self, usage: Usage) -> None:
        """What a row has needed."""
        self._largest = max(self._largest, usage.computed_tokens)

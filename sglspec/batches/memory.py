"""How many rows fit into a backend's memory at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sglspec.analysis.plan import beginning_of, plan
from sglspec.analysis.plan.texts import Sizes
from sglspec.analysis.program import Program
from sglspec.backends.base import Backend, EngineError, KVMemory, Segment, Usage
from sglspec.batches.source import Row
from sglspec.diagnostics import SpecError


@dataclass(frozen=True, slots=True)
class Need:
    """Tokens that a row holds at most: its own, and those that it begins with, which other rows may share."""

    own: int = 0
    beginning: tuple[Segment, ...] = ()
    shared: int = 0


class Room:
    """Tokens of context that rows hold at most, by their plans, against those that there is memory for.

    Where nothing bounds a plan, a row is taken to need no more than the largest that has ended. The backend takes
    memory back where that is too little.
    """

    def __init__(self, program: Program, backend: Backend) -> None:
        self._memory = backend if isinstance(backend, KVMemory) else None
        self._program = program
        self._sizes = Sizes(self._memory.markup) if self._memory is not None else None
        self._before: dict[str, Any] = {}
        self._largest = 0

    def need(self, row: Row) -> Need:
        """Nothing where nothing is known. Its beginning is what follows from inputs that the row before has, too."""
        if self._memory is None or self._sizes is None or row.problem:
            return Need()
        try:
            bound = plan(self._program, row.inputs, self._memory.markup).computed
            common = {k: v for k, v in row.inputs.items() if k in self._before and self._before[k] == v}
            beginning, shared = beginning_of(self._program, common, self._sizes)
        except (SpecError, EngineError):  # the run will say so
            return Need()
        assert bound is not None
        self._before = dict(row.inputs)
        own = max(bound.least - shared, self._largest) if bound.most is None else bound.most - shared
        return Need(min(max(own, 0), self._memory.kv_tokens), beginning, shared)

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

"""How many rows fit into a backend's memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from sglspec.analysis.program import Program, Routine
from sglspec.analysis.sites import children
from sglspec.backends.base import Backend, KVMemory
from sglspec.batches.source import Row
from sglspec.document.fields import Param
from sglspec.document.model import AnyStep, Call, For, Fork, Gen, Include, While
from sglspec.document.nodes import to_python
from sglspec.expressions.values import value_to_text
from sglspec.runtime.requests import DEFAULT_MAX_TOKENS

_UNKNOWN = 4
"""Rounds and branches where the document does not say how many."""


class Room:
    """Tokens of context that rows may come to need, against those that there is memory for.

    A row needs what its inputs add to those of the row before, which it shares, and all that its steps may generate. It
    is an estimate where loops depend on data: the backend takes memory back where it is too low.
    """

    def __init__(self, program: Program, backend: Backend) -> None:
        self._memory = backend if isinstance(backend, KVMemory) else None
        self._generated = 0
        self._left = 0
        self._before: dict[str, str] = {}
        if self._memory is not None:
            self._generated = min(_worst(program, program.routine, frozenset()), self._memory.kv_tokens)
            self._left = self._memory.kv_tokens - self._memory.count(program.document.source.text)

    def need(self, row: Row) -> int:
        """Tokens that a row may need; 0 where nothing is known."""
        if self._memory is None:
            return 0
        texts = {name: _text(value) for name, value in row.inputs.items()}
        own = [text for name, text in texts.items() if self._before.get(name) != text]
        self._before = texts
        return self._generated + sum(self._memory.count(text) for text in own)

    def has(self, needs: Iterable[int]) -> bool:
        """Whether rows with these needs fit together."""
        return self._memory is None or sum(needs) <= self._left


def _text(value: Any) -> str:
    try:
        return value_to_text(value)
    except Exception:  # too large or no JSON: the run will say so
        return ""


def _worst(program: Program, routine: Routine, seen: frozenset[Routine]) -> int:
    """Tokens that the steps generate at most."""
    return sum(_of(program, step, seen | {routine}) for step in routine.steps)


def _of(program: Program, step: AnyStep, seen: frozenset[Routine]) -> int:
    blocks = [sum(_of(program, inner, seen) for inner in block) for block in children(step)]
    match step:
        case Gen():
            attempts = _number(step.retry.max, 1) if step.retry is not None else 1
            return _number(step.max_tokens, DEFAULT_MAX_TOKENS) * _number(step.n, 1) * attempts
        case While():
            return sum(blocks) * _number(step.max, _UNKNOWN)
        case For():
            return sum(blocks) * _length(step.items)
        case Fork():
            return sum(blocks) * (_length(step.items) if step.items is not None else 1)
        case Include():
            target = program.target(step.include)
            return (
                0
                if target is None or target.routine in seen
                else _worst(target.program or program, target.routine, seen)
            )
        case Call() if step.call in program.used:
            called = program.used[step.call].program
            return 0 if called.routine in seen else _worst(called, called.routine, seen)
        case _:
            return max(blocks, default=0)


def _number(param: Param | None, default: int) -> int:
    value = param.value if param is not None else None
    return int(value) if isinstance(value, int | float) else default


def _length(items: Any) -> int:
    if items is None or items.literal is None:
        return _UNKNOWN
    found = to_python(items.literal)
    return len(cast("Sequence[Any]", found)) if isinstance(found, list) else _UNKNOWN

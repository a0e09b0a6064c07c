"""Few-shot examples: an input of every row that holds some other rows."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sglspec.analysis.inputs import check_input, type_of
from sglspec.batches.digest import digest
from sglspec.batches.rows import RawRow, typed
from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.document.model import Decl


@dataclass(frozen=True, slots=True, order=True)
class _Drawn:
    """rank: a number from the seed and what the row says; those with the lowest are taken. position: in its file.
    identity: what the row has in common with a row that it is."""

    rank: str
    position: int
    item: Any
    identity: str | None


@dataclass(frozen=True, slots=True)
class Examples:
    """The rows that an input shows, the same for all rows and in the order of their file, so that prompts begin alike.
    A row that is among them sees a spare one in place of itself.

    `drawn` is in that order. Which rows are drawn follows from what they say, so it changes only when one of them does,
    or when one comes that ranks before them.
    """

    input: str
    count: int
    columns: tuple[str, ...]
    drawn: tuple[_Drawn, ...]

    def of(self, row: RawRow) -> list[Any]:
        """The examples of a row, never the row itself. Raises SpecError (S412) where too few are left."""
        own = _identity(row, self.columns)
        others = [one for one in self.drawn if own is None or one.identity != own]
        if len(others) < self.count:
            message = f"There are {len(others)} examples beside the row itself, and {self.count} are wanted."
            raise SpecError(Diagnostic("S412", message))
        chosen = sorted(others)[: self.count]
        return [one.item for one in sorted(chosen, key=lambda one: one.position)]


def draw(name: str, count: int, decl: Decl, rows: Iterable[RawRow], columns: tuple[str, ...], seed: int) -> Examples:
    """Draw examples for the input `name`: of each row the properties that the list's items declare, or all of it.

    columns: those that the other inputs come from; rows that agree in them are one row. Rows that do not fit the
    declaration, or cannot be read, are passed over. Raises SpecError (S412) when too few are left, or when the input is
    no list of objects.
    """
    items = decl.items
    if type_of(decl) not in ("array", "any") or (items is not None and type_of(items) not in ("object", "any")):
        raise SpecError(Diagnostic("S412", f"The input `{name}` is no list of objects, as examples are."))
    drawn: list[_Drawn] = []
    for position, row in enumerate(rows):
        item = _item(row, items)
        if item is None:
            continue
        identity = _identity(row, columns)
        one = _Drawn(digest(seed, identity or item), position, item, identity)
        if (len(drawn) > count and one.rank >= drawn[-1].rank) or any(one.rank == other.rank for other in drawn):
            continue
        insort(drawn, one, key=lambda one: one.rank)
        del drawn[count + 1 :]
    if len(drawn) < count:
        message = f"{count} examples are wanted for `{name}`, and {len(drawn)} different rows can be one."
        raise SpecError(Diagnostic("S412", message))
    return Examples(name, count, columns, tuple(drawn))


def _item(row: RawRow, items: Decl | None) -> Any:
    """A row as an example, None where it cannot be one."""
    if row.values is None:
        return None
    if items is None or items.properties is None:
        return dict(row.values)
    values: dict[str, Any] = {}
    try:
        for name, decl in items.properties.items():
            if name in row.values:
                value = row.values[name]
                values[name] = typed(name, decl, value) if row.texts else value
    except SpecError:
        return None
    return values if check_input(items, values) is None else None


def _identity(row: RawRow, columns: tuple[str, ...]) -> str | None:
    """What a row says in these columns, whatever kind of file it is from; None where it does not have them."""
    values: Mapping[str, Any] = row.values or {}
    if not columns or any(name not in values for name in columns):
        return None
    return digest([_text(values[name]) for name in columns])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)

"""Few-shot examples: an input of every row that holds some other rows."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sglspec.analysis.inputs import check_input, type_of
from sglspec.batches.digest import digest
from sglspec.batches.rows import RawRow, typed
from sglspec.diagnostics import Diagnostic, SpecError, sentence
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


def draw(
    name: str,
    count: int,
    decl: Decl,
    rows: Iterable[RawRow],
    columns: tuple[str, ...],
    seed: int,
    source: str | None = None,
) -> Examples:
    """Draw examples for the input `name`: of each row the properties that the list's items declare, or all of it.

    columns: those that the other inputs come from; rows that agree in them are one row. Rows that do not fit the
    declaration, or cannot be read, are passed over. source: the file of the rows, for messages. Raises SpecError (S412)
    when too few are left, or when the input is no list of objects.
    """
    items = decl.items
    if type_of(decl) not in ("array", "any") or (items is not None and type_of(items) not in ("object", "any")):
        raise SpecError(Diagnostic("S412", f"The input `{name}` is no list of objects, as examples are."))
    drawn: list[_Drawn] = []
    read = passed_over = 0
    first: Diagnostic | None = None
    for position, row in enumerate(rows):
        read += 1
        try:
            item = _item(row, items)
        except SpecError as error:
            passed_over += 1
            first = first or replace(error.diagnostics[0], file=error.diagnostics[0].file or f"row {position + 1}")
            continue
        identity = _identity(row, columns)
        one = _Drawn(digest(seed, identity or item), position, item, identity)
        if (len(drawn) > count and one.rank >= drawn[-1].rank) or any(one.rank == other.rank for other in drawn):
            continue
        insort(drawn, one, key=lambda one: one.rank)
        del drawn[count + 1 :]
    if len(drawn) < count:
        of = f" of `{source}`" if source is not None else ""
        message = f"{count} examples are wanted for `{name}`, and {len(drawn)} different rows{of} can be one."
        help = None if read else "There are no rows at all."
        if first is not None:
            help = f"{passed_over:,} of {read:,} rows were passed over, first {first.file}: {first.message}"
        raise SpecError(Diagnostic("S412", message, help=help))
    return Examples(name, count, columns, tuple(drawn))


def _item(row: RawRow, items: Decl | None) -> Any:
    """A row as an example. Raises SpecError where it cannot be one."""
    if row.values is None:
        assert row.problem is not None
        raise SpecError(row.problem)
    if items is None or items.properties is None:
        return dict(row.values)
    values: dict[str, Any] = {}
    for name, decl in items.properties.items():
        if name in row.values:
            value = row.values[name]
            values[name] = typed(name, decl, value) if row.texts else value
    problem = check_input(items, values)
    if problem is not None:
        others = "" if items.properties.keys() <= row.values.keys() else f" (its columns: {_listed(row.values)})"
        raise SpecError(Diagnostic("S401", sentence(f"{problem}{others}")))
    return values


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name[:40]}`" for name in list(names)[:12])


def _identity(row: RawRow, columns: tuple[str, ...]) -> str | None:
    """What a row says in these columns, whatever kind of file it is from; None where it does not have them."""
    values: Mapping[str, Any] = row.values or {}
    if not columns or any(name not in values for name in columns):
        return None
    return digest([_text(values[name]) for name in columns])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)

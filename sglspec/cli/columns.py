"""Columns that the options of a batch name: they have to be there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sglspec.batches import RawRow
from sglspec.cli.options import wrong
from sglspec.diagnostics.suggest import nearest


class NamedColumns:
    """The columns that options name, and which of them no row has had so far."""

    def __init__(self, named: Iterable[tuple[str, str]]) -> None:
        """named: option and column."""
        self._named = list(named)
        self._missing = {column for _, column in self._named}
        self._known: tuple[str, ...] = ()

    def check(self, head: tuple[str, ...]) -> None:
        """Raises BadParameter for a column that is not in the head of the file."""
        for option, column in self._named:
            if column not in head:
                raise wrong(_message(column, head), option)

    def watched(self, rows: Iterator[RawRow]) -> Iterator[RawRow]:
        """The same rows, looked at as they go by."""
        for row in rows:
            if row.values is not None and self._missing:
                self._known = self._known or tuple(row.values)
                self._missing.difference_update(row.values)
            yield row

    def warnings(self) -> Iterator[str]:
        """For columns that no row had, if there were rows."""
        for option, column in self._named if self._known else ():
            if column in self._missing:
                yield f"{option}: {_message(column, self._known)}"


def _message(column: str, known: tuple[str, ...]) -> str:
    close = nearest(column, known)
    more = f"Did you mean `{close}`?" if close else f"There is: {', '.join(known[:12])}."
    return f"No row has a column `{column}`. {more}"


__all__ = ["NamedColumns"]

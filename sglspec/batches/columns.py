"""From a row to the inputs of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sglspec.batches.fewshot import Examples, draw
from sglspec.batches.rows import RawRow, typed
from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.document.model import Decl


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column is which input: `mapped` by name of the input; any other input is the column of its own name.
    `kept`: columns that go into the output as they are. `examples`: of an input that is filled with other rows."""

    inputs: Mapping[str, Decl]
    bound: Mapping[str, Any] = field(default_factory=dict[str, Any])
    mapped: Mapping[str, str] = field(default_factory=dict[str, str])
    kept: tuple[str, ...] = ()
    examples: Examples | None = None

    def with_examples(
        self, name: str, count: int, rows: Iterable[RawRow], seed: int, source: str | None = None
    ) -> Columns:
        """The same, and the input `name` filled with `count` of these rows; see `fewshot.draw`.

        Raises SpecError: S403 for a name that is no input, S410 for one that has a value already, S412.
        """
        if name not in self.inputs:
            raise SpecError(Diagnostic("S403", f"The program has no input `{name}`."))
        if name in self.bound or name in self.mapped:
            raise SpecError(bound_twice(name))
        others = [one for one in self.inputs if one != name and one not in self.bound]
        columns = tuple(self.mapped.get(one, one) for one in others)
        return replace(self, examples=draw(name, count, self.inputs[name], rows, columns, seed, source))

    def inputs_of(self, row: RawRow) -> dict[str, Any]:
        """The inputs of a row, those that are bound for all rows too. Columns that are no input are left out.

        Raises SpecError: S401 for a cell that is not of the input's type, S410 for one that is bound, S411 for a
        missing column, S412 where examples are missing.
        """
        if row.values is None:
            assert row.problem is not None
            raise SpecError(row.problem)
        given: dict[str, Any] = {}
        for name, decl in self.inputs.items():
            if self.examples is not None and name == self.examples.input:
                given[name] = self.examples.of(row)
                continue
            column = self.mapped.get(name, name)
            if column not in row.values:
                if name in self.mapped:
                    raise SpecError(Diagnostic("S411", f"The row has no column `{column}`."))
                continue
            if name in self.bound:
                raise SpecError(bound_twice(name))
            given[name] = typed(name, decl, row.values[column]) if row.texts else row.values[column]
        return {**self.bound, **given}

    def kept_of(self, row: RawRow) -> dict[str, Any]:
        """The columns to keep; null for one that the row does not have."""
        return {name: (row.values or {}).get(name) for name in self.kept}


def bound_twice(name: str) -> Diagnostic:
    return Diagnostic("S410", f"The input `{name}` is bound already, and given again.", help="Leave one of them out.")

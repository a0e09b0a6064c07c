"""From raw rows to rows with a key, and which of them a batch runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sglspec.analysis.program import Program
from sglspec.batches.columns import Columns
from sglspec.batches.digest import digest
from sglspec.batches.options import BatchOptions
from sglspec.batches.rows import RawRow
from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.document.model import Tool as ToolStep
from sglspec.document.nodes import to_python
from sglspec.tools import Tools

# no part of what a program does
_NO_PART = ("$schema", "description", "tests")


@dataclass(frozen=True, slots=True)
class Row:
    """A row that is ready to run. number: from 1; key: see `RowSource`; problem: why it cannot run; measured: columns
    that metrics read, which change nothing."""

    number: int
    key: str
    inputs: Mapping[str, Any]
    kept: Mapping[str, Any]
    problem: tuple[Diagnostic, ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def seed(self) -> int:
        """A seed of its own, the same at every start. Every reader of JSON gives 53 bits back exactly."""
        return int(self.key, 16) >> 75


class RowSource:
    """From raw rows to rows with a key: what a row says, and what is done with it, as one number.

    The key is a hash of the program, of where it runs (the model, its tools), the seed, the row's inputs and kept
    columns, and which of equal rows it is. A row with the same key has the same result. Keeps one number for each row
    that was read, to count equal ones.
    """

    def __init__(self, program: Program, columns: Columns, where: tuple[str, ...], options: BatchOptions) -> None:
        self._columns = columns
        self._options = options
        self._digest = digest(digest_of(program), where, options.seed)
        self._seen: Counter[int] = Counter()

    def rows(self, raw: Iterable[RawRow]) -> Iterator[Row]:
        """The rows that are to be run, in order."""
        part, parts = self._options.shard
        chosen = ((number, row) for number, row in enumerate(raw, 1) if parts == 1 or _content(row) % parts == part - 1)
        return (self._row(number, row) for number, row in islice(chosen, self._options.limit))

    def _row(self, number: int, raw: RawRow) -> Row:
        inputs: dict[str, Any] = {}
        problem: tuple[Diagnostic, ...] = ()
        try:
            inputs = self._columns.inputs_of(raw)
        except SpecError as error:
            problem = error.diagnostics
        kept = self._columns.kept_of(raw)
        content = dict(raw.values or {}) if problem else inputs
        key = digest(self._digest, content, kept, raw.source.hex())
        number_of_equals = self._seen[short := int(key[:16], 16)]
        self._seen[short] += 1
        metrics = self._options.metrics
        measured = {name: (raw.values or {}).get(name) for name in (metrics.columns if metrics is not None else ())}
        key = digest(key, number_of_equals) if number_of_equals else key
        return Row(number, key, inputs, kept, problem, measured)


def digest_of(program: Program) -> str:
    """A hash of everything in a document, and in those that it uses, that a run depends on: the same for other spacing
    and other remarks."""
    parts: list[Any] = []
    for one in program.all():
        tree: dict[str, Any] = to_python(one.document.root)
        parts.append([{k: v for k, v in tree.items() if k not in _NO_PART}, one.texts, one.schemas])
    return digest(*parts)


def tools_digest(program: Program, tools: Tools | None) -> str:
    """A hash of the tools that a program may call, its callees' too."""
    host = tools or Tools()
    names = {step.tool for _, step in program.expanded(calls=True) if isinstance(step, ToolStep)}
    found = {name: host.find(name) for name in names}
    return digest({name: tool.fingerprint() for name, tool in found.items() if tool is not None}) if names else ""


def _content(row: RawRow) -> int:
    """A number for what a row says: it stays in its part when others come and go."""
    return int(digest(dict(row.values or {}), row.source.hex()), 16)

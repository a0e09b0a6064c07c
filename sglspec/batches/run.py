"""Running rows: so many at a time, and each ends with one result whatever happens to it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sglspec.analysis.program import Program
from sglspec.backends.base import Backend, Usage
from sglspec.batches.rows import Columns, RawRow
from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.document.nodes import to_python
from sglspec.runtime.run import RunOptions, start

CONCURRENCY = 32
"""Rows at a time. The local engine lets in those that it has memory for, and more rows than this bring a CPU nothing:
a step then holds all the tokens that pay."""

_AHEAD = 4
"""Times the concurrency: so many rows may be finished and wait for an earlier one, when results come in order."""

Order = Literal["input", "completed"]
OnError = Literal["collect", "fail_fast"]
RowStatus = Literal["succeeded", "failed", "refused"]

# no part of what a program does
_NO_PART = ("$schema", "description", "tests")


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """concurrency: rows at a time; order: of the results; on_error: "fail_fast" ends the batch with the first row that
    does not succeed."""

    concurrency: int = CONCURRENCY
    order: Order = "input"
    on_error: OnError = "collect"


@dataclass(frozen=True, slots=True)
class Row:
    """A row that is ready to run. number: from 1; key: see `RowSource`; problem: why it cannot run."""

    number: int
    key: str
    inputs: Mapping[str, Any]
    kept: Mapping[str, Any]
    problem: tuple[Diagnostic, ...] = ()

    @property
    def seed(self) -> int:
        """A seed of its own, the same at every start. Every reader of JSON gives 53 bits back exactly."""
        return int(self.key, 16) >> 75


@dataclass(frozen=True, slots=True)
class RowResult:
    """status: "refused" when the row could not be read or its inputs do not fit. outputs and error: as in a run's
    result. columns: what was to be kept of the row. fault: what broke in sglspec itself, for a report."""

    row: int
    key: str
    status: RowStatus
    outputs: dict[str, Any]
    error: Diagnostic | None
    columns: dict[str, Any]
    seed: int
    usage: Usage
    fault: Exception | None = field(default=None, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The JSON face."""
        return {
            "row": self.row,
            "key": self.key,
            "status": self.status,
            "outputs": self.outputs,
            "error": None if self.error is None else self.error.as_dict(),
            **({"columns": self.columns} if self.columns else {}),
            "seed": self.seed,
            "usage": asdict(self.usage),
        }


class RowSource:
    """From raw rows to rows with a key: what a row says, and what is done with it, as one number.

    The key is a hash of the program, the model, the seed, the row's inputs and kept columns, and which of equal rows it
    is. A row with the same key has the same result. Keeps one number for each row that was read, to count equal ones.
    """

    def __init__(self, program: Program, columns: Columns, model: str, seed: int) -> None:
        self._columns = columns
        self._digest = _hash(digest_of(program), model, seed)
        self._seen: Counter[int] = Counter()

    def rows(self, raw: Iterable[RawRow]) -> Iterator[Row]:
        """The rows, in order."""
        for number, row in enumerate(raw, 1):
            yield self._row(number, row)

    def _row(self, number: int, raw: RawRow) -> Row:
        inputs: dict[str, Any] = {}
        problem: tuple[Diagnostic, ...] = ()
        try:
            inputs = self._columns.inputs_of(raw)
        except SpecError as error:
            problem = error.diagnostics
        kept = self._columns.kept_of(raw)
        content = dict(raw.values or {}) if problem else inputs
        key = _hash(self._digest, content, kept, raw.source.hex())
        number_of_equals = self._seen[short := int(key[:16], 16)]
        self._seen[short] += 1
        return Row(number, _hash(key, number_of_equals) if number_of_equals else key, inputs, kept, problem)


def digest_of(program: Program) -> str:
    """A hash of everything in a document that a run depends on: the same for other spacing and other remarks."""
    tree: dict[str, Any] = to_python(program.document.root)
    return _hash({name: value for name, value in tree.items() if name not in _NO_PART})


def _hash(*parts: Any) -> str:
    """128 bits in hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


async def run_rows(
    program: Program, rows: Iterable[Row], backend: Backend, options: BatchOptions = BatchOptions()
) -> AsyncGenerator[RowResult, None]:
    """Run rows and give their results, in order or as they come. Never raises for what a row did.

    Rows are read when there is a place for them, so neither rows nor results pile up. Closing the generator, or
    cancelling who waits for it, cancels the rows that run.
    """
    source = iter(rows)
    running: set[asyncio.Task[tuple[int, RowResult]]] = set()
    ready: dict[int, RowResult] = {}
    started = given = 0
    more = True
    window = options.concurrency * _AHEAD
    try:
        while True:
            while more and len(running) < options.concurrency and started - given < window:
                row = next(source, None)
                if row is None:
                    more = False
                else:
                    running.add(asyncio.create_task(_numbered(started, program, row, backend)))
                    started += 1
            if not running and not ready:
                return
            if running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ready |= dict(task.result() for task in done)
            broken = options.on_error == "fail_fast" and any(one.status != "succeeded" for one in ready.values())
            if broken:
                more = False
                await _cancel(running)
                running = set()
            for place in sorted(ready):
                if options.order == "input" and place != given and not broken:
                    break
                given += 1
                yield ready.pop(place)
    finally:
        await _cancel(running)


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _numbered(place: int, program: Program, row: Row, backend: Backend) -> tuple[int, RowResult]:
    return place, await _run(program, row, backend)


async def _run(program: Program, row: Row, backend: Backend) -> RowResult:
    problem, kept = row.problem, dict(row.kept)
    if not problem:
        try:
            run = start(program, row.inputs, backend, RunOptions(row.seed))
        except SpecError as error:
            problem = error.diagnostics
        else:
            result = await run.wait()
            if result.status == "cancelled":  # only ever by us; its result is nobody's
                raise asyncio.CancelledError
            face = (result.status, result.outputs, result.error)
            return RowResult(row.number, row.key, *face, kept, row.seed, result.usage, run.fault)
    return RowResult(row.number, row.key, "refused", {}, problem[0], kept, row.seed, Usage())

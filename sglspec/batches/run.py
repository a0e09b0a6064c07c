"""Running rows: so many at a time, and each ends with one result whatever happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sglspec.analysis.program import Program
from sglspec.backends.base import Backend, Usage
from sglspec.batches.memory import Need, Room
from sglspec.batches.options import BatchOptions
from sglspec.batches.source import Row
from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.runtime.run import RunOptions, start
from sglspec.tools import Tools

_AHEAD = 4
"""Times the concurrency: so many rows may be finished and wait for an earlier one, when results come in order."""

RowStatus = Literal["succeeded", "failed", "refused"]


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


class RowRunner:
    """Runs the rows of one batch. failed: rows that did not succeed; stopped: there were more than are allowed."""

    def __init__(self, program: Program, backend: Backend, options: BatchOptions, tools: Tools | None = None) -> None:
        self._program = program
        self._backend = backend
        self._options = options
        self._tools = tools
        self.failed = 0
        self.stopped = False

    async def run(
        self, rows: Iterable[Row], failed_before: Callable[[], int] = lambda: 0
    ) -> AsyncGenerator[RowResult, None]:
        """Run rows and give their results, in order or as they come. Never raises for what a row did.

        Rows are read when there is a place for them, so neither rows nor results pile up. Closing the generator, or
        cancelling who waits for it, cancels the rows that run. failed_before: failed rows that count beside these.
        """
        options, source = self._options, iter(rows)
        running: set[asyncio.Task[tuple[int, RowResult]]] = set()
        room = Room(self._program, self._backend)
        needs: dict[int, Need] = {}
        row: Row | None = None
        ready: dict[int, RowResult] = {}
        started = given = 0
        more = True
        window = options.concurrency * _AHEAD
        try:
            while True:
                while more and len(running) < options.concurrency and started - given < window:
                    if row is None:
                        row = next(source, None)
                        needs[started] = room.need(row) if row is not None else Need()
                    if row is None or self._exceeded(failed_before()):
                        more = False
                        continue
                    if running and not room.has(needs.values()):
                        break  # it waits for room
                    running.add(asyncio.create_task(self._numbered(started, row)))
                    row = None
                    started += 1
                if running:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    found = dict(task.result() for task in done)
                    for place, result in found.items():
                        del needs[place]
                        room.ended(result.usage)
                    self.failed += sum(one.status != "succeeded" for one in found.values())
                    ready |= found
                if self._exceeded(failed_before()):
                    self.stopped, more = True, False
                    await _cancel(running)
                    running = set()
                for place in sorted(ready):
                    if options.order == "input" and place != given and not self.stopped:
                        break
                    given += 1
                    yield ready.pop(place)
                if not more and not running:
                    return
        finally:
            await _cancel(running)

    def _exceeded(self, failed_before: int) -> bool:
        allowed = self._options.errors_allowed
        return allowed is not None and self.failed + failed_before > allowed

    async def _numbered(self, place: int, row: Row) -> tuple[int, RowResult]:
        return place, await self._run(row)

    async def _run(self, row: Row) -> RowResult:
        problem, kept = row.problem, dict(row.kept)
        if not problem:
            try:
                run = start(self._program, row.inputs, self._backend, RunOptions(row.seed, tools=self._tools))
            except SpecError as error:
                problem = error.diagnostics
            else:
                result = await run.wait()
                if result.status == "cancelled":  # only ever by us; its result is nobody's
                    raise asyncio.CancelledError
                face = (result.status, result.outputs, result.error)
                return RowResult(row.number, row.key, *face, kept, row.seed, result.usage, run.fault)
        return RowResult(row.number, row.key, "refused", {}, problem[0], kept, row.seed, Usage())


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)

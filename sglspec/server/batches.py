"""Running batches: one at a time in each process, so many rows at once that single runs still find slots."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from sglspec.analysis.inputs import bind_inputs
from sglspec.batches import BatchOptions, Columns, RawRow
from sglspec.batches.source import RowSource
from sglspec.diagnostics import Diagnostic
from sglspec.server.problems import Problem, to_json
from sglspec.server.programs import Checked, Programs
from sglspec.server.runs import Order, Runs
from sglspec.server.storage import batches as table
from sglspec.server.storage.batches import Batch, BatchRow
from sglspec.server.storage.database import Database
from sglspec.server.storage.statements import new_id

MAX_ROWS = 100_000
LOOK_SECONDS = 1.0
"""Between looks whether the batch shall end, and whether another process left one."""
_PAGE = 256

log = logging.getLogger("sglspec.server")


class Batches:
    """`create` stores one; the worker takes the oldest that nobody works on, also those of dead processes."""

    def __init__(self, database: Database, programs: Programs, runs: Runs, concurrency: int) -> None:
        self._database = database
        self._programs = programs
        self._runs = runs
        self._concurrency = concurrency
        self._news = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work. Done by the first batch, if not before."""
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())

    async def create(self, program: Checked, rows: list[BatchRow], batch: str, seed: int, principal: str) -> None:
        """Store a batch; its rows are from `read_rows`."""
        await self._runs.start()
        self.start()
        made = Batch(
            batch, principal, "queued", program.document.digest, program.name, program.version, str(seed), None, False,
            time.time(), None, None, len(rows), None,
        )  # fmt: skip
        await self._database.write(partial(table.create, batch=made, rows=rows, document=program.document))
        self._news.set()

    async def get(self, batch: str) -> tuple[Batch, dict[str, int]]:
        """A batch and how many of its rows have which status. Raises Problem (404)."""
        found = await self._database.read(partial(table.get, batch=batch))
        if found is None:
            raise Problem(404, "not-found", "There is no such batch.")
        return found, await self._database.read(partial(table.counts, batch=batch))

    async def cancel(self, batch: str) -> None:
        await self._database.write(partial(table.ask_cancel, batch=batch))
        self._news.set()

    async def close(self) -> None:
        """Stop working; whoever comes next goes on with the rows that are left."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait({self._worker})
            await self._database.write(partial(table.let_go, owner=self._runs.owner))

    async def _work(self) -> None:
        while not self._database.closed:
            try:
                if not self._runs.closing and (batch := await self._claim()) is not None:
                    await self._run(batch)
                    continue
            except Exception:
                log.exception("working on batches failed")
            self._news.clear()
            await self._pause()

    async def _claim(self) -> Batch | None:
        return await self._database.write(partial(table.claim, owner=self._runs.owner))

    async def _pause(self) -> None:
        """Until there is news, or for a while."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _run(self, batch: Batch) -> None:
        try:
            program = await self._programs.stored(batch.digest, batch.program, batch.version)
        except Problem as problem:
            error = (problem.errors or (Diagnostic("S719", "Its program is gone."),))[0]
            await self._end(batch, "failed", to_json(error.as_dict()).decode())
            return
        running: set[asyncio.Task[None]] = set()
        try:
            await self._rows(batch, program, running)
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
        if await self._database.read(partial(table.cancelled, batch=batch.id)):
            await self._end(batch, "cancelled")
        elif not await self._database.read(partial(table.pending, batch=batch.id, after=0, limit=1)):
            await self._end(batch, "succeeded")

    async def _rows(self, batch: Batch, program: Checked, running: set[asyncio.Task[None]]) -> None:
        """Run what is left. Ends early when somebody asks for that."""
        last = 0
        waiting: list[BatchRow] = []
        more = True
        looked = 0.0
        while not self._runs.closing and (more or waiting or running):
            if self._news.is_set() or time.monotonic() - looked > LOOK_SECONDS:
                self._news.clear()
                looked = time.monotonic()
                if await self._database.read(partial(table.cancelled, batch=batch.id)):
                    return
            if more and not waiting:
                job = partial(table.pending, batch=batch.id, after=last, limit=_PAGE)
                waiting = await self._database.read(job)
                more = bool(waiting)
                last = waiting[-1].row if waiting else last
            while waiting and len(running) < self._concurrency:
                running.add(asyncio.create_task(self._row(batch, program, waiting.pop(0))))
            if running:
                done, _ = await asyncio.wait(running, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                running -= done
                for task in done:
                    task.result()

    async def _row(self, batch: Batch, program: Checked, row: BatchRow) -> None:
        """Run a row and note its result. When this is cancelled, the row is left as it was."""
        inputs, problems = bind_inputs(program.program.spec, json.loads(row.inputs or "{}"))
        if errors := [problem for problem in problems if problem.severity == "error"]:
            await self._note(row, "refused", None, refusal(errors[0]))
            return
        order = Order(program, inputs, int(row.seed), mode="batch", detach=True, principal=batch.principal)
        making = asyncio.ensure_future(self._runs.create(order))
        try:
            run, _ = await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait({making})  # what is stored has to be ended, too
            if making.exception() is None and (live := self._runs.find(making.result()[0])) is not None:
                live.stop("cancelled", "Its batch was stopped.")
            raise
        live = self._runs.find(run)
        if live is None:
            raise RuntimeError("a run that was just created is not there")
        try:
            outcome = await live.finished()
        except asyncio.CancelledError:
            live.stop("cancelled", "Its batch was stopped.")
            raise
        face = json.loads(outcome.result)
        kept = {key: face[key] for key in ("outputs", "error", "seed", "usage")}
        if outcome.state != "cancelled":  # by whoever stops the batch, or by its id: then the row may run again
            await self._note(row, outcome.state, run, kept)
        elif not self._runs.closing:
            await self._note(row, "cancelled", run, kept)

    async def _note(self, row: BatchRow, status: str, run: str | None, result: dict[str, object]) -> None:
        text = to_json(result).decode()
        job = partial(table.row_done, owner=self._runs.owner, row=row, status=status, run=run, result=text)
        await self._database.write(job)

    async def _end(self, batch: Batch, state: table.State, error: str | None = None) -> None:
        try:
            job = partial(table.finish, batch=batch.id, owner=self._runs.owner, state=state, error=error)
            await self._database.write(job)
        except SQLAlchemyError:
            log.exception("the end of batch %s cannot be stored", batch.id)


def read_rows(batch: str, program: Checked, raw: Iterable[RawRow], model: str, seed: int) -> list[BatchRow]:
    """The rows of a batch, each with a seed of its own; those that cannot be read are done already."""
    kept = () if "custom_id" in program.program.inputs else ("custom_id",)
    columns = Columns(program.program.inputs, kept=kept)
    found: list[BatchRow] = []
    for row in RowSource(program.program, columns, (model,), BatchOptions(seed=seed)).rows(raw):
        if len(found) == MAX_ROWS:
            raise Problem(413, "too-large", f"A batch may have {MAX_ROWS:,} rows.")
        name = row.kept.get("custom_id")
        custom_id = name if name is None or isinstance(name, str) else to_json(name).decode()
        if custom_id is not None:
            custom_id = custom_id.replace("\0", "�").encode("utf-8", "replace").decode()
        made = BatchRow(batch, row.number, custom_id, to_json(dict(row.inputs)).decode(), str(row.seed))
        if row.problem:
            result = to_json(refusal(row.problem[0])).decode()
            made = BatchRow(batch, row.number, custom_id, None, str(row.seed), None, "refused", result)
        found.append(made)
    return found


def refusal(problem: Diagnostic) -> dict[str, object]:
    """The result of a row that could not run."""
    return {"outputs": {}, "error": problem.as_dict(), "seed": None, "usage": None}


def make_id() -> str:
    return new_id("batch")


__all__ = ["MAX_ROWS", "Batches", "make_id", "read_rows"]

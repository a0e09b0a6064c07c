"""All runs of this process, and what has to be done for them from time to time."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from sglspec.diagnostics import Diagnostic
from sglspec.runtime.limits import Bounds
from sglspec.runtime.run import RunOptions
from sglspec.server.backend import BackendSlot
from sglspec.server.problems import Problem, to_json
from sglspec.server.programs import Programs
from sglspec.server.runs.live import LiveRun, Order
from sglspec.server.runs.slots import Slots
from sglspec.server.storage import runs as table
from sglspec.server.storage.batches import prune as prune_batches
from sglspec.server.storage.database import Database, Job
from sglspec.server.storage.runs import Chunk, Ending, Once, RunRow
from sglspec.server.storage.statements import new_id
from sglspec.tools import Tools

FLUSH_SECONDS = 0.25
"""How old events may be that are not in the store yet."""
LOOK_SECONDS = 1.0
"""How often to look for runs of ours that were cancelled through another process."""
RENEW_SECONDS = 5.0
LEASE_SECONDS = 20.0
"""A process that did not renew its lease for so long is taken for dead."""
PRUNE_SECONDS = 60.0

_TRIES = 5
LOST = Diagnostic("S719", "The server that ran it has ended.", help="Post it again.")
NOT_BEGUN = Diagnostic("S719", "The store failed when it was to begin.", help="Post it again.")

log = logging.getLogger("sglspec.server")


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is remembered of runs that have ended: for so long, and so many."""

    seconds: float = 7 * 24 * 3600.0
    runs: int = 10_000


class Runs:
    """Creates runs, knows those that live here, and keeps the store in step with them."""

    def __init__(
        self,
        database: Database,
        programs: Programs,
        backend: BackendSlot,
        slots: Slots,
        bounds: Bounds,
        tools: Tools,
        keeping: Keeping = Keeping(),
    ) -> None:
        self.slots = slots
        self.closing = False
        self.owner = f"proc_{secrets.token_hex(12)}"
        self._database = database
        self._programs = programs
        self._backend = backend
        self._bounds = bounds
        self._tools = tools
        self._keeping = keeping
        self._live: dict[str, LiveRun] = {}
        self._making: set[str] = set()
        self._endings: dict[str, Callable[[], Job[bool]]] = {}
        """Of runs that ended while the store took nothing."""
        self._saving = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._renewed: float | None = None
        self.ended: Callable[[LiveRun], None] = lambda _: None
        """Told of every run of this process that ended."""

    @property
    def unwritten_seconds(self) -> float:
        """How long the store has taken nothing; 0 before it is used at all."""
        return 0.0 if self._renewed is None else time.monotonic() - self._renewed

    def __len__(self) -> int:
        return len(self._live)

    @property
    def awaited(self) -> int:
        """Runs that are worth waiting for before this process ends: rows of a batch can be run again."""
        return sum(live.order.mode != "batch" for live in self._live.values())

    def find(self, run: str) -> LiveRun | None:
        """A run that lives in this process."""
        return self._live.get(run)

    async def create(self, order: Order, once: Once | None = None) -> tuple[str, bool]:
        """Store a run and put it into the queue. Its id, and whether it is that of an earlier request.

        Raises OtherRequest.
        """
        await self.start()
        row = self._row(order)
        job = partial(table.create, row=row, document=order.program.document, once=once)
        self._making.add(row.id)
        try:
            made = await self._database.write(job)
            if made == row.id:
                self._enter(row.id, order)
        finally:
            self._making.discard(row.id)
        return made, made != row.id

    async def row(self, run: str) -> RunRow:
        """Raises Problem (404)."""
        found = await self._database.read(lambda connection: table.get(connection, run))
        if found is None:
            raise Problem(404, "not-found", "There is no such run.")
        return found

    async def cancel(self, run: str) -> None:
        """Ask a run to end, wherever it lives."""
        live = self.find(run)
        if live is not None:
            live.stop("cancelled", "Somebody asked for that.")
        await self._database.write(lambda connection: table.ask_cancel(connection, run))

    def cancel_all(self, reason: str = "The server is stopping.") -> None:
        """End what runs, and what somebody waits for; the rest, and what was not begun of a batch, is left to whoever
        opens the store next."""
        self.closing = True
        self.slots.stop()
        for live in list(self._live.values()):
            if self._database.lasting and live.waits_for_nobody:
                live.feed.leave()
            else:
                live.stop("cancelled", reason)

    async def start(self) -> None:
        """Begin to keep the store in step. Done by the first run, if not before."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())
            await self._renew()

    async def close(self) -> None:
        """End everything: what runs is cancelled, what waits for nobody is left for whoever comes next."""
        self.closing = True
        self.slots.stop()
        for live in list(self._live.values()):
            if live.waits_for_nobody:
                live.feed.leave()
            else:
                live.stop("cancelled", "The server is stopping.")
        going = [live.task for live in self._live.values() if not live.waits_for_nobody]
        if going:
            await asyncio.wait(going)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        for live in list(self._live.values()):
            live.task.cancel()
        if self._keeper is not None:
            await self._save()
            await self._save_endings()
            await self._database.write(lambda connection: table.let_go(connection, self.owner))

    # -- the steps of a run, written down ------------------------------------------------------------------------

    async def begin(self, run: str) -> bool:
        """See `Keeper`."""
        return await self._database.write(lambda connection: table.begin(connection, run, self.owner))

    async def finish(self, live: LiveRun, ending: Callable[[Chunk], Ending]) -> bool:
        """See `Keeper`. A store that fails is tried again for some seconds; then the client gets its answer, and the
        store the end of the run as soon as it takes it."""

        def job() -> Job[bool]:
            chunk = live.feed.unsaved()
            assert chunk is not None
            return partial(table.finish, owner=self.owner, ending=ending(chunk))

        for wait in range(_TRIES):
            try:
                async with self._saving:
                    return await self._database.write(job())
            except SQLAlchemyError:
                log.exception("the end of run %s cannot be stored", live.id)
                await asyncio.sleep(wait)
        self._endings[live.id] = job
        return False

    # -- from time to time ---------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        due = {self._look: 0.0, self._renew: 0.0, self._save_endings: 0.0, self._take_over: 0.0, self._prune: 0.0}
        every = {
            self._look: LOOK_SECONDS,
            self._save_endings: LOOK_SECONDS,
            self._renew: RENEW_SECONDS,
            self._take_over: RENEW_SECONDS,
        }
        while not self._database.closed:
            await asyncio.sleep(FLUSH_SECONDS)
            now = time.monotonic()
            jobs = [self._save, *(job for job, when in due.items() if when <= now)]
            for job in jobs:
                if self._database.closed:
                    return
                if job != self._save:
                    due[job] = now + every.get(job, PRUNE_SECONDS)
                try:
                    await job()
                except SQLAlchemyError:
                    log.exception("the store fails")
                except Exception:
                    log.exception("keeping the store in step failed")

    async def _save(self) -> None:
        """Write the new events of all runs down."""
        async with self._saving:
            lives = [live for live in self._live.values() if live.outcome is None]
            chunks = [chunk for live in lives if (chunk := live.feed.unsaved()) is not None]
            if not chunks:
                return
            await self._database.write(lambda connection: table.append(connection, self.owner, chunks))
            for chunk in chunks:
                if (live := self._live.get(chunk.run)) is not None:
                    live.feed.saved(chunk.last)

    async def _save_endings(self) -> None:
        """Write down what `finish` could not."""
        for run, job in list(self._endings.items()):
            await self._database.write(job())
            del self._endings[run]

    async def _look(self) -> None:
        if self._live:
            for run, state in await self._database.read(lambda connection: table.to_cancel(connection, self.owner)):
                if (live := self.find(run)) is not None:
                    live.stop("expired" if state == "expired" else "cancelled", "Somebody asked for that.")

    async def _renew(self) -> None:
        expires = time.time() + LEASE_SECONDS
        await self._database.write(lambda connection: table.renew(connection, self.owner, expires))
        self._renewed = time.monotonic()

    async def _take_over(self) -> None:
        """Go on with what a dead process left waiting, and say of the rest that it is lost."""
        here = {*self._live, *self._making, *self._endings}
        waiting, lost = await self._database.write(partial(table.take_over, owner=self.owner, here=here))
        for row in waiting:
            await self._recover(row)
        for row in lost:
            await self._write_off(row)

    async def _recover(self, row: RunRow) -> None:
        try:
            program = await self._programs.stored(row.digest, row.program, row.version)
            request = json.loads(row.request or "{}")
        except (Problem, ValueError):
            log.exception("run %s cannot be taken over", row.id)
            await self._write_off(row)
            return
        order = Order(
            program, request["inputs"], int(row.seed), request["trace"], row.mode, True, row.deadline, row.principal
        )
        self._enter(row.id, order)

    async def _write_off(self, row: RunRow) -> None:
        state = "failed" if row.state == "running" else "aborted"
        reason = (NOT_BEGUN if row.owner == self.owner else LOST).as_dict()

        def job(connection: Any) -> None:
            seq = table.last_event(connection, row.id) + 1
            event = {"run_id": row.id, "seq": seq, "type": f"run.{state}", "time": round(time.time() - row.created, 4)}
            event |= {"branch": "", "outputs": {}, "usage": None, "error": reason}
            chunk = Chunk(row.id, seq, seq, to_json(event).decode())
            error = to_json(reason).decode()
            table.finish(connection, self.owner, Ending(state, chunk, error=error))

        await self._database.write(job)

    async def _prune(self) -> None:
        older = time.time() - self._keeping.seconds
        while await self._database.write(lambda connection: table.prune(connection, older, self._keeping.runs)):
            pass
        await self._database.write(lambda connection: prune_batches(connection, older))

    # -- making runs ---------------------------------------------------------------------------------------------

    def _row(self, order: Order) -> RunRow:
        program = order.program
        request = None
        if order.mode == "async":
            request = to_json({"inputs": order.inputs, "trace": order.trace}).decode()
        return RunRow(
            new_id("run"), order.principal, order.mode, "queued", program.document.digest, program.name,
            program.version, str(order.seed), request, self.owner, None, order.deadline, time.time(),
        )  # fmt: skip

    def _enter(self, run: str, order: Order) -> None:
        # host bounds always: a program's own `limits` may lower them, never raise them
        options = RunOptions(seed=order.seed, bounds=self._bounds, trace=order.trace, tools=self._tools)
        live = LiveRun(run, order, self.slots, self._backend.get, options, self)
        self._live[run] = live
        live.task.add_done_callback(lambda _: self._gone(live))

    def _gone(self, live: LiveRun) -> None:
        self._live.pop(live.id, None)
        self.ended(live)


__all__ = ["LEASE_SECONDS", "Keeping", "Runs"]

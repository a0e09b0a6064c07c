"""What the routers share. One per application."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sglspec.runtime.limits import Bounds
from sglspec.server.access.quota import Running
from sglspec.server.backend import BackendSlot
from sglspec.server.batches import Batches
from sglspec.server.metrics import Metrics
from sglspec.server.programs import Programs
from sglspec.server.runs import Keeping, LiveRun, Runs
from sglspec.server.runs.slots import Slots
from sglspec.server.storage.database import Database
from sglspec.tools import Tools

MAX_RUNS = 32
MAX_WAITING = 64
PING_SECONDS = 15.0
STALL_SECONDS = 60.0
"""A step of a large model on a slow machine takes seconds; one that takes a minute does not come back."""


@dataclass(frozen=True, slots=True)
class Limits:
    """runs: at once; waiting: for their turn; bounds: no run may do more, whatever its program says; ping_seconds:
    between comments in a stream without events; keeping: what is remembered of runs that have ended; stall_seconds: an
    engine that does nothing for so long although there is something to do is taken for stuck."""

    runs: int = MAX_RUNS
    waiting: int = MAX_WAITING
    bounds: Bounds = field(default_factory=Bounds)
    ping_seconds: float = PING_SECONDS
    keeping: Keeping = field(default_factory=Keeping)
    stall_seconds: float = STALL_SECONDS


class Service:
    """The parts, made once, in the order in which they need each other."""

    def __init__(self, backend: BackendSlot, database: Database, limits: Limits, tools: Tools) -> None:
        self.backend = backend
        self.database = database
        self.limits = limits
        self.tools = tools
        self.metrics = Metrics()
        self.stopping, self.ending = asyncio.Event(), asyncio.Event()
        self.slots = Slots(limits.runs, limits.waiting)
        self.running = Running()
        self.programs = Programs(database, tools)
        self.runs = Runs(database, self.programs, backend, self.slots, limits.bounds, tools, limits.keeping)
        self.runs.ended = self._ended
        self.batches = Batches(database, self.programs, self.runs, max(1, limits.runs // 2))

    def stop_admitting(self) -> None:
        """Take no new runs, and no more of bodies that are on their way in."""
        self.slots.close()
        self.stopping.set()

    def end_runs(self) -> None:
        """Cancel what runs; what waits for nobody stays in the store for whoever comes next."""
        self.runs.cancel_all()
        self.ending.set()

    def _ended(self, live: LiveRun) -> None:
        if live.outcome is not None:
            self.metrics.run_ended(live.outcome.state, live.feed.age, live.waited)

    async def start(self) -> None:
        """Begin to keep the store in step, and go on with what other processes left."""
        await self.runs.start()
        self.batches.start()

    async def close(self) -> None:
        self.runs.closing = True
        await self.batches.close()
        await self.runs.close()
        await self.backend.close()
        await self.database.close()


__all__ = ["MAX_RUNS", "MAX_WAITING", "PING_SECONDS", "Limits", "Service"]

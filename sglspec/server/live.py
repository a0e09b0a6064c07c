"""Runs in progress: how many there may be, and how they end when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager

from starlette.types import Receive

from sglspec.diagnostics import Diagnostic
from sglspec.runtime.result import Result
from sglspec.runtime.run import Run
from sglspec.server.problems import Problem

FAULT = Diagnostic("S799", "A fault in sglspec ended the run. The server's log says more.")

log = logging.getLogger("sglspec.server")


class LiveRun:
    """A run and the task that waits for it."""

    def __init__(self, run: Run, ended: Callable[[LiveRun], None]) -> None:
        self.id = f"run_{secrets.token_hex(12)}"
        self.run = run
        self.task: asyncio.Task[Result] = asyncio.create_task(run.wait())
        self.task.add_done_callback(self._end)
        self._ended = ended
        self._cancelled = False

    def cancel(self) -> None:
        """Ask the run to stop, once: a second request would interrupt its tidying up."""
        if not self.task.done() and not self._cancelled:
            self._cancelled = True
            self.run.cancel()

    async def stop(self) -> None:
        """Cancel the run if it is still going, and wait until it has tidied up."""
        self.cancel()
        await asyncio.wait({self.task})

    @property
    def fault(self) -> BaseException | None:
        """The exception of ours that ended the run, if one did. Its text is for the log, not for clients."""
        if not self.task.done() or self.task.cancelled():
            return self.run.fault
        return self.run.fault or self.task.exception()

    def _end(self, task: asyncio.Task[Result]) -> None:
        self._ended(self)
        if self.fault is not None:
            log.error("run %s broke", self.id, exc_info=self.fault)
        # a run that broke while it ended, or was cancelled before it began, has not written its last event
        if not self.run.log.closed:
            kind = "run.cancelled" if task.cancelled() else "run.failed"
            self.run.log.add(kind, error=None if task.cancelled() else FAULT.as_dict())


class LiveRuns:
    """All runs of the server, and the requests on their way to become one."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._waiting = 0
        self._runs: set[LiveRun] = set()

    def __len__(self) -> int:
        return len(self._runs)

    @contextmanager
    def place(self) -> Generator[None, None, None]:
        """Holds a place while a program is checked and its backend opened. Raises Problem (503) when all are taken."""
        if self._waiting + len(self._runs) >= self.most:
            detail = f"This server runs {self.most} programs at once. Try again later."
            raise Problem(503, "busy", detail, headers={"Retry-After": "1"})
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def add(self, run: Run) -> LiveRun:
        live = LiveRun(run, self._runs.discard)
        self._runs.add(live)
        return live

    def cancel_all(self) -> None:
        for live in self._runs:
            live.cancel()


async def client_gone(receive: Receive) -> None:
    """Return when the client has closed the connection. The body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


__all__ = ["FAULT", "LiveRun", "LiveRuns", "client_gone"]

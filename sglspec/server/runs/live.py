"""One run in this process, from the queue to its terminal event."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from sglspec.backends.base import Backend, TraceToken
from sglspec.diagnostics import Diagnostic
from sglspec.runtime.events import TERMINAL as RUNTIME_TERMINAL
from sglspec.runtime.result import Result
from sglspec.runtime.run import Run, RunOptions, start
from sglspec.server.problems import to_json
from sglspec.server.programs import Checked
from sglspec.server.runs.feed import Feed, merged
from sglspec.server.runs.slots import Slots
from sglspec.server.storage.runs import Chunk, Ending, Mode, State

FAULT = Diagnostic("S799", "A fault in sglspec ended the run. The server's log says more.")
FRAME_SECONDS = 0.05
"""What comes within this time goes out together: 20 frames a second are as good as 200 to a reader."""

log = logging.getLogger("sglspec.server")


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run. inputs: checked; detach: whether it goes on when nobody waits for it; deadline: in seconds
    since 1970; principal: who asked."""

    program: Checked
    inputs: dict[str, Any]
    seed: int
    trace: bool = False
    mode: Mode = "sync"
    detach: bool = False
    deadline: float | None = None
    principal: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. result: JSON, with `run_id`; fault: what broke in sglspec, for the log."""

    state: State
    result: bytes
    fault: BaseException | None = None


class Keeper(Protocol):
    """Where the steps of a run are written down."""

    async def begin(self, run: str) -> bool:
        """queued → running. False when the run is not ours to begin."""
        ...

    async def finish(self, live: LiveRun, ending: Callable[[Chunk], Ending]) -> bool:
        """Save the rest of the events, and how the run ended. False when it had ended already, or is not ours."""
        ...


class LiveRun:
    """Begins to wait for its turn when it is made. `task` ends after the terminal event was written."""

    def __init__(
        self, id: str, order: Order, slots: Slots, backend: Callable[[], Any], options: RunOptions, keeper: Keeper
    ) -> None:
        self.id = id
        self.order = order
        self.feed = Feed(id)
        self.outcome: Outcome | None = None
        self.waited: float | None = None
        """Seconds that it waited for its turn."""
        self._slots = slots
        self._backend = backend
        self._options = options
        self._keeper = keeper
        self._run: Run | None = None
        self._wanted: State | None = None
        self._reason = ""
        self._watchers = 0
        self._turn = slots.turn()
        self.feed.add("run.queued", data={"position": slots.position(self._turn)})
        self._alarm: asyncio.TimerHandle | None = None
        if order.deadline is not None:
            left = max(order.deadline - time.time(), 0.0)
            self._alarm = asyncio.get_running_loop().call_later(left, self.stop, "expired", "Its deadline passed.")
        self.task: asyncio.Task[None] = asyncio.create_task(self._live())

    @property
    def begun(self) -> bool:
        return self._run is not None

    @property
    def waits_for_nobody(self) -> bool:
        """Whether it is in the queue, and another process may run it as well."""
        return self.order.mode == "async" and not self.begun

    def stop(self, state: State = "cancelled", reason: str = "") -> None:
        """Ask the run to end, once: a second request would interrupt its tidying up. reason: a sentence."""
        if self._wanted is not None or self.task.done():
            return
        self._wanted, self._reason = state, reason
        if self._run is not None:
            self._run.cancel()
        else:
            self._turn.cancel()

    @contextmanager
    def watched(self) -> Generator[None, None, None]:
        """While somebody waits for the run. When the last one leaves before the end, it is cancelled."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1
            if self._watchers == 0 and not self.order.detach:
                self.stop("cancelled", "The client left.")

    async def finished(self) -> Outcome:
        await asyncio.wait({self.task})
        if self.outcome is None:
            self.task.result()
            raise asyncio.CancelledError
        return self.outcome

    async def _live(self) -> None:
        try:
            await self._turn
        except asyncio.CancelledError:
            if self._wanted is None:  # the loop ends, not the run
                raise
            await self._end_unbegun()
            return
        try:
            await self._have_turn()
        except Exception as fault:
            log.exception("run %s broke", self.id)
            await self._write("failed", self._empty() | {"error": FAULT.as_dict()}, None, fault)
        finally:
            self._slots.leave()
            if self._alarm is not None:
                self._alarm.cancel()

    async def _have_turn(self) -> None:
        backend: Backend = await self._backend()
        if self.feed.left:  # its turn came when the process was about to end: it stays in the queue of the store
            return
        if self._wanted is not None or not await self._keeper.begin(self.id) or self._wanted is not None:
            self._wanted = self._wanted or "cancelled"
            await self._end_unbegun()
            return
        begun = self.waited = self.feed.age
        self._run = start(self.order.program.program, self.order.inputs, backend, self._options)
        result = asyncio.create_task(self._run.wait())
        try:
            await self._record(self._run, begun, result)
            await self._end(self._run, result)
        finally:
            self._run.cancel()

    async def _record(self, run: Run, begun: float, result: asyncio.Task[Result]) -> None:
        async for events in run.log.batches():
            for event in merged(events):
                if event.type not in RUNTIME_TERMINAL:
                    self.feed.add(event.type, event.branch, event.step, event.data, begun + event.time)
            run.log.forget(events[-1].seq)
            if not result.done():
                await asyncio.wait({result}, timeout=FRAME_SECONDS)

    async def _end(self, run: Run, task: asyncio.Task[Result]) -> None:
        await asyncio.wait({task})
        fault = run.fault or (None if task.cancelled() else task.exception())
        if fault is not None:
            log.error("run %s broke", self.id, exc_info=fault)
        result = Result("failed", seed=run.seed) if fault is not None or task.cancelled() else task.result()
        state: State = result.status
        if state == "cancelled" and self._wanted is not None:
            state = self._wanted
        face = result.as_dict()
        if fault is not None or task.cancelled():
            face["error"] = FAULT.as_dict()
        trace = to_json(_trace(result)).decode() if self.order.trace else None
        await self._write(state, face, trace, fault)

    async def _end_unbegun(self) -> None:
        """It leaves the queue. What ran out of time before it began is `aborted`, not `expired`."""
        assert self._wanted is not None
        state: State = "aborted" if self._wanted == "expired" else self._wanted
        await self._write(state, self._empty(), None, None)

    async def _write(self, state: State, face: dict[str, Any], trace: str | None, fault: BaseException | None) -> None:
        if state in ("cancelled", "expired", "aborted"):
            face["error"] = self._ended(state, face["error"])
        face = {"run_id": self.id, **face, "status": state}
        result = to_json(face)
        self.feed.add(f"run.{state}", data={name: face[name] for name in ("outputs", "usage", "error")})
        usage, error = to_json(face["usage"]).decode(), to_json(face["error"]).decode() if face["error"] else None
        self.outcome = Outcome(state, result, fault)
        await self._keeper.finish(self, lambda chunk: Ending(state, chunk, usage, error, result.decode(), trace))
        self.feed.publish()

    def _empty(self) -> dict[str, Any]:
        return Result("cancelled", seed=self.order.seed).as_dict()

    def _ended(self, state: State, error: dict[str, Any] | None) -> dict[str, Any]:
        """The diagnostic of a run that was ended from outside."""
        said = {"cancelled": "The run was cancelled", "expired": "The run took too long"}
        words = said.get(state, "The run could not begin in time")
        code = "S714" if state == "cancelled" else "S718"
        found = Diagnostic(code, f"{words}. {self._reason}".strip() if self._reason else f"{words}.").as_dict()
        return (error or {}) | {"code": code, "severity": "error", "message": found["message"]}


def _trace(result: Result) -> dict[str, Any]:
    branches = sorted(
        result.branch_traces.items(), key=lambda item: [int(n) for n in item[0].replace("/", ".").split(".")]
    )
    return {"tokens": _tokens(result.trace), "branches": {path: _tokens(tokens) for path, tokens in branches}}


def _tokens(tokens: tuple[TraceToken, ...]) -> list[dict[str, Any]]:
    return [asdict(token) for token in tokens]


__all__ = ["FAULT", "FRAME_SECONDS", "LiveRun", "Order", "Outcome"]

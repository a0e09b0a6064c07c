"""The loop that owns the model, all leases and all running work, on one thread.

Other threads post actions, which run between steps. Whatever goes wrong ends the requests it concerns and nothing
else: the loop itself goes on until it is stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Protocol

from sglspec_engine.constrain import GrammarConstraint
from sglspec_engine.metrics import Metrics
from sglspec_engine.model.adapter import ModelRunner
from sglspec_engine.reply import as_engine_error
from sglspec_engine.sched.generation import Generation
from sglspec_engine.sched.scheduler import Scheduler
from sglspec_engine.sched.work import Work
from sglspec_engine.step import commit, run
from sglspec_engine.types import EngineError

Fail = Callable[[BaseException], None]


class Cancellable(Protocol):
    """A work, or a request that consists of several."""

    closed: bool

    def cancel(self) -> None:
        """End because the caller left. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class _Action:
    """Something to do between steps, and whom to tell if it cannot be done."""

    do: Callable[[], None]
    fail: Fail


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A generation whose grammar is being compiled."""

    work: Generation
    grammar: Future[GrammarConstraint]
    deadline: float


class Loop:
    """See the module docstring. `start` it once, `stop` it once; `add` and `cancel` belong to its own thread.
    `after_step` is called after every step; what it raises ends what is running. `idle` is called while nothing is to
    do, and returns whether it wants to be called again."""

    def __init__(
        self,
        model: ModelRunner,
        scheduler: Scheduler,
        metrics: Metrics,
        after_step: Callable[[], None] | None = None,
        idle: Callable[[], bool] = lambda: False,
    ) -> None:
        self._model = model
        self._scheduler = scheduler
        self._metrics = metrics
        self._after_step = after_step
        self._idle = idle
        self._inbox: SimpleQueue[_Action] = SimpleQueue()
        self._waiting: list[_Waiting] = []
        self._gate = Lock()
        self._closing = False
        self._stopped = False
        self._moved = time.monotonic()
        self._thread = Thread(target=self._run, name="sglspec-engine", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether its thread runs. On any thread, as the next two."""
        return self._thread.is_alive()

    @property
    def still(self) -> float:
        """Seconds in which nothing was done although there was something to do."""
        busy = len(self._scheduler) > 0 or not self._inbox.empty()
        return max(0.0, time.monotonic() - self._moved) if busy else 0.0

    @property
    def compiling(self) -> int:
        """Generations whose grammar is being compiled."""
        return len(self._waiting)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the current step: what is pending fails. Returns once the thread has ended. Idempotent."""
        with self._gate:
            if not self._closing:
                self._closing = True
                self._inbox.put(_Action(self._stop, lambda _: None))
        self._thread.join()

    def post(self, do: Callable[[], None], fail: Fail) -> None:
        """Run `do` on the loop's thread between two steps, in order. `fail` gets what it raises, and an EngineError
        when the engine is closed."""
        with self._gate:
            if not self._closing:
                self._inbox.put(_Action(do, fail))
                return
        fail(_closed())

    def add(self, work: Work) -> None:
        """Take a work in."""
        self._metrics.requests += 1
        self._scheduler.add(work)

    def add_constrained(self, work: Generation, grammar: Future[GrammarConstraint], timeout: float) -> None:
        """Take a generation in once its grammar is compiled; fail it if that takes longer than `timeout` seconds."""
        self._waiting.append(_Waiting(work, grammar, time.monotonic() + timeout))
        # A grammar that is kept keeps its callbacks, too, so they must not know the work.
        grammar.add_done_callback(lambda _: self.post(self._take_compiled, lambda _: None))

    def cancel(self, work: Cancellable) -> None:
        """End what a caller left."""
        if not work.closed:
            self._metrics.cancelled += 1
        work.cancel()
        self._scheduler.drop_closed()
        self._waiting = [w for w in self._waiting if not w.work.closed]

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._drain()
                self._expire()
                self._step()
            except Exception as error:  # a defect of the loop itself: tell everyone, keep serving
                self._fail_all(as_engine_error(error))
        self._fail_all(_closed())
        self._drain_closed()

    def _step(self) -> None:
        plan = self._scheduler.plan()
        for work, error in plan.refused:
            self._metrics.failed += 1
            work.fail(error)
        self._scheduler.drop_closed()
        if not plan.rows:
            return
        result = run(plan, self._model, self._metrics)
        self._scheduler.settle(plan, commit(plan, result, self._metrics))
        self._moved = time.monotonic()
        if self._after_step is not None:
            self._after_step()

    def _drain(self) -> None:
        """Run the actions that are there; wait for one where there is nothing else to do."""
        while not self._stopped:
            try:
                if len(self._scheduler) or (self._inbox.empty() and self._idle()):
                    action = self._inbox.get_nowait()
                else:
                    action = self._inbox.get(timeout=self._patience())
                    self._moved = time.monotonic()
            except Empty:
                return
            _perform(action)

    def _patience(self) -> float | None:
        """Seconds until a compilation expires, None where none runs."""
        if not self._waiting:
            return None
        return max(0.0, min(w.deadline for w in self._waiting) - time.monotonic()) + 0.001

    def _expire(self) -> None:
        now = time.monotonic()
        for waiting in [w for w in self._waiting if w.deadline <= now]:
            self._waiting.remove(waiting)
            self._metrics.failed += 1
            waiting.work.fail(EngineError("constraint", "the constraint took too long to compile"))

    def _take_compiled(self) -> None:
        """Take in those whose grammar is there."""
        for waiting in [w for w in self._waiting if w.grammar.done()]:
            self._waiting.remove(waiting)
            try:
                waiting.work.constrain(waiting.grammar.result().copy())
                self.add(waiting.work)
            except Exception as error:
                self._metrics.failed += 1
                waiting.work.fail(as_engine_error(error))

    def _stop(self) -> None:
        self._stopped = True

    def _fail_all(self, error: EngineError) -> None:
        for work in [*self._scheduler.works(), *(w.work for w in self._waiting)]:
            work.fail(error)
        self._waiting.clear()
        self._scheduler.drop_closed()

    def _drain_closed(self) -> None:
        while True:
            try:
                action = self._inbox.get_nowait()
            except Empty:
                return
            action.fail(_closed())


def _perform(action: _Action) -> None:
    try:
        action.do()
    except Exception as error:
        action.fail(as_engine_error(error))


def _closed() -> EngineError:
    return EngineError("internal", "the engine is closed")

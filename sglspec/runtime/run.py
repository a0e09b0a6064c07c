"""One run of a program: start it, follow its events, cancel it, take its result."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sglspec.analysis.inputs import bind_inputs, secret_texts
from sglspec.analysis.program import Program
from sglspec.backends.base import Backend, EngineError
from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.document.load import sentence
from sglspec.document.model import Sampling
from sglspec.document.nodes import Node
from sglspec.runtime.events import Event, EventLog
from sglspec.runtime.frame import ENGINE_CODES, Frame, Shared
from sglspec.runtime.interpreter import run_steps
from sglspec.runtime.limits import Bounds, LimitTracker, document_bounds
from sglspec.runtime.needs import unknown_tools, unmet
from sglspec.runtime.profile import Recorder
from sglspec.runtime.programs import main_line, run_program
from sglspec.runtime.requests import prepare_constraints
from sglspec.runtime.result import Result, Status
from sglspec.runtime.scope import Bound
from sglspec.runtime.unit import Unit
from sglspec.tools import Tools


@dataclass(frozen=True, slots=True)
class RunOptions:
    """seed: 64-bit, random when None; sampling: run-level options (between `defaults` and the step); bounds: the
    host's; trace: keep the tokens of the main context in the result; tools: what the host offers, `calculator` alone
    when None; profile: take notes of what is spent (`Run.recorder`)."""

    seed: int | None = None
    sampling: Sampling | None = None
    bounds: Bounds | None = None
    trace: bool = False
    tools: Tools | None = None
    profile: bool = False


class Run:
    """A run in progress. Create with `start`; `await run.wait()` for the result."""

    def __init__(self, program: Program, inputs: dict[str, Any], backend: Backend, options: RunOptions) -> None:
        seed = options.seed if options.seed is not None else secrets.randbits(64)
        bounds = document_bounds(program.spec.limits, options.bounds)
        self.log: EventLog = EventLog()
        self._options = options
        self._inputs = inputs
        self._unit = Unit(program, LimitTracker(bounds), program.chat)
        self._shared = Shared(
            backend, self.log, seed, options.sampling, options.trace,
            tools=options.tools or Tools(), secrets=secret_texts(program.spec, inputs),
            recorder=Recorder() if options.profile else None,
        )  # fmt: skip
        self._task: asyncio.Task[Result] | None = None
        self.fault: Exception | None = None

    @property
    def seed(self) -> int:
        return self._shared.seed

    @property
    def recorder(self) -> Recorder | None:
        """What the run spends, where the options ask for it."""
        return self._shared.recorder

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Every declared input with its value, defaults included."""
        return self._inputs

    def events(self, after: int = -1) -> AsyncIterator[Event]:
        """Every event from the start (or after a sequence number), ending with the terminal one."""
        return self.log.follow(after)

    def cancel(self) -> None:
        """Ask the run to stop. It ends with status "cancelled" and what it has so far."""
        if self._task is None:
            return
        if self.log.count:
            self._task.cancel()
        else:
            # A task that is cancelled before its first step never runs, and would leave no terminal event.
            asyncio.get_running_loop().call_soon(self.cancel)

    async def wait(self) -> Result:
        """The result. Never raises for what the program did; cancelling the waiter cancels the run."""
        assert self._task is not None
        return await self._task

    def launch(self) -> Run:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ensure_terminal)
        return self

    def _ensure_terminal(self, task: asyncio.Task[Result]) -> None:
        """Readers must end even when the run's own ending failed (a fault of ours)."""
        if not self.log.closed:
            error = None if task.cancelled() else task.exception()
            face = self._problem("S799", f"A fault in sglspec: {type(error).__name__}.").as_dict()
            self.log.add("run.failed", outputs={}, usage=None, error=face)

    async def _run(self) -> Result:
        shared, program = self._shared, self._unit.program
        seconds = self._unit.limits.bounds.seconds
        self.log.add("run.started", program=program.name, model=shared.backend.model_name, seed=shared.seed)
        main: Frame | None = None
        outputs: dict[str, Any] | None = None
        status: Status = "succeeded"
        error: Diagnostic | None = None
        try:
            main = await self._main_frame()
            await prepare_constraints(main)
            async with asyncio.timeout(seconds):
                with main.span("run", program.name):
                    outputs = {name: bound.value for name, bound in (await run_program(main, run_steps)).items()}
        except asyncio.CancelledError:
            status = "cancelled"
            error = self._problem("S714", "The run was cancelled.")
        except TimeoutError:
            status = "failed"
            message = f"The run took longer than {seconds:g} seconds."
            error = self._problem("S706", message, self._limit_node("seconds"))
        except SpecError as problem:
            status, error = "failed", problem.diagnostics[0]
        except EngineError as problem:
            code = ENGINE_CODES.get(problem.kind, "S713")
            status, error = "failed", self._problem(code, sentence(str(problem)), program.spec.key("steps"))
        except Exception as fault:
            # A fault of ours: the run still ends with one terminal event, and `fault` keeps the traceback.
            self.fault = fault
            status, error = "failed", self._problem("S799", f"A fault in sglspec: {type(fault).__name__}: {fault}")
        return await self._finish(main, outputs, status, error)

    async def _main_frame(self) -> Frame:
        shared, unit = self._shared, self._unit
        if missing := [*unmet(unit.program, shared.backend), *unknown_tools(unit.program, shared)]:
            raise SpecError(*missing)
        session = await shared.backend.open(unit.program.name)
        return main_line(shared, unit, session, {n: Bound(value, "input") for n, value in self._inputs.items()})

    async def _finish(
        self, main: Frame | None, outputs: dict[str, Any] | None, status: Status, error: Diagnostic | None
    ) -> Result:
        shared, program = self._shared, self._unit.program
        if main is not None:
            main.scope.take_settled()
            await _to_its_end(main.close_joins())
        bound = main.scope.bound() if main is not None else {}
        hidden = {*program.inputs, "loop"}
        variables = {name: held.value for name, held in bound.items() if name not in hidden}
        meta = {name: held.meta for name, held in bound.items() if name not in hidden and held.meta is not None}
        if outputs is None:
            declared = program.spec.outputs
            names = [t.name for t in declared.names] if declared is not None else list(program.bindable)
            outputs = {name: variables.get(name) for name in names}
        text, trace = "", ()
        if main is not None:
            text = main.session.text()
            trace = tuple(main.session.trace()) if self._options.trace else ()
            await _to_its_end(main.session.close())
            # Only now is a cancelled request's usage known.
            shared.add_usage(main.session.usage)
        result = Result(
            status,
            outputs,
            variables,
            text,
            main.transcript.messages() if main is not None else [],
            meta,
            shared.usage,
            shared.seed,
            error,
            trace,
            shared.branch_traces,
        )
        face = result.as_dict()
        self.log.add(
            {"succeeded": "run.succeeded", "failed": "run.failed", "cancelled": "run.cancelled"}[status],
            outputs=face["outputs"],
            usage=face["usage"],
            error=face["error"],
        )
        return result

    def _problem(self, code: str, message: str, node: Node | None = None) -> Diagnostic:
        document = self._unit.program.document
        if node is None:
            return Diagnostic(code, message, file=document.source.name)
        return document.diagnostic(code, message, node)

    def _limit_node(self, name: str) -> Node:
        """Where a limit is written; the steps where the document does not say it."""
        spec = self._unit.program.spec
        if spec.limits is not None and getattr(spec.limits, name) is not None:
            return spec.limits.at(name)
        return spec.key("steps")


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await, ignoring cancellation: a run that is ending anyway still writes its terminal event."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


def start(program: Program, inputs: Mapping[str, Any], backend: Backend, options: RunOptions = RunOptions()) -> Run:
    """Check the inputs (SpecError with S401, S402, S403) and start the run on the running loop."""
    values, problems = bind_inputs(program.spec, inputs)
    if any(problem.severity == "error" for problem in problems):
        raise SpecError(*problems)
    return Run(program, values, backend, options).launch()


async def execute(
    program: Program, inputs: Mapping[str, Any], backend: Backend, options: RunOptions = RunOptions()
) -> Result:
    """Run to the end."""
    return await start(program, inputs, backend, options).wait()


__all__ = ["Run", "RunOptions", "execute", "start"]

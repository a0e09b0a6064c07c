"""One `sglspec run`, from the document to the exit code."""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sglspec import backends
from sglspec.backends.switches import split_switches
from sglspec.cli.complain import Refused, Texts
from sglspec.cli.documents import load
from sglspec.cli.exits import INTERRUPTED, backend_code, run_code
from sglspec.cli.fault import report_fault
from sglspec.cli.inputs import read_inputs, read_options
from sglspec.cli.interrupt import GRACE, Interrupts
from sglspec.cli.live import Live, StatusLine
from sglspec.cli.options import host_tools, wrong
from sglspec.cli.run import Stream
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import note, output, outputs_text, printable, put, to_json, wants_color
from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.runtime.run import Run, RunOptions, start

if TYPE_CHECKING:
    from sglspec.analysis.plan import Plan
    from sglspec.analysis.program import Program
    from sglspec.backends import Backend
    from sglspec.backends.base import TraceToken
    from sglspec.document.model import Sampling
    from sglspec.runtime.events import Event
    from sglspec.runtime.measured import Measured
    from sglspec.runtime.result import Result
    from sglspec.tools import Tools

CLOSING = 5.0
"""Seconds that a backend has to close."""

Listener = Callable[["Event"], None]


@dataclass(frozen=True, slots=True)
class Job:
    """The options of one run."""

    spec: str
    inputs: tuple[str, ...]
    settings: tuple[str, ...]
    json: bool
    stream: Stream | None
    backend: str | None
    model: str | None
    engine: tuple[str, ...]
    tools: tuple[str, ...]
    servers: tuple[str, ...]
    seed: int | None
    trace: Path | None
    roots: tuple[Path, ...] = ()
    profile: bool = False
    sampling: tuple[str, ...] = ()

    @property
    def mode(self) -> Stream:
        """What to print while it runs."""
        if self.stream is not None:
            return self.stream
        return Stream.text if output().isatty() and not self.json else Stream.none


def perform(job: Job) -> int:
    """Run, print, and return the exit code."""
    texts, stdin = Texts(), StandardInput()
    try:
        engine = _engine(job)
        with host_tools(job.tools, job.servers) as tools:
            # a script answers for tools that are not here
            offered = None if (job.backend or "").startswith("scripted") else tools
            program = load(job.spec, stdin, texts, offered, job.roots)
            given = read_inputs(program, job.inputs, job.settings, stdin, texts)
            sampling = read_options(job.sampling, texts)
            trace = _open_trace(job.trace)
            with Interrupts() as interrupts:
                result = asyncio.run(
                    _Performance(job, program, engine, tools, texts, trace, sampling).run(given, interrupts)
                )
                code = run_code(result.status, result.error)
                return interrupts.code or code if code == INTERRUPTED else code
    except Refused as refusal:
        if job.json:
            put(to_json(refused_face(refusal)))
        texts.complain(refusal.diagnostics)
        return refusal.code


def refused_face(refusal: Refused) -> dict[str, Any]:
    """What `--json` prints when there was no run: `status` and `error` where a result has them, and everything that
    was found."""
    found = [d.as_dict() for d in refusal.diagnostics]
    error = next((d for d in found if d["severity"] == "error"), None)
    return {"status": "refused", "error": error, "diagnostics": found}


def _engine(job: Job) -> dict[str, Any]:
    """The engine's settings."""
    try:
        return backends.check_engine(job.backend, split_switches(job.engine))
    except SpecError as error:
        raise Refused(backend_code(error.diagnostics), error.diagnostics) from None


def _open_trace(path: Path | None) -> IO[str] | None:
    """Opened before the model is loaded: a wrong path shall not cost a run."""
    if path is None:
        return None
    try:
        return path.open("w", encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise wrong(f"{str(path)!r} cannot be written: {reason}.", "--trace") from None


class _Performance:
    def __init__(
        self,
        job: Job,
        program: Program,
        engine: dict[str, Any],
        tools: Tools,
        texts: Texts,
        trace: IO[str] | None,
        sampling: Sampling | None,
    ) -> None:
        self._job = job
        self._program = program
        self._engine = engine
        self._tools = tools
        self._texts = texts
        self._trace = trace
        self._sampling = sampling
        self._printed = False
        self._status = StatusLine(sys.stderr)
        self._live = Live(output(), self._status, wants_color(output())) if job.mode is Stream.text else None

    async def run(self, given: dict[str, Any], interrupts: Interrupts) -> Result:
        interrupts.last_words = self._last_words
        backend = await self._open()
        try:
            seed = _random_seed() if self._job.seed is None else self._job.seed
            noted = self._job.profile or self._trace is not None
            options = RunOptions(seed, self._sampling, trace=self._trace is not None, tools=self._tools, profile=noted)
            run = start(self._program, given, backend, options)
            with interrupts.cancelling(run.cancel):
                result = await _follow(run, self._listener())
            self._status.clear()
            self._save_trace(run, backend.model_name, result)
            self._print(result, interrupts, run)
        finally:
            await close(backend)
        return result

    def _last_words(self) -> None:
        """When the process ends at once, before a result: `--json` still promises one object."""
        self._status.clear()
        if self._job.json and not self._printed:
            error = Diagnostic("S714", "The run was cancelled.", file=self._program.document.source.name)
            put(to_json({"status": "cancelled", "error": error.as_dict(), "diagnostics": []}))
            output().flush()

    async def _open(self) -> Backend:
        model = self._job.model or self._program.spec.model
        local = (self._job.backend or "local") == "local"
        if local:
            self._status.show(f"loading {model or backends.DEFAULT_MODEL} …")
        try:
            return await backends.open_backend(self._job.backend, model, self._engine)
        except SpecError as error:
            found = error.diagnostics
            if local and not self._job.model:
                found = tuple(self._at_model(item) for item in found)
            raise Refused(backend_code(found), found) from None
        finally:
            self._status.clear()

    def _at_model(self, item: Diagnostic) -> Diagnostic:
        """A complaint about the model, at the document's `model` when that named it."""
        node = self._program.document.root.get("model")
        if node is None or item.file is not None or item.code == "S607":
            return item
        return replace(item, file=self._program.document.source.name, range=node.range, pointer="/model")

    def _listener(self) -> Listener | None:
        if self._job.mode is Stream.events:
            return lambda event: put(to_json(event.as_dict(), indent=None))
        return self._live

    def _save_trace(self, run: Run, model: str, result: Result) -> None:
        if self._trace is None:
            return
        from sglspec.cli.plans.timeline import trace_events

        recorder = run.recorder
        content = {
            "program": self._program.name,
            "model": model,
            "seed": result.seed,
            "status": result.status,
            "tokens": _tokens(result.trace),
            "branches": {path: _tokens(tokens) for path, tokens in _in_order(result.branch_traces)},
            "events": [event.as_dict() for event in run.log.events],
            "displayTimeUnit": "ms",
            "traceEvents": trace_events(self._program.name, recorder.all() if recorder is not None else ()),
        }
        try:
            with self._trace as file:
                file.write(to_json(content, indent=1) + "\n")
        except OSError as error:
            note(f"sglspec: the trace could not be written: {error.strerror}")

    def _profile(self, run: Run, result: Result) -> tuple[Plan, Measured] | None:
        """The plan with these inputs, and what the run spent."""
        if not self._job.profile or run.recorder is None:
            return None
        from sglspec.analysis.plan import plan
        from sglspec.runtime.measured import measured

        return plan(self._program, run.inputs), measured(run.recorder, result.usage)

    def _print(self, result: Result, interrupts: Interrupts, run: Run) -> None:
        """The result to standard output, what was spent and what ended it to standard error."""
        self._printed = True
        fault, profile = run.fault, self._profile(run, result)
        if self._job.json:
            face = result.as_dict()
            if profile is not None:
                from sglspec.cli.plans.profile import face as profile_face

                face["profile"] = profile_face(*profile)
            put(to_json(face))
        elif self._live is not None:
            self._live.finish(result)
        elif self._job.mode is Stream.none and _worth_printing(result):
            text = outputs_text(result.outputs)
            put(printable(text) if output().isatty() else text)
        if profile is not None and not self._job.json:
            from sglspec.cli.plans.profile import text as profile_text

            note(printable(profile_text(*profile)))
        if fault is not None:
            report_fault(fault)
        elif result.status == "cancelled":
            note(f"sglspec: {'terminated' if interrupts.code != INTERRUPTED else 'interrupted'}")
        elif result.error is not None:
            self._texts.complain([result.error])


def _random_seed() -> int:
    """A seed that every reader of JSON gives back exactly: what a result shows repeats the run."""
    return secrets.randbits(53)


def _in_order(traces: dict[str, tuple[TraceToken, ...]]) -> list[tuple[str, tuple[TraceToken, ...]]]:
    """By branch: 1.2 before 1.10."""
    return sorted(traces.items(), key=lambda item: [int(part) for part in re.findall(r"\d+", item[0])])


def _tokens(trace: tuple[TraceToken, ...]) -> list[dict[str, Any]]:
    return [asdict(token) for token in trace]


def _worth_printing(result: Result) -> bool:
    """Outputs of a run that did not end well: what an interrupt or a limit left, but never those of a run that a
    check or a failure has disowned."""
    if result.status == "succeeded":
        return True
    stopped = result.status == "cancelled" or (result.error is not None and result.error.code in ("S705", "S706"))
    return stopped and any(value is not None for value in result.outputs.values())


async def _follow(run: Run, listener: Listener | None) -> Result:
    """The run's result, after the listener has heard every event."""
    waiting = asyncio.create_task(run.wait())
    watching = asyncio.create_task(_watch(run, listener)) if listener is not None else None
    try:
        if watching is None:
            return await waiting
        await asyncio.wait({waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()  # raises when standard output is lost
        result = await waiting
        if run.log.closed:
            await watching
        return result
    finally:
        if watching is not None:
            watching.cancel()
        if not waiting.done():
            run.cancel()
            await asyncio.wait({waiting}, timeout=GRACE)


async def _watch(run: Run, listener: Listener) -> None:
    async for event in run.events():
        listener(event)


async def close(backend: Backend) -> None:
    """Close, within a time."""
    try:
        await asyncio.wait_for(backend.close(), CLOSING)
    except TimeoutError:
        note("sglspec: the backend did not close in time")

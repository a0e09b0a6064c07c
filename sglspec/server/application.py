"""The ASGI application: five addresses over one backend."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sglspec.analysis import load_program
from sglspec.analysis.program import Program
from sglspec.backends import open_backend
from sglspec.diagnostics import Diagnostic, Report, SpecError
from sglspec.diagnostics.record import MAX_REPORTED
from sglspec.runtime.limits import Bounds
from sglspec.runtime.run import RunOptions, start
from sglspec.server.backend import BackendSlot, Opener
from sglspec.server.body import Posted, Raw, read_posted, receive_body
from sglspec.server.guard import Guard
from sglspec.server.live import LiveRun, LiveRuns, client_gone
from sglspec.server.problems import Problem, faces, to_json
from sglspec.server.sse import PING_SECONDS, EventStream
from sglspec.tools import Tools

MAX_RUNS = 32
_CHECK_BYTES = 65_536
_MISSING_HELP = "Give it in `inputs`: beside `spec` in a JSON body, in the query with a YAML body."
_STATUS_CODES = {404: "not-found", 405: "method-not-allowed"}


class Service:
    """What the addresses do. One per application."""

    def __init__(self, backend: BackendSlot, runs: LiveRuns, bounds: Bounds, ping_seconds: float, tools: Tools) -> None:
        self.backend = backend
        self.runs = runs
        self._bounds = bounds
        self._ping_seconds = ping_seconds
        self._tools = tools
        self._checking = asyncio.Lock()

    async def post_run(self, request: Request) -> Response:
        """Check a program and run it: JSON at the end, or events as they happen."""
        events = _wants_events(request.headers.get("accept", ""))
        raw = await receive_body(request)
        with self.runs.place():
            posted, program, diagnostics = await self._load(raw)
            if program is None:
                raise Problem(422, "invalid-program", errors=[d for d in diagnostics if d.severity == "error"])
            backend = await self.backend.get()
            # host bounds always: a program's own `limits` may lower them, never raise them
            seed = random_seed() if posted.seed is None else posted.seed
            options = RunOptions(seed=seed, bounds=self._bounds, tools=self._tools)
            try:
                live = self.runs.add(start(program, posted.inputs, backend, options))
            except SpecError as error:
                raise Problem(422, "invalid-inputs", errors=map(_for_clients, error.diagnostics)) from None
        return EventStream(live, self._ping_seconds) if events else await _finished(live, request)

    async def post_check(self, request: Request) -> Response:
        """All diagnostics of a program, warnings too. Nothing runs."""
        raw = await receive_body(request)
        with self.runs.place():
            _, program, diagnostics = await self._load(raw)
        shown, omitted = faces(diagnostics, MAX_REPORTED, _CHECK_BYTES)
        return _json({"ok": program is not None, "diagnostics": shown, "omitted": omitted})

    async def get_models(self, request: Request) -> Response:
        """The one model of this server."""
        return _json({"data": [{"id": self.backend.name, "ready": self.backend.ready is not None}]})

    async def livez(self, request: Request) -> Response:
        """Whether the server answers."""
        return _json({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        """Whether the model is loaded."""
        return _json({"status": "ready", "model": self.backend.require_ready().model_name})

    async def _load(self, raw: Raw) -> tuple[Posted, Program | None, list[Diagnostic]]:
        """Read and check, beside the event loop, one at a time: other runs go on meanwhile."""
        async with self._checking:
            return await asyncio.to_thread(_load, raw, self._tools)


def create_app(
    backend_reference: str | None = None,
    model: str | None = None,
    opener: Opener = open_backend,
    *,
    max_runs: int = MAX_RUNS,
    bounds: Bounds | None = None,
    ping_seconds: float = PING_SECONDS,
    tools: Tools | None = None,
) -> FastAPI:
    """The application.

    backend_reference, model: as for `open_backend`. The backend is opened when the server starts (or, without a
    lifespan, by the first run); while that fails, runs are answered with 503 and each one tries again.
    bounds: no run may do more, whatever its program says; the language's defaults unless given.
    tools: what programs may call; the built-in ones unless given, never those of installed packages.
    """
    slot = BackendSlot(opener, backend_reference, model)
    service = Service(slot, LiveRuns(max_runs), bounds or Bounds(), ping_seconds, tools or Tools())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        slot.begin()
        try:
            yield
        finally:
            await slot.close()

    # The pages at /docs load scripts from elsewhere, and the handlers read their bodies themselves: no OpenAPI yet.
    app = FastAPI(title="sglspec", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.runs = service.runs
    app.add_middleware(Guard)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _validation_problem)
    routes = (
        ("POST", "/v1/runs", service.post_run),
        ("POST", "/v1/check", service.post_check),
        ("GET", "/v1/models", service.get_models),
        ("GET", "/livez", service.livez),
        ("GET", "/readyz", service.readyz),
    )
    for method, path, handler in routes:
        app.add_api_route(path, handler, methods=[method], response_model=None)
    return app


def random_seed() -> int:
    """A seed that every reader of JSON gives back exactly: what an answer reports can be posted again."""
    return secrets.randbits(53)


def _load(raw: Raw, tools: Tools) -> tuple[Posted, Program | None, list[Diagnostic]]:
    """A request's content and its program; None and the reasons when the program has errors."""
    report = Report()
    try:
        posted = read_posted(raw)
    except SpecError as error:
        raise Problem(422, "invalid-program", errors=error.diagnostics) from None
    program: Program | None = None
    try:
        program = load_program(posted.source, report, tools)
    except SpecError as error:
        report.extend(error.diagnostics)
    if program is None and not report.has_errors:
        raise RuntimeError("the analysis gave neither a program nor an error")
    return posted, None if report.has_errors else program, report.sorted()


async def _finished(live: LiveRun, request: Request) -> Response:
    """The result when the run has ended. A client that leaves before cancels it."""
    gone = asyncio.create_task(client_gone(request.receive))
    try:
        await asyncio.wait({live.task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        await live.stop()
    if live.task.cancelled():
        raise Problem(503, "stopping")
    if live.fault is not None:
        raise Problem(500, "internal")  # the log has it already
    return _json({"run_id": live.id, **live.task.result().as_dict()})


def _wants_events(accept: str) -> bool:
    """Whether `text/event-stream` is preferred to JSON: the higher q, or the one named first."""
    ranks: dict[str, float] = {}
    for item in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in item.split(";"))
        quality = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        ranks.setdefault(kind, float(quality) if quality.replace(".", "", 1).isdecimal() else 0.0)
    json_rank = max(ranks.get("application/json", 0.0), ranks.get("*/*", 0.0) if len(ranks) == 1 else 0.0)
    kinds = list(ranks)
    events_rank = ranks.get("text/event-stream", 0.0)
    if events_rank == json_rank and events_rank > 0:
        return kinds.index("text/event-stream") < kinds.index("application/json")
    return events_rank > json_rank


def _for_clients(item: Diagnostic) -> Diagnostic:
    """The help of a missing input speaks of the command line; here it is the request."""
    return replace(item, help=_MISSING_HELP) if item.code == "S402" else item


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _STATUS_CODES.get(error.status_code, "invalid-request")
    return Problem(error.status_code, code, headers=error.headers).response()


async def _validation_problem(request: Request, error: Exception) -> Response:
    # FastAPI's own answer repeats the input, and breaks on input that JSON cannot hold
    return Problem(400, "invalid-request").response()


def _json(value: Any) -> Response:
    return Response(to_json(value), media_type="application/json", headers={"Cache-Control": "no-store"})


__all__ = ["MAX_RUNS", "create_app"]

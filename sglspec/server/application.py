"""The ASGI application: routers over one service."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sglspec.backends import open_backend
from sglspec.server.access import Access
from sglspec.server.access.gate import Gate, GatedRoute, Nowhere, OnlyGated, require_gates
from sglspec.server.access.quota import Rates
from sglspec.server.backend import BackendSlot, Opener
from sglspec.server.compat.answers import Places
from sglspec.server.compat.grammars import Grammars
from sglspec.server.compat.openai import OpenAIRoutes
from sglspec.server.compat.sglang import SGLangRoutes
from sglspec.server.endpoints import Endpoint, Handler, reply
from sglspec.server.guard import Guard
from sglspec.server.openapi import service_document
from sglspec.server.problems import Problem
from sglspec.server.routes_batches import BatchRoutes
from sglspec.server.routes_checks import CheckRoutes
from sglspec.server.routes_health import HealthRoutes
from sglspec.server.routes_page import PageRoutes
from sglspec.server.routes_programs import ProgramRoutes
from sglspec.server.routes_runs import RunRoutes
from sglspec.server.service import Limits, Service
from sglspec.server.storage.database import Database, database_at
from sglspec.tools import Tools

_STATUS_CODES = {404: "not-found", 405: "method-not-allowed"}


def create_app(
    backend_reference: str | None = None,
    model: str | None = None,
    opener: Opener = open_backend,
    *,
    limits: Limits | None = None,
    tools: Tools | None = None,
    database: Database | None = None,
    access: Access | None = None,
    control_tokens: bool = False,
) -> FastAPI:
    """The application.

    backend_reference, model: as for `open_backend`. The backend is opened when the server starts (or, without a
    lifespan, by the first run); while that fails, runs are answered with 503 and each one tries again.
    tools: what programs may call; the built-in ones unless given, never those of installed packages.
    database: where programs and runs are kept; a temporary one unless given.
    access: who may use it; everyone on this machine unless given.
    control_tokens: whether raw prompts of other protocols may spell control tokens where a request does not say.
    """
    slot = BackendSlot(opener, backend_reference, model)
    access = access or Access()
    gate = Gate(access.keys, Rates())
    service = Service(slot, database or database_at(None), limits or Limits(), tools or Tools())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        require_gates(app.routes)
        slot.begin()
        await service.start()
        try:
            yield
        finally:
            await service.close()

    # The pages at /docs load scripts from elsewhere, and the handlers read their bodies themselves.
    app = FastAPI(title="sglspec", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.service = service
    app.state.places = places = Places()
    app.add_middleware(OnlyGated)
    app.add_middleware(Guard, hosts=access.hosts, gate=gate, service=service)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _validation_problem)
    listed = [*endpoints(service, places, control_tokens=control_tokens)]
    listed.append(Endpoint("GET", "/openapi.json", _description(listed), "public", "This description"))
    app.router.routes[:] = [GatedRoute(endpoint, gate) for endpoint in listed]
    app.router.default = Nowhere(gate)
    app.router.redirect_slashes = False
    return app


def endpoints(service: Service, places: Places, *, control_tokens: bool) -> Iterable[Endpoint]:
    """Every address of the server."""
    yield from RunRoutes(service).endpoints()
    yield from ProgramRoutes(service).endpoints()
    yield from BatchRoutes(service).endpoints()
    yield from CheckRoutes(service).endpoints()
    grammars = Grammars()
    yield from OpenAIRoutes(service, places, grammars, control=control_tokens).endpoints()
    yield from SGLangRoutes(service, places, grammars, control=control_tokens).endpoints()
    yield from HealthRoutes(service).endpoints()
    yield from PageRoutes().endpoints()


def _description(listed: list[Endpoint]) -> Handler:
    async def get(request: Request) -> Response:
        return reply(service_document(listed))

    return get


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _STATUS_CODES.get(error.status_code, "invalid-request")
    return Problem(error.status_code, code, headers=error.headers).response()


async def _validation_problem(request: Request, error: Exception) -> Response:
    # FastAPI's own answer repeats the input, and breaks on input that JSON cannot hold
    return Problem(400, "invalid-request").response()


__all__ = ["create_app", "endpoints"]

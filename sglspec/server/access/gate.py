"""The gate: no address without one, and every address says what it asks for.

It stands in the routes themselves, not before them: what decides is the route that was found, never a second reading of
the path, which could come to another result.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sglspec.diagnostics import SpecError
from sglspec.server.access.keys import EVERYTHING, Grant, Key, Need
from sglspec.server.access.quota import Rates
from sglspec.server.access.ring import KeyRing
from sglspec.server.endpoints import Endpoint
from sglspec.server.problems import Problem
from sglspec.server.queries import check_query

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="sglspec"'}
_REFUSED = (429, 503)

log = logging.getLogger("sglspec.server")


class Gate:
    """Finds out who asks and what they may do. One per application."""

    def __init__(self, ring: KeyRing, rates: Rates) -> None:
        self._ring = ring
        self._rates = rates

    async def locked(self) -> bool:
        """Whether requests need a key. Raises Problem (503) while the keys cannot be read: then nobody gets in."""
        try:
            return await self._ring.locked()
        except (SQLAlchemyError, SpecError):
            log.exception("the keys cannot be read")
            raise Problem(503, "storage-unavailable", headers={"Retry-After": "1"}) from None

    @asynccontextmanager
    async def admit(self, scope: Scope, need: Need | None) -> AsyncGenerator[list[int], None]:
        """Let a request in, or raise Problem: 401, 403, 429. need: None for what is not there, which only those who
        have a key are told. The caller puts the answer's status into the list."""
        statuses: list[int] = []
        if need == "public":
            yield statuses
            return
        if not await self.locked():
            _enter(scope, EVERYTHING)
            yield statuses
            return
        key = await self._key(Headers(scope=scope))
        grant = Grant(key.owner, frozenset(key.scopes), key.id, key.runs)
        _enter(scope, grant)
        if need is not None and not grant.may(need):
            raise Problem(403, "forbidden", f"This needs a key with the scope `{need}`.")
        self._rates.take(key)
        try:
            yield statuses
        except Problem as problem:
            statuses.append(problem.status)
            raise
        finally:
            if any(status in _REFUSED for status in statuses):
                self._rates.give_back(key)

    async def _key(self, headers: Headers) -> Key:
        given = headers.getlist("authorization")
        if not given:
            raise Problem(401, "unauthorized", "Send `Authorization: Bearer KEY`.", headers=_CHALLENGE)
        kind, _, token = given[0].partition(" ")
        key = None
        if len(given) == 1 and kind.lower() == "bearer":
            key = await self._ring.find(token.strip())
        if key is None:
            raise Problem(401, "unauthorized", "This key is not valid.", headers=_CHALLENGE)
        return key


class GatedRoute(Route):
    """An address behind the gate."""

    def __init__(self, endpoint: Endpoint, gate: Gate) -> None:
        super().__init__(endpoint.path, endpoint.handler, methods=[endpoint.method])
        self.methods = {endpoint.method}  # HEAD is not GET here: a stream has no length to tell
        self.need: Need = endpoint.scope
        self._gate = gate
        self._refuse = endpoint.refuse
        self._operation = endpoint.operation or {}
        self._strict = endpoint.refuse is None and endpoint.path.startswith("/v1/") and endpoint.path != "/v1/models"

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["sglspec.route"] = self.path
        try:
            async with self._gate.admit(scope, self.need) as statuses:
                if self._strict:
                    check_query(Request(scope), self._operation)
                await super().handle(scope, receive, _noting(send, statuses))
        except Problem as problem:
            if self._refuse is None:
                raise
            await self._refuse(problem)(scope, receive, send)


class Nowhere:
    """What is asked for an address that is not there: it is 404 for those with a key."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        async with self._gate.admit(scope, None):
            raise Problem(404, "not-found")


def require_gates(routes: Iterable[BaseRoute]) -> None:
    """Raise RuntimeError where an address has no gate."""
    for route in routes:
        if not isinstance(route, GatedRoute):
            raise RuntimeError(f"the address {getattr(route, 'path', route)!r} says not who may use it")


class OnlyGated:
    """ASGI middleware: serves nothing from the moment when somebody adds an address without a gate."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "app" in scope:
            require_gates(scope["app"].routes)
        await self._app(scope, receive, send)


def grant_of(request: Request) -> Grant:
    """What a request may do."""
    return request.state.grant


def _enter(scope: Scope, grant: Grant) -> None:
    state: dict[str, Any] = scope.setdefault("state", {})
    state["grant"], state["principal"] = grant, grant.owner


def _noting(send: Send, statuses: list[int]) -> Send:
    async def noting(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        await send(message)

    return noting


__all__ = ["Gate", "GatedRoute", "Nowhere", "OnlyGated", "grant_of", "require_gates"]

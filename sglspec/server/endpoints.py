"""What an address is made of. Routers give lists of these; the application adds them all in one place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from sglspec.server.access.keys import Need
from sglspec.server.problems import Problem, to_json

Method = Literal["GET", "POST", "PUT", "DELETE"]
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """path: as Starlette's routes; scope: what a key must be allowed to do; summary: for the API's description;
    operation: its OpenAPI operation, beyond what follows from the rest; refuse: how it says who may not come in, where
    not as a problem."""

    method: Method
    path: str
    handler: Handler
    scope: Need
    summary: str
    operation: dict[str, Any] | None = None
    refuse: Callable[[Problem], Response] | None = None


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(to_json(value), status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def reply_text(text: str | bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON that is written already."""
    return Response(text, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


__all__ = ["Endpoint", "Handler", "Method", "reply", "reply_text"]

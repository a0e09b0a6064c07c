"""What every request has to pass: a name of ours as `Host`, no foreign page behind it; and what no answer may lack."""

from __future__ import annotations

import logging
import time

from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sglspec.server.access.gate import Gate
from sglspec.server.access.hosts import Hosts, is_loopback
from sglspec.server.intake import Intake
from sglspec.server.logs import request_id, request_id_for
from sglspec.server.metrics import METHODS
from sglspec.server.problems import Problem
from sglspec.server.service import Service
from sglspec.server.storage.runs import RUN_ID

MAX_HEADERS = 100
MAX_HEADER_BYTES = 65_536
"""Of all headers, and the address."""

log = logging.getLogger("sglspec.server")


class Guard:
    """ASGI middleware, the outermost one."""

    def __init__(self, app: ASGIApp, hosts: Hosts, gate: Gate, service: Service) -> None:
        self._app = app
        self._hosts = hosts
        self._gate = gate
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        id = request_id_for(Headers(scope=scope).get("x-request-id"))
        request_id.set(id)
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", id.encode())]
            await send(message)

        try:
            _admit(scope, self._hosts, await self._gate.locked())
            await self._app(scope, Intake(receive, self._service.stopping), watched)
        except Problem as problem:
            if problem.status in (429, 503):
                self._service.metrics.rejected(problem.code)
            await problem.response()(scope, receive, watched)
        except ClientDisconnect:
            log.info("a client left before its request was whole", extra={"fields": _where(scope)})
        except SQLAlchemyError:
            log.exception("the store failed", extra={"fields": _where(scope)})
            if status:
                raise
            self._service.metrics.rejected("storage-unavailable")
            problem = Problem(503, "storage-unavailable", headers={"Retry-After": "1"})
            await problem.response()(scope, receive, watched)
        except Exception:
            log.exception("a request broke", extra={"fields": _where(scope)})
            if status:
                raise  # half an answer: the connection has to break, so that nobody takes it for a whole one
            await Problem(500, "internal").response()(scope, receive, watched)
        finally:
            self._note(scope, status, time.monotonic() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        where = _where(scope)
        self._service.metrics.request(scope["method"], where["route"], status, seconds)
        if log.isEnabledFor(logging.INFO):
            grant = scope.get("state", {}).get("grant")
            fields = where | {"status": status or 499, "ms": round(seconds * 1000, 1)}
            log.info("request", extra={"fields": fields | ({"key": grant.key} if grant and grant.key else {})})


def _where(scope: Scope) -> dict[str, str]:
    """What a log may say of an address: the route that was found, and a run's id; never the path as it came."""
    method = scope["method"] if scope["method"] in METHODS else "other"
    where = {"method": method, "route": scope.get("sglspec.route", "")}
    run = scope.get("path_params", {}).get("run", "")
    return where | ({"run": run} if RUN_ID.fullmatch(run) else {})


def _admit(scope: Scope, hosts: Hosts, locked: bool) -> None:
    headers = Headers(scope=scope)
    if len(headers) > MAX_HEADERS:
        raise Problem(431, "too-many-headers", f"The limit is {MAX_HEADERS}.")
    # uvicorn's own limit is for headers that come in pieces
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    if size + sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
        raise Problem(431, "too-many-headers", f"The limit is {MAX_HEADER_BYTES:,} bytes.")
    here, port = scope.get("server") or ("", None)
    if port is not None and not locked and not is_loopback(here):
        raise Problem(421, "misdirected", "There are no keys, so this server answers on loopback addresses only.")
    named = headers.getlist("host")
    if len(named) != 1 or not hosts.knows(named[0], here, locked):
        raise Problem(421, "misdirected", "Use a name that is allowed here (`--allow-host`), or a loopback name.")
    for origin in headers.getlist("origin"):
        if not hosts.takes(origin, here, locked):
            raise Problem(403, "forbidden-origin")


__all__ = ["Guard"]

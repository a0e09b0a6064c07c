"""What every request has to pass: a name of ours as `Host`, no foreign page behind it; and what no answer may lack."""

from __future__ import annotations

import logging

from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sglspec.server.access.gate import Gate
from sglspec.server.access.hosts import Hosts, is_loopback
from sglspec.server.problems import Problem

MAX_HEADERS = 100

log = logging.getLogger("sglspec.server")


class Guard:
    """ASGI middleware, the outermost one."""

    def __init__(self, app: ASGIApp, hosts: Hosts, gate: Gate) -> None:
        self._app = app
        self._hosts = hosts
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            _admit(scope, self._hosts, await self._gate.locked())
            await self._app(scope, receive, watched)
        except Problem as problem:
            await problem.response()(scope, receive, send)
        except ClientDisconnect:
            log.info("a client left before its request was whole: %s %s", scope["method"], scope["path"])
        except SQLAlchemyError:
            log.exception("the store failed: %s %s", scope["method"], scope["path"])
            if started:
                raise
            await Problem(503, "storage-unavailable", headers={"Retry-After": "1"}).response()(scope, receive, send)
        except Exception:
            log.exception("a request broke: %s %s", scope["method"], scope["path"])
            if started:
                raise  # half an answer: the connection has to break, so that nobody takes it for a whole one
            await Problem(500, "internal").response()(scope, receive, send)


def _admit(scope: Scope, hosts: Hosts, locked: bool) -> None:
    headers = Headers(scope=scope)
    if len(headers) > MAX_HEADERS:
        raise Problem(431, "too-many-headers", f"The limit is {MAX_HEADERS}.")
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

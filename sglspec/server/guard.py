"""What every request has to pass: a loopback `Host`, no foreign page behind it; and what no answer may lack."""

from __future__ import annotations

import logging
import re
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sglspec.server.problems import Problem

MAX_HEADERS = 100
_LOOPBACK = r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?"
_HOST = re.compile(_LOOPBACK, re.IGNORECASE)
_ORIGIN = re.compile("https?://" + _LOOPBACK, re.IGNORECASE)

log = logging.getLogger("sglspec.server")


class Guard:
    """ASGI middleware, the outermost one.

    There are no keys, so whoever can connect can run programs: connections that came in over a network are refused,
    also where somebody else's command line let the socket listen there.
    A name that resolves to 127.0.0.1 for a moment (DNS rebinding) would let any web page talk to this server as if it
    were its own; browsers then send that name as `Host`. A page of another site that posts here sends its `Origin`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

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
            _admit(scope)
            await self._app(scope, receive, watched)
        except Problem as problem:
            await problem.response()(scope, receive, send)
        except ClientDisconnect:
            log.info("a client left before its request was whole: %s %s", scope["method"], scope["path"])
        except Exception:
            log.exception("a request broke: %s %s", scope["method"], scope["path"])
            if started:
                raise  # half an answer: the connection has to break, so that nobody takes it for a whole one
            await Problem(500, "internal").response()(scope, receive, send)


def _admit(scope: Scope) -> None:
    headers = Headers(scope=scope)
    if len(headers) > MAX_HEADERS:
        raise Problem(431, "too-many-headers", f"The limit is {MAX_HEADERS}.")
    host, port = scope.get("server") or ("", None)
    if port is not None and not is_loopback(host):
        raise Problem(421, "misdirected", "This server answers on loopback addresses only.")
    if not _HOST.fullmatch(headers.get("host", "")):
        raise Problem(421, "misdirected", "Use http://127.0.0.1, http://localhost or http://[::1].")
    origin = headers.get("origin")
    if origin is not None and not _ORIGIN.fullmatch(origin):
        raise Problem(403, "forbidden-origin")


def is_loopback(host: str) -> bool:
    """Whether a name or an address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


__all__ = ["Guard", "is_loopback"]

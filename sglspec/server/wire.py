"""The wire: uvicorn's HTTP/1.1 with times for what clients send, our own words where it answers by itself, and without
faults of its own in the log.

h11, because the faster parser takes headers of any size.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from sglspec.server.guard import MAX_HEADER_BYTES
from sglspec.server.problems import Problem

MAX_CONNECTIONS = 2_048
"""Beyond these a request is answered with 503 at once."""
HEAD_SECONDS = 20.0
"""From the connection, or from the first byte of a further request, to the end of its headers."""
KEEP_ALIVE_SECONDS = 30


class Connection(H11Protocol):
    """One connection of a client."""

    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self.app = _too_many
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:  # it was in the middle of a body: nobody listens any more
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = Problem(400, "invalid-request", "It is not HTTP as RFC 9112 has it.").response()
            headers = [*answer.raw_headers, (b"connection", b"close")]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event))
            self.transport.close()
        else:  # an answer is on its way or out: there is no place for another one
            self.transport.close()

    def _watch(self) -> None:
        """Let the time run while the client has to send something, once: more bytes do not make it longer."""
        cycle: Any = self.cycle
        at_work = cycle is not None and not cycle.response_complete
        if at_work or self.timeout_keep_alive_task is not None or self.transport.is_closing():
            self._rest()
        elif self._alarm is None:
            self._alarm = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _rest(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    """In place of the application where there are too many connections."""
    headers = {"Retry-After": "1", "Connection": "close"}
    problem = Problem(503, "busy", f"This server holds {MAX_CONNECTIONS:,} connections at once.", headers=headers)
    await problem.response()(scope, receive, send)


def config(app: Any, drain_seconds: float) -> uvicorn.Config:
    """How the application is served."""
    return uvicorn.Config(
        app,
        http=Connection,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(drain_seconds) + 5,
    )


__all__ = ["Connection", "config"]

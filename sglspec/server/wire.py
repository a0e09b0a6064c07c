"""The wire: uvicorn's HTTP/1.1 with times for what clients send, and without faults of its own in the log.

h11, because the faster parser takes headers of any size.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEADER_BYTES = 65_536
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
            super().send_400_response(msg)
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
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(drain_seconds) + 5,
    )


__all__ = ["Connection", "config"]

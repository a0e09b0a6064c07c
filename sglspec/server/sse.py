"""A run's events as `text/event-stream`: gapless ids, exactly one terminal event, then the end of the stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sglspec.runtime.events import TERMINAL, Event
from sglspec.server.live import FAULT, LiveRun, client_gone
from sglspec.server.problems import to_json

PING_SECONDS = 15.0
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def encode(live: LiveRun, event: Event) -> bytes:
    """One event on the wire. JSON has no raw line breaks, so one `data:` line holds it."""
    face = {"run_id": live.id, **event.as_dict()}
    if event.type == "run.failed" and live.fault is not None:
        face["error"] = FAULT.as_dict()
    data = to_json(face)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), data)


async def frames(live: LiveRun, ping_seconds: float = PING_SECONDS) -> AsyncGenerator[bytes, None]:
    """All events of a run as they come, and a comment when there was none for a while."""
    events = live.run.events()
    pending: asyncio.Future[Event] | None = None
    try:
        while True:
            # a timeout around `anext` would end the iterator, so the wait for the next event goes on beside the pings
            pending = pending or asyncio.ensure_future(anext(events))
            await asyncio.wait({pending}, timeout=ping_seconds)
            if not pending.done():
                yield b": ping\n\n"
                continue
            event, pending = pending.result(), None
            yield encode(live, event)
            if event.type in TERMINAL:
                return
    finally:
        if pending is not None:
            pending.cancel()


class EventStream(Response):
    """The answer. It owns the run: when the client leaves or the server stops, the run is cancelled."""

    def __init__(self, live: LiveRun, ping_seconds: float = PING_SECONDS) -> None:
        super().__init__()
        self._live = live
        self._ping_seconds = ping_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(client_gone(receive))
        try:
            await asyncio.wait({sender, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            sender.cancel()
            await self._live.stop()
        if sender.done() and not sender.cancelled():
            sender.result()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        async with aclosing(frames(self._live, self._ping_seconds)) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


__all__ = ["EventStream", "encode", "frames"]

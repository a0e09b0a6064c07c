"""A run's events as `text/event-stream`: gapless ids, exactly one terminal event, then the end of the stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, nullcontext

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sglspec.server.runs.feed import Frame
from sglspec.server.runs.live import LiveRun

STALL_SECONDS = 60.0
"""A reader that takes nothing for so long is cut off."""
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_RETRY = b"retry: 2000\n\n"


def encode(frame: Frame) -> bytes:
    """One event on the wire. JSON has no raw line breaks, so one `data:` line holds it."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (frame.seq, frame.type.encode(), frame.data)


async def chunks(events: AsyncIterator[list[Frame]], ping_seconds: float) -> AsyncGenerator[bytes, None]:
    """Events on the wire, those that are there together in one piece, and a comment when there was none for a while."""
    pending: asyncio.Future[list[Frame]] | None = None
    try:
        while True:
            # a timeout around `anext` would end the iterator, so the wait for the next event goes on beside the pings
            pending = pending or asyncio.ensure_future(anext(events))
            await asyncio.wait({pending}, timeout=ping_seconds)
            if not pending.done():
                yield b": ping\n\n"
                continue
            done, pending = pending, None
            try:
                frames = done.result()
            except StopAsyncIteration:
                return
            yield b"".join(map(encode, frames))
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.wait({pending})


class EventStream(Response):
    """The answer. live: the run whose client this is, if it lives here: when the client leaves, the run may end."""

    def __init__(
        self,
        events: AsyncGenerator[list[Frame], None],
        live: LiveRun | None,
        ping_seconds: float,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._events = events
        self._live = live
        self._ping_seconds = ping_seconds
        self._more = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._live.watched() if self._live is not None else nullcontext():
            sender = asyncio.create_task(self._send(send))
            gone = asyncio.create_task(client_gone(receive))
            try:
                await asyncio.wait({sender, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                sender.cancel()
                await asyncio.wait({sender, gone})
            if not sender.cancelled():
                sender.result()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": [*HEADERS, *self._more]}
        async with aclosing(self._events), aclosing(chunks(self._events, self._ping_seconds)) as pieces:
            await send(start)
            await send({"type": "http.response.body", "body": _RETRY, "more_body": True})
            async for piece in pieces:
                async with asyncio.timeout(STALL_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def client_gone(receive: Receive) -> None:
    """Return when the client has closed the connection. The body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


__all__ = ["EventStream", "client_gone", "encode"]

"""Bodies on their way in: within a time, and not while the server stops."""

from __future__ import annotations

import asyncio
import time

from starlette.types import Message, Receive

from sglspec.server.problems import Problem

PIECE_SECONDS = 20.0
"""A client may be silent for so long while it sends a body."""
BODY_SECONDS = 300.0
"""And take so long for all of it."""
_CLOSE = {"Connection": "close"}


class Intake:
    """A `receive` for one request. It raises Problem: 408 for a body that does not come, 503 while the server stops."""

    def __init__(self, receive: Receive, stopping: asyncio.Event) -> None:
        self._receive = receive
        self._stopping = stopping
        self._whole = False
        self._end = time.monotonic() + BODY_SECONDS

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        message = asyncio.ensure_future(self._receive())
        stop = asyncio.ensure_future(self._stopping.wait())
        seconds = max(0.0, min(PIECE_SECONDS, self._end - time.monotonic()))
        try:
            await asyncio.wait({message, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if message.done():
                found = message.result()
                self._whole = not found.get("more_body", False)
                return found
        finally:
            message.cancel()
            stop.cancel()
        if stop.done() and not stop.cancelled():
            raise Problem(503, "stopping", headers=_CLOSE | {"Retry-After": "5"})
        raise Problem(408, "timeout", "The rest of the body did not come.", headers=_CLOSE)


__all__ = ["Intake"]

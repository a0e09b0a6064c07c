"""Reading a run's events from any process: from memory where the run lives here, from the store otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

from sglspec.server.runs.feed import TERMINAL, Frame, read_lines
from sglspec.server.runs.live import LiveRun
from sglspec.server.storage import runs as table
from sglspec.server.storage.database import Database

POLL_SECONDS = 0.5
"""Between looks at a run that lives in another process."""
_CHUNKS = 64


async def follow(
    database: Database, run: str, live: LiveRun | None, ending: asyncio.Event, after: int = -1
) -> AsyncGenerator[list[Frame], None]:
    """Events above a number as they come, those that are there together; ends after the terminal one, and without it
    where the run goes on in another process while this one ends."""
    while True:
        frames = live.feed.after(after) if live is not None else None
        if frames is None:
            frames = await stored(database, run, after)
        if frames:
            yield frames
            after = frames[-1].seq
            if frames[-1].type in TERMINAL:
                return
        elif live is not None and not live.task.done():
            if live.feed.left:
                return
            await live.feed.wait(after)
        else:
            row = await database.read(partial(table.get, run=run))
            if row is None or row.ended_already:
                break
            if ending.is_set():
                return
            live = None
            await asyncio.sleep(POLL_SECONDS)
    # a reader that claims to be further than the end saw events of a process that died before it stored them
    if row is not None and after > row.last_seq:
        yield await stored(database, run, row.last_seq - 1)


async def stored(database: Database, run: str, after: int) -> list[Frame]:
    """Events above a number that are in the store, the next few hundred of them."""
    return read_lines(await database.read(partial(table.events_after, run=run, after=after, limit=_CHUNKS)), after)


__all__ = ["follow", "stored"]

"""The events of one run as clients see them: numbered without gaps, encoded once, for any number of readers."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sglspec.runtime.events import Event
from sglspec.server.problems import to_json
from sglspec.server.storage.runs import Chunk

TERMINAL = ("run.succeeded", "run.failed", "run.cancelled", "run.expired", "run.aborted")
KEPT_BYTES = 65_536
"""Of the newest events, what stays in memory; readers that are further behind read the store."""
MOST_BYTES = 16 * 2**20
"""Of all events of a run. After so many only the terminal event is added."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One event. data: a JSON object without line breaks."""

    seq: int
    type: str
    data: bytes


class Feed:
    """Append-only. Nobody who reads holds up who writes, or makes anything pile up: readers come with a position."""

    def __init__(self, run: str, most_bytes: int = MOST_BYTES) -> None:
        self.run = run
        self.count = 0
        self._began = time.monotonic()
        self._most = most_bytes
        self._size = 0
        self._kept_size = 0
        self._saved = -1
        self._frames: deque[Frame] = deque()
        self._visible = 0
        self._closed = self._truncated = self._left = False
        self._changed = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether readers see the terminal event."""
        return self._closed and self._visible == self.count

    @property
    def age(self) -> float:
        """Seconds since the run was created."""
        return time.monotonic() - self._began

    def add(
        self, type: str, branch: str = "", step: str = "", data: Mapping[str, Any] = {}, age: float | None = None
    ) -> None:
        """Append an event. After the terminal one nothing is added; that one is seen only after `publish`: whoever has
        seen it shall find the run's result in the store."""
        terminal = type in TERMINAL
        if self._closed or (self._truncated and not terminal):
            return
        face: dict[str, Any] = {"run_id": self.run, "seq": self.count, "type": type}
        face["time"] = round(self.age if age is None else age, 4)
        face["branch"] = branch
        if step:
            face["step"] = step
        self._append(Frame(self.count, type, to_json(face | dict(data))))
        if terminal:
            self._closed = True
            return
        if self._size > self._most:
            self._truncated = True
            note = {"reason": f"The events of a run may take {self._most:,} bytes. Its result is not touched by that."}
            face |= {"seq": self.count, "type": "events.truncated", "branch": ""}
            self._append(Frame(self.count, "events.truncated", to_json(face | note)))
        self.publish()

    def publish(self) -> None:
        """Let readers see all that was added."""
        self._visible = self.count
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def left(self) -> bool:
        """Whether the run goes on elsewhere."""
        return self._left

    def leave(self) -> None:
        """Let readers go: what is to come happens in another process."""
        self._left = True
        self.publish()

    def after(self, seq: int) -> list[Frame] | None:
        """Events above a number; None when some of them are in the store only."""
        return self._between(seq, self._visible)

    async def wait(self, seq: int) -> None:
        """Until there is an event above a number, or there will be none."""
        while not (self.closed or self._left) and seq + 1 >= self._visible:
            await self._changed.wait()

    def unsaved(self) -> Chunk | None:
        """What is not in the store yet."""
        frames = self._between(self._saved, self.count)
        if not frames:
            return None
        lines = b"\n".join(frame.data for frame in frames).decode()
        return Chunk(self.run, frames[0].seq, frames[-1].seq, lines)

    def saved(self, seq: int) -> None:
        """Events up to this one are in the store: old ones may leave the memory."""
        self._saved = seq
        while self._kept_size > KEPT_BYTES and self._frames[0].seq <= seq:
            self._kept_size -= len(self._frames.popleft().data)

    def _append(self, frame: Frame) -> None:
        self._frames.append(frame)
        self.count += 1
        self._size += len(frame.data)
        self._kept_size += len(frame.data)

    def _between(self, seq: int, end: int) -> list[Frame] | None:
        if seq + 1 >= end:
            return []
        first = self._frames[0].seq
        if seq + 1 < first:
            return None
        return [self._frames[place - first] for place in range(seq + 1, end)]


def read_lines(chunks: Iterable[Chunk], after: int) -> list[Frame]:
    """Stored events above a number."""
    out: list[Frame] = []
    for chunk in chunks:
        for seq, line in enumerate(chunk.lines.split("\n"), chunk.first):
            if seq > after:
                out.append(Frame(seq, _type_of(line), line.encode()))
    return out


def merged(events: Iterable[Event]) -> list[Event]:
    """Pieces of one step that follow each other in their branch become one."""
    out: list[Event] = []
    newest: dict[str, int] = {}
    for event in events:
        place = newest.get(event.branch)
        if event.type not in _PIECES:
            newest.clear()
            out.append(event)
        elif place is not None and _go_on(out[place], event):
            first = out[place]
            out[place] = replace(first, data={**first.data, "text": first.data["text"] + event.data["text"]})
        else:
            newest[event.branch] = len(out)
            out.append(event)
    return out


def _go_on(first: Event, second: Event) -> bool:
    same = (first.type, first.step) == (second.type, second.step)
    return same and first.data | {"text": ""} == second.data | {"text": ""}


_PIECES = ("delta", "thinking")


def _type_of(line: str) -> str:
    """Our own lines begin with the run, the number and the type."""
    return line.split('"type":"', 1)[1].split('"', 1)[0]


__all__ = ["KEPT_BYTES", "MOST_BYTES", "TERMINAL", "Feed", "Frame", "merged", "read_lines"]

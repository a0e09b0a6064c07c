"""One event stream per run: gapless sequence numbers, exactly one terminal event, any number of readers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from sglspec.backends.base import Token

TERMINAL = ("run.succeeded", "run.failed", "run.cancelled")


@dataclass(frozen=True, slots=True)
class Event:
    """`type` is one of run.started, message.opened, message.closed, text, thinking, delta, generated, selected, bound,
    tool.started, tool.finished, call.started, call.finished, fork.opened, branch.started, branch.finished,
    join.finished, context.joined, and the terminal types. `branch` is the branch path ("" is the main line, "3.1" the
    second branch of the fork that is the run's third, "call.2" a called program). `step` is the JSON pointer of the
    step, in the document `file` if that is not the run's own; `call` the aliases by which its program was called. A
    `text` event with `joined` repeats what branches wrote, now as part of their parent. `tokens` are those of a
    `delta`, which its JSON face leaves out."""

    seq: int
    type: str
    time: float
    branch: str = ""
    step: str = ""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    tokens: tuple[Token, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"seq": self.seq, "type": self.type, "time": round(self.time, 4), "branch": self.branch}
        if self.step:
            out["step"] = self.step
        return out | self.data


def keyed(event: Event) -> str | None:
    """The key of what an event is about, as replies have it: its name, behind the aliases of the program it is in."""
    name, call = event.data.get("name"), event.data.get("call")
    return name if name is None or call is None else f"{call}.{name}"


class EventLog:
    """Append-only. Readers see every event from the start, in order, and end after the terminal one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._forgotten = 0
        self._closed = False
        self._started = time.monotonic()
        self._changed = asyncio.Event()

    @property
    def count(self) -> int:
        """How many events there were."""
        return self._forgotten + len(self.events)

    @property
    def closed(self) -> bool:
        return self._closed

    def add(self, type: str, branch: str = "", step: str = "", tokens: tuple[Token, ...] = (), **data: Any) -> None:
        """Append an event. After the terminal event nothing is added: late news of cancelled branches are dropped."""
        if self.closed:
            return
        now = time.monotonic() - self._started
        self.events.append(Event(self.count, type, now, branch, step, data, tokens))
        self._closed = type in TERMINAL
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def forget(self, seq: int) -> None:
        """Drop the events up to a number: for a log whose only reader is past them, so that a long run stays small."""
        del self.events[: max(seq + 1 - self._forgotten, 0)]
        self._forgotten = max(self._forgotten, seq + 1)

    async def follow(self, after: int = -1) -> AsyncIterator[Event]:
        """Events with `seq` above `after`, as they come."""
        async for events in self.batches(after):
            for event in events:
                yield event

    async def batches(self, after: int = -1) -> AsyncIterator[list[Event]]:
        """The same, all that are there together."""
        position = after + 1
        while True:
            changed = self._changed
            while position < self.count:
                events = self.events[max(position - self._forgotten, 0) :]
                position = self.count
                yield events
                if events[-1].type in TERMINAL:
                    return
            await changed.wait()

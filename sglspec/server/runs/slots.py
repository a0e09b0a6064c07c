"""How many runs there may be at once, and how many may wait; first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from sglspec.server.problems import Problem


class Slots:
    """most: runs at once; most_waiting: runs that wait, and requests on their way to become one."""

    def __init__(self, most: int, most_waiting: int) -> None:
        self.most = most
        self.most_waiting = most_waiting
        self.taken = 0
        self._entering = 0
        self._closed = self._stopped = False
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return sum(not turn.done() for turn in self._queue)

    @contextmanager
    def entry(self) -> Generator[None, None, None]:
        """Holds a place while a request is on its way to become a run. Raises Problem (503) when all are taken."""
        if self._closed:
            raise Problem(503, "stopping", headers={"Retry-After": "5"})
        if self.taken + self.waiting + self._entering >= self.most + self.most_waiting:
            detail = f"This server runs {self.most} programs at once, and {self.most_waiting} wait. Try again later."
            raise Problem(503, "busy", detail, headers={"Retry-After": "1"})
        self._entering += 1
        try:
            yield
        finally:
            self._entering -= 1

    def close(self) -> None:
        """From now on nothing becomes a run."""
        self._closed = True

    def stop(self) -> None:
        """From now on nothing gets a slot: what ends makes no room for what waits."""
        self._stopped = True

    def turn(self) -> asyncio.Future[None]:
        """Done when there is a slot, which then is the caller's until `leave`. Cancel it to leave the queue."""
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        self._next()
        return turn

    def position(self, turn: asyncio.Future[None]) -> int:
        """How many are before it in the queue; 0 also for one whose turn it is."""
        place = 0
        for other in self._queue:
            if other is turn:
                return place
            place += not other.done()
        return 0

    def leave(self) -> None:
        """Give a slot back."""
        self.taken -= 1
        self._next()

    def _next(self) -> None:
        while self._queue and not self._stopped and (self.taken < self.most or self._queue[0].done()):
            turn = self._queue.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)


__all__ = ["Slots"]

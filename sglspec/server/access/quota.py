"""What one key may take: requests a minute, and runs at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from sglspec.server.access.keys import Grant, Key
from sglspec.server.problems import Problem


@dataclass(slots=True)
class _Bucket:
    left: float
    filled: float


class Rates:
    """Requests a minute, key by key: as many at once as a minute has, then one whenever its share of a minute is over.
    Of this process only."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}

    def take(self, key: Key) -> None:
        """Raises Problem (429), and takes nothing, when there is nothing left."""
        if key.requests is None:
            return
        now = time.monotonic()
        bucket = self._buckets.setdefault(key.id, _Bucket(key.requests, now))
        bucket.left = min(key.requests, bucket.left + (now - bucket.filled) * key.requests / 60.0)
        bucket.filled = now
        if bucket.left < 1.0:
            wait = math.ceil((1.0 - bucket.left) * 60.0 / key.requests) if key.requests else 60
            detail = f"This key has {key.requests} requests a minute."
            raise Problem(429, "rate-limited", detail, headers={"Retry-After": str(max(1, wait))})
        bucket.left -= 1.0

    def give_back(self, key: Key) -> None:
        """A request that was refused for being one too many costs nothing."""
        if key.requests is not None and (bucket := self._buckets.get(key.id)) is not None:
            bucket.left = min(key.requests, bucket.left + 1.0)


class Place:
    """One run's part of what its owner may have at once."""

    def __init__(self) -> None:
        self.until: asyncio.Future[None] | asyncio.Task[None] | None = None

    def keep(self, until: asyncio.Future[None] | asyncio.Task[None]) -> None:
        """Hold it until this is done."""
        self.until = until


class Running:
    """Runs at once, owner by owner. A place is taken before there is a run, so that requests that come together cannot
    all find room for one. Of this process only."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place(self, grant: Grant) -> Generator[Place, None, None]:
        """Raises Problem (429)."""
        if grant.runs is not None and self._taken[grant.owner] >= grant.runs:
            detail = f"This key has {grant.runs} runs at once. Try again when one has ended."
            raise Problem(429, "too-many-runs", detail, headers={"Retry-After": "1"})
        self._taken[grant.owner] += 1
        place = Place()
        try:
            yield place
        finally:
            if place.until is None:
                self._leave(grant.owner)
            else:
                place.until.add_done_callback(lambda _: self._leave(grant.owner))

    def _leave(self, owner: str) -> None:
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]


__all__ = ["Place", "Rates", "Running"]

"""All keys of a server, from everywhere they are kept, at hand for every request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from sglspec.server.access.keys import Key, digest_of, id_of

REFRESH_SECONDS = 2.0
"""How long a key that was revoked elsewhere may still open this server."""
_HURRY_SECONDS = 0.2
"""An id that is not known is looked for anew, but not more often than this."""

Source = Callable[[], Awaitable[Sequence[Key]]]


class KeyRing:
    """Empty sources, and it is a server without keys. One key, even a revoked one, and it never is again."""

    def __init__(self, sources: Sequence[Source] = ()) -> None:
        self._sources = tuple(sources)
        self._keys: dict[str, Key] = {}
        self._loaded: float | None = None
        self._loading = asyncio.Lock()
        self._closed = False

    async def locked(self) -> bool:
        """Whether requests need a key. What the sources raise is raised: nobody gets in while they cannot be read."""
        await self._refresh(REFRESH_SECONDS)
        return self._closed

    async def find(self, token: str) -> Key | None:
        """The key, unless it is unknown, revoked or out of date."""
        await self._refresh(REFRESH_SECONDS)
        id = id_of(token)
        if id is not None and id not in self._keys:
            await self._refresh(_HURRY_SECONDS)
        key = self._keys.get(id or "")
        if key is None:
            digest_of(token)  # an unknown key takes as long as a wrong one
            return None
        return key if key.opens(token) and not key.ended else None

    async def _refresh(self, age: float) -> None:
        if not self._sources or self._fresh(age):
            return
        async with self._loading:
            if self._fresh(age):
                return
            began = time.monotonic()
            found = [key for source in self._sources for key in await source()]
            self._keys = {key.id: key for key in found}
            self._closed = self._closed or bool(found)
            self._loaded = began

    def _fresh(self, age: float) -> bool:
        return self._loaded is not None and time.monotonic() - self._loaded < age


__all__ = ["REFRESH_SECONDS", "KeyRing", "Source"]

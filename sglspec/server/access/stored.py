"""Keys in the server's store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sglspec.server.access.keys import Key
from sglspec.server.storage import keys as table
from sglspec.server.storage.database import Database, database_at


class StoredKeys:
    """The keys of one database, for a command that does one thing with them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self) -> list[Key]:
        return asyncio.run(self._database.read(table.load))

    def add(self, key: Key) -> None:
        asyncio.run(self._database.write(lambda connection: table.add(connection, key)))

    def revoke(self, id: str) -> bool:
        return asyncio.run(self._database.write(lambda connection: table.revoke(connection, id)))

    def close(self) -> None:
        asyncio.run(self._database.close())


def open_keys(place: str) -> StoredKeys:
    """Raises SpecError: S611 for a store that cannot be used."""
    database = database_at(place)
    database.open()
    return StoredKeys(database)


async def keys_in(database: Database) -> Sequence[Key]:
    """All keys of a store, for a ring."""
    return await database.read(table.load)


__all__ = ["StoredKeys", "keys_in", "open_keys"]

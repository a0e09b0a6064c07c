"""All the places that a server's keys come from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from sglspec.server.access import Access
from sglspec.server.access.hosts import Hosts
from sglspec.server.access.keyfile import KeyFile, keys_of
from sglspec.server.access.keys import Key
from sglspec.server.access.ring import KeyRing, Source
from sglspec.server.access.stored import keys_in
from sglspec.server.storage.database import Database


def access_to(database: Database, keys_file: str | Path | None = None, hosts: Iterable[str] = ()) -> Access:
    """Keys of the store, of a file, and of SGLSPEC_API_KEYS. hosts: names that the server answers to.

    Raises SpecError (S613) for a file or an environment that holds something else.
    """
    sources: list[Source] = [partial(keys_in, database)]
    if keys_file is not None:
        file = KeyFile(Path(keys_file))
        file.load()

        async def in_file() -> Sequence[Key]:
            return file.load()  # small, and read every other second at most

        sources.append(in_file)
    given = keys_of(os.environ.get("SGLSPEC_API_KEYS", ""))

    async def in_environment() -> Sequence[Key]:
        return given

    sources.append(in_environment)
    return Access(KeyRing(sources), Hosts(hosts))


__all__ = ["access_to"]

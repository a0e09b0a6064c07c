"""API keys: rows that are added and revoked, never removed: a store that had keys does not become open again."""

from __future__ import annotations

import time
from dataclasses import asdict

from sqlalchemy import Connection, func, select, update

from sglspec.server.access.keys import SCOPES, Key, Scope
from sglspec.server.storage.tables import keys


def add(connection: Connection, key: Key) -> None:
    connection.execute(keys.insert().values(**asdict(key) | {"scopes": " ".join(key.scopes)}))


def load(connection: Connection) -> list[Key]:
    """All keys, oldest first. Scopes that a later release knows are left out."""
    rows = connection.execute(select(keys).order_by(keys.c.created, keys.c.id))
    return [Key(id, digest, owner, _scopes(scopes), *rest) for id, digest, owner, scopes, *rest in rows]


def revoke(connection: Connection, id: str) -> bool:
    """Whether there was such a key. One that is revoked already stays as it is."""
    step = update(keys).where(keys.c.id == id).values(revoked=func.coalesce(keys.c.revoked, time.time()))
    return connection.execute(step).rowcount == 1


def _scopes(text: str) -> tuple[Scope, ...]:
    words = text.split()
    return tuple(scope for scope in SCOPES if scope in words)


__all__ = ["add", "load", "revoke"]

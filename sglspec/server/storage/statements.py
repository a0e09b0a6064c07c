"""What several kinds of rows need."""

from __future__ import annotations

import secrets
import time
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def add(connection: Connection, table: Table, **values: Any) -> bool:
    """Insert a row unless one with its key is there. Whether it was inserted."""
    key = table.primary_key.columns.values()[0]
    new = insert_into(connection, table).values(**values).on_conflict_do_nothing()
    return connection.execute(new.returning(key)).first() is not None


def insert_into(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An insert that can say what happens to a row that is there."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def new_id(kind: str) -> str:
    """An identifier that nobody guesses. Those of later milliseconds are greater, so that pages can go by it."""
    return f"{kind}_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(8)}"


__all__ = ["add", "insert_into", "new_id"]

"""From the tables of any earlier release to today's. `versions/` holds one file for each change."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

_LOCK = 0x5347_4C53
"""Of Postgres: two servers that start together migrate one after the other."""


class UnknownRevision(SQLAlchemyError):
    """The store was written by a newer release."""


def migrate(connection: Connection) -> None:
    """Bring the tables up to date, in the connection's transaction. Raises UnknownRevision."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise UnknownRevision(f"a newer sglspec made it: {error}") from None


__all__ = ["UnknownRevision", "migrate"]

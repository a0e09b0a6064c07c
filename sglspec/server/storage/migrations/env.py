"""Run by alembic: migrates over the connection that `migrate` gives."""

from __future__ import annotations

from alembic import context

from sglspec.server.storage.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()

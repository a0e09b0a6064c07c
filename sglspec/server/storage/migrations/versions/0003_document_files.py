"""The files that documents use."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "document_files",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("source", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["digest"],
            ["documents.digest"],
        ),
        sa.PrimaryKeyConstraint("digest", "path"),
    )

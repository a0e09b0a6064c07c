"""Programs, runs, their events, and batches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("format", sa.String(length=4), nullable=False),
        sa.Column("source", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "leases",
        sa.Column("owner", sa.String(length=40), nullable=False),
        sa.Column("expires", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("owner"),
    )
    op.create_table(
        "programs",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("latest", sa.Integer(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("updated", sa.Float(), nullable=False),
        sa.Column("archived", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "aliases",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("alias", sa.String(length=63), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("updated", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["name"],
            ["programs.name"],
        ),
        sa.PrimaryKeyConstraint("name", "alias"),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("principal", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=9), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("program", sa.String(length=63), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("seed", sa.String(length=20), nullable=False),
        sa.Column("owner", sa.String(length=40), nullable=True),
        sa.Column("cancel", sa.Boolean(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("started", sa.Float(), nullable=True),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["digest"],
            ["documents.digest"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("principal", sa.String(length=64), nullable=False),
        sa.Column("mode", sa.String(length=6), nullable=False),
        sa.Column("state", sa.String(length=9), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("program", sa.String(length=63), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("seed", sa.String(length=20), nullable=False),
        sa.Column("request", sa.Text(), nullable=True),
        sa.Column("owner", sa.String(length=40), nullable=True),
        sa.Column("cancel", sa.String(length=9), nullable=True),
        sa.Column("deadline", sa.Float(), nullable=True),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("started", sa.Float(), nullable=True),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("usage", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("trace", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["digest"],
            ["documents.digest"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("runs_ended", "runs", ["ended"], unique=False)
    op.create_index("runs_program", "runs", ["program", "id"], unique=False)
    op.create_index("runs_state", "runs", ["state", "owner"], unique=False)
    op.create_table(
        "versions",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["digest"],
            ["documents.digest"],
        ),
        sa.ForeignKeyConstraint(
            ["name"],
            ["programs.name"],
        ),
        sa.PrimaryKeyConstraint("name", "version"),
        sa.UniqueConstraint("name", "digest", name="versions_digest"),
    )
    op.create_table(
        "batch_rows",
        sa.Column("batch", sa.String(length=40), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("custom_id", sa.Text(), nullable=True),
        sa.Column("inputs", sa.Text(), nullable=True),
        sa.Column("seed", sa.String(length=20), nullable=False),
        sa.Column("run", sa.String(length=40), nullable=True),
        sa.Column("status", sa.String(length=9), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["batch"], ["batches.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("batch", "row"),
    )
    op.create_index("batch_rows_status", "batch_rows", ["batch", "status"], unique=False)
    op.create_table(
        "events",
        sa.Column("run", sa.String(length=40), nullable=False),
        sa.Column("first", sa.Integer(), nullable=False),
        sa.Column("last", sa.Integer(), nullable=False),
        sa.Column("lines", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "first"),
    )
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.String(length=160), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("run", sa.String(length=40), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("scope", "key"),
    )

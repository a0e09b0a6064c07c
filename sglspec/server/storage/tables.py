"""The tables, as the newest migration leaves them. JSON is kept as text: every database stores it byte for byte."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

documents = Table(
    "documents",
    metadata,
    Column("digest", String(71), primary_key=True),  # sha256:…, of the bytes, and of the files that it uses
    Column("format", String(4), nullable=False),
    Column("source", LargeBinary, nullable=False),
)

document_files = Table(
    "document_files",
    metadata,
    Column("digest", String(71), ForeignKey("documents.digest"), primary_key=True),  # of the document that uses it
    Column("path", Text, primary_key=True),  # from the document's folder
    Column("source", LargeBinary, nullable=False),  # UTF-8
)

programs = Table(
    "programs",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("latest", Integer, nullable=False),
    Column("created", Float, nullable=False),  # seconds since 1970, as every time here
    Column("updated", Float, nullable=False),
    Column("archived", Float),
)

versions = Table(
    "versions",
    metadata,
    Column("name", String(63), ForeignKey("programs.name"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("digest", String(71), ForeignKey("documents.digest"), nullable=False),
    Column("created", Float, nullable=False),
    UniqueConstraint("name", "digest", name="versions_digest"),
)

aliases = Table(
    "aliases",
    metadata,
    Column("name", String(63), ForeignKey("programs.name"), primary_key=True),
    Column("alias", String(63), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("revision", Integer, nullable=False),  # goes up with every move: the ETag
    Column("updated", Float, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(40), primary_key=True),  # begins with the time: pages go by it
    Column("principal", String(64), nullable=False),
    Column("mode", String(6), nullable=False),  # sync, stream, async, batch
    Column("state", String(9), nullable=False),
    Column("digest", String(71), ForeignKey("documents.digest"), nullable=False),
    Column("program", String(63)),
    Column("version", Integer),
    Column("seed", String(20), nullable=False),  # 64 bits, unsigned
    Column("request", Text),  # inputs and options, only while the run waits
    Column("owner", String(40)),
    Column("cancel", String(9)),  # the state that is asked for
    Column("deadline", Float),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
    Column("last_seq", Integer, nullable=False),
    Column("usage", Text),
    Column("error", Text),
    Column("result", Text),
    Column("trace", Text),
)
Index("runs_state", runs.c.state, runs.c.owner)
Index("runs_program", runs.c.program, runs.c.id)
Index("runs_ended", runs.c.ended)

events = Table(
    "events",
    metadata,
    Column("run", String(40), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("first", Integer, primary_key=True),
    Column("last", Integer, nullable=False),
    Column("lines", Text, nullable=False),  # one JSON object a line, from `first` to `last`
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("scope", String(160), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("run", String(40), ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("created", Float, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("owner", String(40), primary_key=True),
    Column("expires", Float, nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("principal", String(64), nullable=False),
    Column("state", String(9), nullable=False),
    Column("digest", String(71), ForeignKey("documents.digest"), nullable=False),
    Column("program", String(63)),
    Column("version", Integer),
    Column("seed", String(20), nullable=False),
    Column("owner", String(40)),
    Column("cancel", Boolean, nullable=False),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
    Column("rows", Integer, nullable=False),
    Column("error", Text),
)

batch_rows = Table(
    "batch_rows",
    metadata,
    Column("batch", String(40), ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True),
    Column("row", Integer, primary_key=True),
    Column("custom_id", Text),
    Column("inputs", Text),  # until the row is done
    Column("seed", String(20), nullable=False),
    Column("run", String(40)),
    Column("status", String(9)),  # null until the row is done
    Column("result", Text),
)
Index("batch_rows_status", batch_rows.c.batch, batch_rows.c.status)

keys = Table(
    "keys",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("digest", String(64), nullable=False),  # SHA-256 of the whole key, in hex
    Column("owner", String(64), nullable=False),
    Column("scopes", Text, nullable=False),  # separated by spaces
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Float),
    Column("requests", Integer),  # a minute
    Column("runs", Integer),  # at once
)

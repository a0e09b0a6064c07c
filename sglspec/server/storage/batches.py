"""Batches: many rows of inputs for one program. Every row becomes a run; a row is done when its result stands here.

queued → running → succeeded | failed | cancelled
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, delete, func, select, true, update

from sglspec.server.storage.programs import Document, save_document
from sglspec.server.storage.tables import batch_rows, batches, leases

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
LIVE = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Batch:
    """cancel: whether somebody asked for its end; rows: how many there are; error: JSON."""

    id: str
    principal: str
    state: State
    digest: str
    program: str | None
    version: int | None
    seed: str
    owner: str | None
    cancel: bool
    created: float
    started: float | None
    ended: float | None
    rows: int
    error: str | None

    @property
    def ended_already(self) -> bool:
        return self.state not in LIVE


@dataclass(frozen=True, slots=True)
class BatchRow:
    """inputs: JSON, until the row is done; status: null until then; result: JSON."""

    batch: str
    row: int
    custom_id: str | None
    inputs: str | None
    seed: str
    run: str | None = None
    status: str | None = None
    result: str | None = None


def create(connection: Connection, batch: Batch, rows: Sequence[BatchRow], document: Document) -> None:
    save_document(connection, document)
    connection.execute(batches.insert().values(**{c.name: getattr(batch, c.name) for c in batches.c}))
    if rows:
        connection.execute(batch_rows.insert(), [{c.name: getattr(row, c.name) for c in batch_rows.c} for row in rows])


def get(connection: Connection, batch: str) -> Batch | None:
    row = connection.execute(select(batches).where(batches.c.id == batch)).one_or_none()
    return None if row is None else Batch(*row)


def page(connection: Connection, below: str, limit: int, principal: str | None = None) -> list[Batch]:
    """Batches with ids below one, newest first; of one owner, or all."""
    query = select(batches).where(batches.c.id < below)
    if principal is not None:
        query = query.where(batches.c.principal == principal)
    return [Batch(*row) for row in connection.execute(query.order_by(batches.c.id.desc()).limit(limit))]


def counts(connection: Connection, batch: str) -> dict[str, int]:
    """How many rows have which status; those that are not done count as `waiting`."""
    query = select(batch_rows.c.status, func.count()).where(batch_rows.c.batch == batch).group_by(batch_rows.c.status)
    return {status or "waiting": count for status, count in connection.execute(query)}


def claim(connection: Connection, owner: str) -> Batch | None:
    """The oldest batch that nobody works on, or whose process is dead, or that is ours and was left when the store
    failed; ours from now on. For who works on none."""
    living = select(leases.c.owner).where(leases.c.expires > time.time(), leases.c.owner != owner)
    free = batches.c.owner.is_(None) | batches.c.owner.not_in(living)
    query = select(batches).where(batches.c.state.in_(LIVE), free).order_by(batches.c.id).limit(10)
    for row in connection.execute(query).all():
        held = batches.c.owner.is_(None) if row.owner is None else batches.c.owner == row.owner
        step = update(batches).where(batches.c.id == row.id, batches.c.state.in_(LIVE), held)
        started = func.coalesce(batches.c.started, time.time())
        if connection.execute(step.values(owner=owner, state="running", started=started)).rowcount == 1:
            return get(connection, row.id)
    return None


def pending(connection: Connection, batch: str, after: int, limit: int) -> list[BatchRow]:
    """Rows that are not done, with numbers above one, in order."""
    query = select(batch_rows).where(
        batch_rows.c.batch == batch, batch_rows.c.row > after, batch_rows.c.status.is_(None)
    )
    return [BatchRow(*row) for row in connection.execute(query.order_by(batch_rows.c.row).limit(limit))]


def row_done(connection: Connection, owner: str, row: BatchRow, status: str, run: str | None, result: str) -> bool:
    """Note a row's result. False when the batch is not ours any more."""
    ours = select(true()).where(batches.c.id == row.batch, batches.c.owner == owner, batches.c.state == "running")
    step = update(batch_rows).where(batch_rows.c.batch == row.batch, batch_rows.c.row == row.row, ours.exists())
    return connection.execute(step.values(status=status, run=run, result=result, inputs=None)).rowcount == 1


def finish(connection: Connection, batch: str, owner: str, state: State, error: str | None = None) -> bool:
    """End a batch. False when it has ended already, or is not ours any more."""
    step = update(batches).where(batches.c.id == batch, batches.c.owner == owner, batches.c.state.in_(LIVE))
    return connection.execute(step.values(state=state, ended=time.time(), error=error)).rowcount == 1


def ask_cancel(connection: Connection, batch: str) -> None:
    """Note that a batch shall end; its owner looks. One that nobody works on ends at once."""
    step = update(batches).where(batches.c.id == batch, batches.c.state.in_(LIVE))
    connection.execute(
        step.where(batches.c.state == "queued").values(state="cancelled", ended=time.time(), cancel=True)
    )
    connection.execute(step.values(cancel=True))


def cancelled(connection: Connection, batch: str) -> bool:
    """Whether it shall end."""
    return bool(connection.execute(select(batches.c.cancel).where(batches.c.id == batch)).scalar())


def results(connection: Connection, batch: str, after: int, limit: int, *, succeeded: bool) -> list[BatchRow]:
    """Rows that are done, with numbers above one, in order: those that succeeded, or the others."""
    query = select(batch_rows).where(
        batch_rows.c.batch == batch, batch_rows.c.row > after, batch_rows.c.status.is_not(None)
    )
    wanted = batch_rows.c.status == "succeeded" if succeeded else batch_rows.c.status != "succeeded"
    return [BatchRow(*row) for row in connection.execute(query.where(wanted).order_by(batch_rows.c.row).limit(limit))]


def let_go(connection: Connection, owner: str) -> None:
    """Whoever comes next may go on."""
    connection.execute(update(batches).where(batches.c.owner == owner, batches.c.state.in_(LIVE)).values(owner=None))


def prune(connection: Connection, older: float) -> int:
    """Forget batches that ended before a time."""
    ended = batches.c.ended.is_not(None) & (batches.c.ended < older)
    return connection.execute(delete(batches).where(ended)).rowcount


__all__ = [
    "Batch",
    "BatchRow",
    "State",
    "ask_cancel",
    "cancelled",
    "claim",
    "counts",
    "create",
    "finish",
    "get",
    "let_go",
    "page",
    "pending",
    "prune",
    "results",
    "row_done",
]

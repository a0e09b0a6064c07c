"""Runs: a row with a state, and an append-only log of events.

    queued → running → succeeded | failed | cancelled | expired
    queued → aborted | cancelled | failed

Every step is one statement that asks for the old state and the owner, so that two that want to end a run cannot both
win, and a process that lost its lease cannot write any more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Select, delete, func, select, update

from sglspec.server.storage.programs import Document, save_document
from sglspec.server.storage.statements import add, insert_into
from sglspec.server.storage.tables import events, idempotency, leases, runs

State = Literal["queued", "running", "succeeded", "failed", "cancelled", "expired", "aborted"]
Mode = Literal["sync", "stream", "async", "batch"]
STATES: tuple[State, ...] = ("queued", "running", "succeeded", "failed", "cancelled", "expired", "aborted")
RUN_ID = re.compile(r"run_[0-9a-f]{28}")
LIVE: tuple[State, ...] = ("queued", "running")
MAX_SEQ = 2**31 - 1
"""What a column for the numbers of events holds."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """What is known of a run, without its result. Times in seconds since 1970. request: inputs and options as JSON,
    only while it waits; cancel: the state that somebody asked for; usage, error: JSON."""

    id: str
    principal: str
    mode: Mode
    state: State
    digest: str
    program: str | None
    version: int | None
    seed: str
    request: str | None
    owner: str | None
    cancel: str | None
    deadline: float | None
    created: float
    started: float | None = None
    ended: float | None = None
    last_seq: int = -1
    usage: str | None = None
    error: str | None = None

    @property
    def ended_already(self) -> bool:
        return self.state not in LIVE


@dataclass(frozen=True, slots=True)
class Once:
    """A request that must not be carried out twice. fingerprint: of its body."""

    scope: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events of a run from `first` to `last`: one JSON object a line."""

    run: str
    first: int
    last: int
    lines: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended. usage, error, result, trace: JSON; chunk: the rest of its events, the terminal one last."""

    state: State
    chunk: Chunk
    usage: str | None = None
    error: str | None = None
    result: str | None = None
    trace: str | None = None


class OtherRequest(Exception):
    """The idempotency key belongs to a request with another body."""


_FIELDS = (
    runs.c.id, runs.c.principal, runs.c.mode, runs.c.state, runs.c.digest, runs.c.program, runs.c.version, runs.c.seed,
    runs.c.request, runs.c.owner, runs.c.cancel, runs.c.deadline, runs.c.created, runs.c.started, runs.c.ended,
    runs.c.last_seq, runs.c.usage, runs.c.error,
)  # fmt: skip


def create(connection: Connection, row: RunRow, document: Document | None, once: Once | None = None) -> str:
    """Store a new run and give its id: that of an earlier run when the request came before.

    document: the program's text unless it is stored. Raises OtherRequest.
    """
    if document is not None:
        save_document(connection, document)
    if once is not None and (found := before(connection, once)) is not None:
        return found
    connection.execute(runs.insert().values(**{column.name: getattr(row, column.name) for column in _FIELDS}))
    if once is not None:
        entry = {"scope": once.scope, "key": once.key, "fingerprint": once.fingerprint}
        if not add(
            connection, idempotency, **entry, run=row.id, created=row.created
        ):  # the same request, at the same moment, in another process
            found = before(connection, once)
            assert found is not None
            connection.execute(delete(runs).where(runs.c.id == row.id))
            return found
    return row.id


def before(connection: Connection, once: Once) -> str | None:
    """The run of an earlier request with this key. Raises OtherRequest."""
    query = select(idempotency.c.run, idempotency.c.fingerprint)
    row = connection.execute(
        query.where(idempotency.c.scope == once.scope, idempotency.c.key == once.key)
    ).one_or_none()
    if row is None:
        return None
    if row.fingerprint != once.fingerprint:
        raise OtherRequest
    return row.run


def begin(connection: Connection, run: str, owner: str) -> bool:
    """queued → running. False when it is not in the queue any more, or not ours, or shall be cancelled."""
    step = update(runs).where(runs.c.id == run, runs.c.state == "queued", runs.c.owner == owner)
    step = step.where(runs.c.cancel.is_(None)).values(state="running", started=time.time(), request=None)
    return connection.execute(step).rowcount == 1


def append(connection: Connection, owner: str, chunks: Sequence[Chunk]) -> None:
    """Add events of runs that are ours."""
    ids = {chunk.run for chunk in chunks}
    query = select(runs.c.id).where(runs.c.id.in_(ids), runs.c.owner == owner, runs.c.state.in_(LIVE))
    ours = set(connection.execute(query).scalars())
    _insert(connection, [chunk for chunk in chunks if chunk.run in ours])


def finish(connection: Connection, owner: str, ending: Ending) -> bool:
    """End a run, with the rest of its events. False when it has ended already, or is not ours any more."""
    chunk = ending.chunk
    step = update(runs).where(runs.c.id == chunk.run, runs.c.state.in_(LIVE), runs.c.owner == owner)
    step = step.values(
        state=ending.state, ended=time.time(), request=None, last_seq=chunk.last, usage=ending.usage,
        error=ending.error, result=ending.result, trace=ending.trace,
    )  # fmt: skip
    if connection.execute(step).rowcount != 1:
        return False
    _insert(connection, [chunk])
    return True


def ask_cancel(connection: Connection, run: str, wanted: State = "cancelled") -> bool:
    """Note that a run shall end; its owner looks. False when there is none that could."""
    step = update(runs).where(runs.c.id == run, runs.c.state.in_(LIVE))
    return connection.execute(step.values(cancel=func.coalesce(runs.c.cancel, wanted))).rowcount == 1


def to_cancel(connection: Connection, owner: str) -> list[tuple[str, str]]:
    """Our runs that somebody asked to end, with the state that is asked for."""
    query = select(runs.c.id, runs.c.cancel).where(runs.c.owner == owner, runs.c.state.in_(LIVE))
    return [(row.id, row.cancel) for row in connection.execute(query.where(runs.c.cancel.is_not(None)))]


def get(connection: Connection, run: str) -> RunRow | None:
    row = connection.execute(select(*_FIELDS).where(runs.c.id == run)).one_or_none()
    return None if row is None else RunRow(*row)


def page(
    connection: Connection,
    below: str,
    limit: int,
    *,
    states: Iterable[State] = (),
    program: str | None = None,
    principal: str | None = None,
) -> list[RunRow]:
    """Runs with ids below one, newest first."""
    query: Select[*tuple[Any, ...]] = select(*_FIELDS).where(runs.c.id < below)
    if states := tuple(states):
        query = query.where(runs.c.state.in_(states))
    if program is not None:
        query = query.where(runs.c.program == program)
    if principal is not None:
        query = query.where(runs.c.principal == principal)
    return [RunRow(*row) for row in connection.execute(query.order_by(runs.c.id.desc()).limit(limit))]


def result(connection: Connection, run: str) -> str | None:
    return connection.execute(select(runs.c.result).where(runs.c.id == run)).scalar_one_or_none()


def trace(connection: Connection, run: str) -> str | None:
    return connection.execute(select(runs.c.trace).where(runs.c.id == run)).scalar_one_or_none()


def events_after(connection: Connection, run: str, after: int, limit: int = 64) -> list[Chunk]:
    """Chunks that hold events after a number, at most so many."""
    after = min(after, MAX_SEQ)  # Postgres compares no column with a number that the column cannot hold
    query = select(events).where(events.c.run == run, events.c.last > after).order_by(events.c.first).limit(limit)
    return [Chunk(*row) for row in connection.execute(query)]


def take_over(connection: Connection, owner: str, here: Collection[str] = ()) -> tuple[list[RunRow], list[RunRow]]:
    """What processes left whose lease has run out, or that let go of it: runs that wait, now ours, and those that
    somebody waited for or that had begun, ours to end. So are runs of our own that are not `here`: those whose
    beginning we did not learn of, because the store failed just then."""
    living = select(leases.c.owner).where(leases.c.expires > time.time(), leases.c.owner != owner)
    free = runs.c.owner.is_(None) | runs.c.owner.not_in(living)
    query = select(*_FIELDS).where(runs.c.state.in_(LIVE), free, runs.c.id.not_in(here))
    waiting: list[RunRow] = []
    lost: list[RunRow] = []
    for row in [RunRow(*found) for found in connection.execute(query.limit(1000))]:
        held = runs.c.owner.is_(None) if row.owner is None else runs.c.owner == row.owner
        taken = update(runs).where(runs.c.id == row.id, runs.c.state == row.state, held).values(owner=owner)
        if connection.execute(taken).rowcount != 1:
            continue
        if row.state == "queued" and row.mode == "async":
            # that it waits was said by who had it before: it is said again, with the same number
            connection.execute(delete(events).where(events.c.run == row.id))
            waiting.append(row)
        else:
            lost.append(row)
    return waiting, lost


def let_go(connection: Connection, owner: str) -> None:
    """Whoever comes next may take what waits."""
    connection.execute(update(runs).where(runs.c.owner == owner, runs.c.state == "queued").values(owner=None))
    connection.execute(delete(leases).where(leases.c.owner == owner))


def renew(connection: Connection, owner: str, expires: float) -> None:
    """A process says that it lives."""
    if not add(connection, leases, owner=owner, expires=expires):
        connection.execute(update(leases).where(leases.c.owner == owner).values(expires=expires))
    connection.execute(delete(leases).where(leases.c.expires < time.time() - 3600))


def last_event(connection: Connection, run: str) -> int:
    """The number of the last stored event, -1 for none."""
    last = connection.execute(select(func.max(events.c.last)).where(events.c.run == run)).scalar()
    return -1 if last is None else last


def prune(connection: Connection, older: float, most: int) -> int:
    """Forget runs that ended before a time, and the oldest beyond so many; at most 500 at once."""
    ended = select(runs.c.id).where(runs.c.ended.is_not(None)).order_by(runs.c.ended)
    ids = set(connection.execute(ended.where(runs.c.ended < older).limit(500)).scalars())
    if not ids:
        count = connection.execute(select(func.count()).select_from(runs).where(runs.c.ended.is_not(None))).scalar_one()
        if count > most:
            ids = set(connection.execute(ended.limit(min(count - most, 500))).scalars())
    if ids:
        connection.execute(delete(runs).where(runs.c.id.in_(ids)))
    return len(ids)


def _insert(connection: Connection, chunks: Sequence[Chunk]) -> None:
    """A chunk that is there already was stored by a job whose success we did not learn of: what comes now holds it."""
    if chunks:
        rows = [{"run": c.run, "first": c.first, "last": c.last, "lines": c.lines} for c in chunks]
        new = insert_into(connection, events)
        told = {"last": new.excluded.last, "lines": new.excluded.lines}
        connection.execute(new.on_conflict_do_update(index_elements=["run", "first"], set_=told), rows)


__all__ = [
    "LIVE",
    "RUN_ID",
    "STATES",
    "Chunk",
    "Ending",
    "Mode",
    "Once",
    "OtherRequest",
    "RunRow",
    "State",
    "append",
    "ask_cancel",
    "before",
    "begin",
    "create",
    "events_after",
    "finish",
    "get",
    "last_event",
    "let_go",
    "page",
    "prune",
    "renew",
    "result",
    "take_over",
    "to_cancel",
    "trace",
]

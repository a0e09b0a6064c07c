"""The store, on SQLite and on Postgres: what must hold whoever writes at the same time."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import OperationalError

from sglspec.diagnostics import SpecError
from sglspec.server.storage import programs, runs
from sglspec.server.storage.database import Database, database_at
from sglspec.server.storage.programs import Conflict, Document
from sglspec.server.storage.runs import Chunk, Ending, Once, OtherRequest, RunRow
from sglspec.server.storage.statements import new_id
from sglspec.server.storage.tables import metadata

DOCUMENT = Document.of(b"sglspec: v1\nsteps: [hi]  # \xc3\xa9\r\n", "yaml")


def new_run(**values: Any) -> RunRow:
    row = RunRow(
        new_id("run"), "", "async", "queued", DOCUMENT.digest, None, None, str(2**64 - 1), '{"inputs":{}}', "me",
        None, None, time.time(),
    )  # fmt: skip
    return replace(row, **values)


def ending(run: str, state: runs.State = "succeeded", first: int = 0) -> Ending:
    return Ending(state, Chunk(run, first, first, f'{{"seq":{first}}}'), result="{}")


async def created(database: Database, once: Once | None = None, **values: Any) -> str:
    return await database.write(partial(runs.create, row=new_run(**values), document=DOCUMENT, once=once))


async def state(database: Database, run: str) -> str:
    row = await database.read(partial(runs.get, run=run))
    assert row is not None
    return row.state


async def test_migrations_give_the_tables(database: Database) -> None:
    def differences(connection: Any) -> list[Any]:
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)

    assert await database.read(differences) == []


async def test_a_store_of_a_newer_release_is_refused(place: str) -> None:
    first = database_at(place)
    await first.write(lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    await first.close()
    second = database_at(place)
    with pytest.raises(SpecError, match="a newer sglspec"):
        second.open()
    await second.close()


async def test_a_document_comes_back_byte_for_byte(database: Database) -> None:
    await database.write(partial(programs.save_document, document=DOCUMENT))
    assert await database.read(partial(programs.document, digest=DOCUMENT.digest)) == DOCUMENT


async def test_versions_and_their_texts(database: Database) -> None:
    save = partial(database.write)
    other = Document.of(b"sglspec: v1\nsteps: [ho]\n", "yaml")
    first, new = await save(partial(programs.save, name="p", document=DOCUMENT))
    again, renewed = await save(partial(programs.save, name="p", document=DOCUMENT))
    second, _ = await save(partial(programs.save, name="p", document=other))
    back, _ = await save(partial(programs.save, name="p", document=DOCUMENT))
    assert (first.version, new) == (1, True)
    assert (again, renewed) == (first, False)
    assert second.version == 2 and back.version == 1
    for which, version in ((None, 2), ("1", 1), (other.digest, 2), ("3", None), ("9" * 30, None), ("prod", None)):
        found = await database.read(partial(programs.find, name="p", which=which))
        assert (found.version if found else None) == version, which


async def test_many_who_save_at_once_get_numbers_without_gaps(place: str) -> None:
    stores = [database_at(place) for _ in range(3)]
    documents = [Document.of(b"sglspec: v1\nsteps: [%d]\n" % n, "yaml") for n in range(12)]
    jobs = [s.write(partial(programs.save, name="p", document=d)) for d in documents for s in stores]
    saved = await asyncio.gather(*jobs)
    assert sorted(v.version for v, new in saved if new) == list(range(1, 13))
    assert all(v.digest == d.digest for (v, _), d in zip(saved, [d for d in documents for _ in stores], strict=True))
    for store in stores:
        await store.close()


async def test_an_alias_moves_only_from_where_it_was_seen(database: Database) -> None:
    await database.write(partial(programs.save, name="p", document=DOCUMENT))

    async def move(condition: programs.Condition) -> int:
        job = partial(programs.move_alias, name="p", alias="prod", version=1, condition=condition)
        return (await database.write(job)).revision

    for condition in (1, "old"):
        with pytest.raises(Conflict):
            await move(condition)
    assert await database.read(partial(programs.alias, name="p", alias="prod")) is None
    assert [await move("new"), await move(1), await move(None), await move("old")] == [1, 2, 3, 4]
    for condition in ("new", 1, 3):
        with pytest.raises(Conflict):
            await move(condition)
    moves = await asyncio.gather(*(move(4) for _ in range(5)), return_exceptions=True)
    assert sorted(str(type(m).__name__) for m in moves) == ["Conflict"] * 4 + ["int"]


async def test_a_run_begins_and_ends_once(database: Database) -> None:
    run = await created(database)
    assert not await database.write(partial(runs.begin, run=run, owner="other"))
    assert await database.write(partial(runs.begin, run=run, owner="me"))
    assert not await database.write(partial(runs.begin, run=run, owner="me"))
    row = await database.read(partial(runs.get, run=run))
    assert row is not None and row.request is None and row.started is not None
    assert not await database.write(partial(runs.finish, owner="other", ending=ending(run)))
    ends = [partial(runs.finish, owner="me", ending=ending(run, s)) for s in ("cancelled", "succeeded", "failed")]
    assert await asyncio.gather(*map(database.write, ends)) == [True, False, False]
    assert await state(database, run) == "cancelled"
    assert [c.last for c in await database.read(partial(runs.events_after, run=run, after=-1))] == [0]


async def test_a_cancel_in_the_queue_keeps_a_run_from_beginning(database: Database) -> None:
    run = await created(database)
    assert await database.write(partial(runs.ask_cancel, run=run))
    assert not await database.write(partial(runs.begin, run=run, owner="me"))
    assert await database.read(partial(runs.to_cancel, owner="me")) == [(run, "cancelled")]
    await database.write(partial(runs.finish, owner="me", ending=ending(run, "cancelled")))
    assert not await database.write(partial(runs.ask_cancel, run=run))


async def test_one_request_with_a_key_is_one_run(database: Database) -> None:
    once = Once("scope", "key", "a" * 64)
    made = await asyncio.gather(*(created(database, once) for _ in range(8)))
    assert len(set(made)) == 1
    with pytest.raises(OtherRequest):
        await created(database, replace(once, fingerprint="b" * 64))
    assert await created(database, replace(once, scope="other")) != made[0]
    assert len(await database.read(partial(runs.page, below="run_~", limit=100))) == 2


async def test_events_of_a_run_that_is_not_ours_are_not_written(database: Database) -> None:
    mine, foreign = await created(database), await created(database, owner="other")
    chunks = [Chunk(mine, 0, 1, "a\nb"), Chunk(foreign, 0, 0, "c")]
    await database.write(partial(runs.append, owner="me", chunks=chunks))
    await database.write(partial(runs.append, owner="me", chunks=[Chunk(mine, 2, 2, "d")]))
    stored = await database.read(partial(runs.events_after, run=mine, after=1))
    assert [(c.first, c.lines) for c in stored] == [(2, "d")]
    assert await database.read(partial(runs.events_after, run=foreign, after=-1)) == []


async def test_events_whose_storing_was_not_learnt_of(database: Database) -> None:
    """A connection that breaks while it commits leaves open what is stored: it is stored again, with what came since."""
    run = await created(database)
    for chunk in (Chunk(run, 0, 1, "a\nb"), Chunk(run, 0, 2, "a\nb\nc")):
        await database.write(partial(runs.append, owner="me", chunks=[chunk]))
    end = replace(ending(run), chunk=Chunk(run, 0, 3, "a\nb\nc\nd"))
    assert await database.write(partial(runs.finish, owner="me", ending=end))
    assert await database.read(partial(runs.events_after, run=run, after=-1)) == [end.chunk]


async def test_runs_whose_beginning_was_not_learnt_of(database: Database) -> None:
    await database.write(partial(runs.renew, owner="me", expires=time.time() + 60))
    here, waiting, watched = [await created(database, mode=mode) for mode in ("async", "async", "sync")]
    found = await database.write(partial(runs.take_over, owner="me", here={here}))
    assert [[row.id for row in rows] for rows in found] == [[waiting], [watched]]


async def test_what_a_dead_process_left(database: Database) -> None:
    now = time.time()
    await database.write(partial(runs.renew, owner="alive", expires=now + 60))
    await database.write(partial(runs.renew, owner="dead", expires=now - 1))
    kept = await created(database, owner="alive")
    waiting = await created(database, owner="dead")
    let_go = await created(database, owner=None)
    begun = await created(database, owner="dead")
    await database.write(partial(runs.begin, run=begun, owner="dead"))
    watched = await created(database, owner="dead", mode="sync")
    takes = [await database.write(partial(runs.take_over, owner="me")) for _ in range(2)]
    assert {row.id for row in takes[0][0]} == {waiting, let_go}
    assert {row.id for row in takes[0][1]} == {begun, watched}
    # the new owner has no lease in this test, so the second look finds the same again, and nothing of the living
    assert kept not in {row.id for found in takes[1] for row in found}
    assert not await database.write(partial(runs.finish, owner="dead", ending=ending(begun)))
    assert await database.write(partial(runs.finish, owner="me", ending=ending(begun, "failed")))


async def test_old_runs_are_forgotten_with_their_events(database: Database) -> None:
    ids = [await created(database, Once("s", str(n), "f")) for n in range(5)]
    for run in ids[:4]:
        await database.write(partial(runs.finish, owner="me", ending=ending(run)))
    assert await database.write(partial(runs.prune, older=0.0, most=2)) == 2
    assert await database.write(partial(runs.prune, older=time.time() + 1, most=2)) == 2
    assert [r.id for r in await database.read(partial(runs.page, below="run_~", limit=9))] == ids[4:]
    count = text("SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM idempotency)")
    assert await database.read(lambda connection: connection.execute(count).scalar()) == 1


async def test_writers_wait_for_a_lock_that_another_process_holds(tmp_path) -> None:
    database = database_at(str(tmp_path / "store.db"))
    await created(database)
    with sqlite3.connect(tmp_path / "store.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(created(database))
        reading = await database.read(partial(runs.page, below="run_~", limit=9))
        assert len(reading) == 1 and not writing.done()
        other.execute("COMMIT")
        await writing
    await database.close()


async def test_jobs_behind_a_lock_wait_together(tmp_path, monkeypatch) -> None:
    """Not one after the other, each as long as the first one."""
    database = database_at(str(tmp_path / "store.db"))
    await created(database)
    monkeypatch.setattr("sglspec.server.storage.database.BUSY_SECONDS", 0.2)
    told: list[str] = []

    def executed(_: Any, cursor: Any, statement: str, *rest: Any) -> None:
        told.append(statement)

    event.listen(Engine, "before_cursor_execute", executed)
    try:
        with sqlite3.connect(tmp_path / "store.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            found = await asyncio.gather(*(created(database) for _ in range(3)), return_exceptions=True)
            other.execute("COMMIT")
    finally:
        event.remove(Engine, "before_cursor_execute", executed)
    assert all(isinstance(one, OperationalError) for one in found)
    assert [line for line in told if "busy_timeout" in line][1:] == ["PRAGMA busy_timeout = 100"] * 2
    await created(database)
    await database.close()


async def test_a_job_that_was_given_is_done(database: Database) -> None:
    await created(database)
    writing = asyncio.create_task(created(database))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await database.write(lambda _: None)  # after that one
    assert len(await database.read(partial(runs.page, below="run_~", limit=9))) == 2


async def test_a_temporary_store_leaves_nothing() -> None:
    database = database_at(None)
    await created(database)
    assert database.url.database is not None and not database.lasting
    await database.close()
    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(f"file:{database.url.database}?mode=ro", uri=True)


@pytest.mark.parametrize("place", ["redis://x", "://", "sqlite://", "mysql://x/y"])
def test_addresses_that_are_no_store(place: str) -> None:
    with pytest.raises(SpecError, match=r"store"):
        database_at(place)


def test_passwords_are_not_told() -> None:
    with pytest.raises(SpecError) as error:
        database_at("postgresql://me:secret@127.0.0.1:1/x").open()
    assert "secret" not in error.value.diagnostics[0].message

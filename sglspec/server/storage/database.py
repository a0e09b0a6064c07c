"""One database: a single writer that takes jobs in order, and a few readers beside it.

A job is a function of a connection; it runs on a thread in a transaction of its own. SQLite's writers begin IMMEDIATE:
a transaction that turned into a writer half way would fail at once when another process writes, however long the
busy timeout is. One writer per process also means that runs of one process never wait for each other's locks.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from sglspec.diagnostics import Diagnostic, SpecError, sentence
from sglspec.server.storage.migrations import migrate

T = TypeVar("T")
Job = Callable[[Connection], T]
BUSY_SECONDS = 10
LEAST_BUSY_SECONDS = 0.1
"""For a job that waited longer than that in our own queue: other processes hold the lock for moments all the time."""
_READERS = 4


class Database:
    """Opened by its first job, or by `open`. Raises SQLAlchemyError from jobs where the database fails."""

    def __init__(self, url: URL, folder: Path | None = None) -> None:
        """folder: a temporary one, removed with the database."""
        self.url = url
        self._writer = ThreadPoolExecutor(1, "sglspec-store")
        self._readers = ThreadPoolExecutor(_READERS, "sglspec-store-read")
        self._engines: tuple[Engine, Engine] | None = None
        self._closed = False
        self._cleanup = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True) if folder else None

    @property
    def lasting(self) -> bool:
        """Whether what is stored is there after a restart."""
        return self._cleanup is None

    @property
    def closed(self) -> bool:
        """Whether no job is taken any more."""
        return self._closed

    def open(self) -> None:
        """Connect and migrate, here and now. Raises SpecError (S611)."""
        try:
            self._writer.submit(self._ready).result()
        except (SQLAlchemyError, OSError, ImportError) as error:
            raise SpecError(_unusable(self.url, error)) from None

    async def write(self, job: Job[T]) -> T:
        """Do a job that writes. It is done, and committed, even when who waits for it is cancelled."""
        end = time.monotonic() + BUSY_SECONDS
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._writer, self._write, job, end))

    async def read(self, job: Job[T]) -> T:
        """Do a job that only reads."""
        if self._engines is None:
            await self.write(lambda _: None)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, job)

    async def close(self) -> None:
        """After the jobs that were given."""
        self._closed = True
        await asyncio.to_thread(self._close)

    def _ready(self) -> tuple[Engine, Engine]:
        if self._engines is None:
            writer, reader = _engine(self.url, writer=True), _engine(self.url, writer=False)
            with writer.begin() as connection:
                migrate(connection)
            self._engines = writer, reader
        return self._engines

    def _write(self, job: Job[T], end: float) -> T:
        """end: until when it waits for other processes. The time in our queue counts: jobs that each waited anew behind
        a lock would add up to minutes."""
        engine = self._ready()[0]
        left = max(end - time.monotonic(), LEAST_BUSY_SECONDS)
        with engine.connect().execution_options(patience=left) as connection, connection.begin():
            return job(connection)

    def _read(self, job: Job[T]) -> T:
        assert self._engines is not None
        with self._engines[1].connect() as connection:
            return job(connection)

    def _close(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        for engine in self._engines or ():
            engine.dispose()
        if self._cleanup is not None:
            self._cleanup()


def database_at(place: str | None) -> Database:
    """place: a URL (`postgresql://…`, `sqlite:///…`), the path of an SQLite file, or None for a temporary one.

    Raises SpecError (S611) for a URL of another kind.
    """
    if place is None:
        folder = Path(tempfile.mkdtemp(prefix="sglspec-"))
        return Database(URL.create("sqlite", database=str(folder / "store.db")), folder)
    if "://" not in place:
        return Database(URL.create("sqlite", database=str(Path(place).absolute())))
    try:
        url = make_url(place)
    except (ArgumentError, ValueError):
        raise SpecError(Diagnostic("S611", "The address of the store is not a URL.", help=_HELP)) from None
    backend = url.get_backend_name()
    if backend in ("postgres", "postgresql"):
        return Database(url.set(drivername="postgresql+psycopg"))
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return Database(url.set(drivername="sqlite"))
    raise SpecError(Diagnostic("S611", f"The store cannot be of the kind `{backend}`.", help=_HELP))


_HELP = "Give the path of an SQLite file, or `postgresql://USER:PASSWORD@HOST/NAME`."


def _engine(url: URL, *, writer: bool) -> Engine:
    size = 1 if writer else _READERS
    if url.get_backend_name() != "sqlite":
        return create_engine(url, hide_parameters=True, pool_size=size, max_overflow=0, pool_pre_ping=True)
    engine = create_engine(
        url, hide_parameters=True, pool_size=size, max_overflow=0, connect_args={"timeout": BUSY_SECONDS}
    )

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.isolation_level = None  # the driver begins nothing by itself
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        patience = connection.get_execution_options().get("patience", BUSY_SECONDS)
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {patience * 1000:.0f}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")

    return engine


def _unusable(url: URL, error: Exception) -> Diagnostic:
    place = url.render_as_string(hide_password=True)
    if isinstance(error, ImportError):
        message = f"The store `{place}` needs the package `{error.name}`, which is not installed."
        return Diagnostic("S607", message, help="Run `pip install 'sglspec[server]'`.")
    reason = str(getattr(error, "orig", None) or error).strip().splitlines()
    return Diagnostic("S611", sentence(f"the store `{place}` cannot be opened: {reason[0] if reason else 'no reason'}"))


__all__ = ["BUSY_SECONDS", "Database", "Job", "database_at"]

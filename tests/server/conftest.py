"""Applications over scripted backends, asked in the process or over a real socket."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg import sql

from sglspec.backends.base import Backend, Delta, GenRequest, Session
from sglspec.backends.scripted import Script, ScriptedBackend, ScriptedSession
from sglspec.server.access import Access
from sglspec.server.application import create_app
from sglspec.server.drain import Server
from sglspec.server.listen import bind
from sglspec.server.service import Limits
from sglspec.server.storage.database import Database, database_at
from tests.server.postgres import binaries, server

EXAMPLE = Path(__file__).parents[2] / "examples" / "04-essay-judge.sglspec.yaml"
JUDGE_REPLIES: dict[str, Any] = {
    "related": "yes",
    "judgment": " Clear and short. ",
    "summary": " a good essay",
    "grade": {"summary": "good", "letter": "A"},
}


class Stuck(ScriptedBackend):
    """A model that never says anything. `started` and `cancelled` tell what happened to its generation."""

    def __init__(self) -> None:
        super().__init__({})
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def open(self, label: str = "", caller: Session | None = None) -> Session:
        return StuckSession(self)


class StuckSession(ScriptedSession):
    def __init__(self, backend: Stuck) -> None:
        super().__init__(Script({}))
        self._stuck = backend

    async def generate(self, request: GenRequest) -> AsyncIterator[Delta]:
        self._stuck.started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self._stuck.cancelled.set()
            raise
        yield Delta("")


class Broken(ScriptedBackend):
    """A model with a fault in it."""

    async def open(self, label: str = "", caller: Session | None = None) -> Session:
        return BrokenSession(Script({}))


class BrokenSession(ScriptedSession):
    async def generate(self, request: GenRequest) -> AsyncIterator[Delta]:
        raise ZeroDivisionError("secret of the house")
        yield Delta("")


@pytest.fixture
def judge() -> str:
    return EXAMPLE.read_text()


@pytest.fixture
def stuck() -> Callable[[], Stuck]:
    return Stuck


@pytest.fixture
def broken() -> Callable[[], Broken]:
    return lambda: Broken({})


@pytest.fixture(scope="session")
def postgres() -> Generator[str, None, None]:
    """The URL of a Postgres server."""
    folder = binaries()
    if folder is None:
        pytest.skip("Postgres is not installed (Debian: apt-get install postgresql)")
    with server(folder) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str, None, None]:
    """Where a new store can be, of each kind."""
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    url = request.getfixturevalue("postgres")
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield f"{url}/{name}"
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
async def database(place: str) -> AsyncGenerator[Database, None]:
    """An empty store of each kind."""
    found = database_at(place)
    yield found
    await found.close()


MakeApp = Callable[..., FastAPI]


@pytest.fixture
def make_app() -> MakeApp:
    """An application over a backend, or over scripted replies (the essay judge's unless given)."""

    def make(
        backend: Backend | None = None,
        replies: dict[str, Any] | None = None,
        database: Database | None = None,
        access: Access | None = None,
        control_tokens: bool = False,
        **limits: Any,
    ) -> FastAPI:
        async def opener(reference: str | None, model: str | None) -> Backend:
            return backend or ScriptedBackend(JUDGE_REPLIES if replies is None else replies)

        return create_app(
            opener=opener, limits=Limits(**limits), database=database, access=access, control_tokens=control_tokens
        )

    return make


MakeClient = Callable[[FastAPI], httpx.AsyncClient]


@pytest.fixture
def client_of() -> MakeClient:
    """A client that calls the application in the process; a fault in it becomes what a server would answer."""

    def client(app: FastAPI) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://localhost")

    return client


Listening = Callable[[FastAPI], AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def listening() -> Listening:
    """A client of the application behind uvicorn on a free port."""

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncGenerator[httpx.AsyncClient, None]:
        listener = bind("127.0.0.1", 0)
        http = Server(app, drain_seconds=1.0)
        task = asyncio.create_task(http.serve(sockets=[listener]))
        try:
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=120
            ) as client:
                yield client
        finally:
            http.should_exit = True
            await task
            listener.close()

    return run

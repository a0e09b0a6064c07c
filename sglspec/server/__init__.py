"""The HTTP server: programs posted to `/v1/runs`, answered with JSON or server-sent events.

`app` is the ASGI application with settings from the environment (`SGLSPEC_MODEL`, `SGLSPEC_BACKEND`, `SGLSPEC_STORE`,
`SGLSPEC_API_KEYS`); it is built when it is first asked for. `serve` listens. Importing this package imports neither
FastAPI nor a model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sglspec.diagnostics import Diagnostic, SpecError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from sglspec.server.logs import Format, Level
    from sglspec.tools import Tools

    app: FastAPI

DEFAULT_PORT = 8080


def __getattr__(name: str) -> FastAPI:
    """Build `app` when it is first asked for (PEP 562), and keep it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sglspec.server.access.sources import access_to
    from sglspec.server.application import create_app
    from sglspec.server.storage.database import database_at

    backend, model = (os.environ.get(name) or None for name in ("SGLSPEC_BACKEND", "SGLSPEC_MODEL"))
    database = database_at(os.environ.get("SGLSPEC_STORE") or None)
    built = create_app(backend, model, database=database, access=access_to(database))
    globals()["app"] = built
    return built


def serve(
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    model: str | None = None,
    backend: str | None = None,
    engine: Mapping[str, object] | None = None,
    tools: Tools | None = None,
    store: str | None = None,
    programs: Sequence[str | Path] | None = None,
    roots: Sequence[str | Path] = (),
    max_runs: int | None = None,
    max_waiting: int | None = None,
    keys_file: str | Path | None = None,
    allow_hosts: Sequence[str] = (),
    control_tokens: bool = False,
    drain_seconds: float = 30.0,
    stall_seconds: float = 60.0,
    log_format: Format = "text",
    log_level: Level = "warning",
) -> None:
    """Listen until the process is told to stop; the address goes to stderr. Port 0 takes a free one.
    model, backend, engine: as for `open_backend`. tools: what programs may call; the built-in ones when None.
    store: the path of an SQLite file, or the URL of a Postgres database; a temporary file when None. programs: files of
    documents to store first; those that come with sglspec when None. roots: folders whose files these documents may
    use, beside their own. max_runs, max_waiting: runs at a time, and in the
    queue. keys_file: keys that open the server, besides those in its store and in SGLSPEC_API_KEYS; without any,
    whoever is on this machine may use it. allow_hosts: names that clients may call it by, besides its address.
    control_tokens: whether raw prompts of other protocols may spell control tokens.
    drain_seconds: how long runs may go on after the signal to stop. stall_seconds: an engine that does nothing for so
    long although there is something to do makes the server unready. log_format, log_level: of the log on stderr.

    Raises SpecError: S609 for an address that is not free, S613 for one beyond this machine without keys, S607 when the
    server's packages are missing, S611 for a store that cannot be opened, S612 and what is wrong in a document for
    `programs`.
    """
    try:
        from sglspec.server.listen import listen
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sglspec"):
            raise
        message = f"The server needs the package `{error.name}`, which is not installed."
        raise SpecError(Diagnostic("S607", message, help="Run `pip install 'sglspec[server]'`.")) from None
    listen(
        host, port, model, backend, engine, tools, store, programs, roots, max_runs, max_waiting, keys_file,
        allow_hosts, control_tokens, drain_seconds, stall_seconds, log_format, log_level,
    )  # fmt: skip


__all__ = ["DEFAULT_PORT", "app", "serve"]

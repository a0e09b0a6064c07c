"""The HTTP server: programs posted to `/v1/runs`, answered with JSON or server-sent events.

`app` is the ASGI application with settings from the environment (`SGLSPEC_MODEL`, `SGLSPEC_BACKEND`); it is built
when it is first asked for. `serve` listens. Importing this package imports neither FastAPI nor a model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sglspec.diagnostics import Diagnostic, SpecError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from sglspec.tools import Tools

    app: FastAPI

DEFAULT_PORT = 8080


def __getattr__(name: str) -> FastAPI:
    """Build `app` when it is first asked for (PEP 562), and keep it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sglspec.server.application import create_app

    built = create_app(os.environ.get("SGLSPEC_BACKEND") or None, os.environ.get("SGLSPEC_MODEL") or None)
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
    max_runs: int | None = None,
    max_waiting: int | None = None,
) -> None:
    """Listen until the process is told to stop; the address goes to stderr. Port 0 takes a free one.
    model, backend, engine: as for `open_backend`. tools: what programs may call; the built-in ones when None.
    store: the path of an SQLite file, or the URL of a Postgres database; a temporary file when None. programs: files of
    documents to store first; those that come with sglspec when None. max_runs, max_waiting: runs at a time, and in the
    queue.

    Raises SpecError: S609 for an address that is not loopback or not free, S607 when the server's packages are missing,
    S611 for a store that cannot be opened, S612 and what is wrong in a document for `programs`.
    """
    try:
        from sglspec.server.listen import listen
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sglspec"):
            raise
        message = f"The server needs the package `{error.name}`, which is not installed."
        raise SpecError(Diagnostic("S607", message, help="Run `pip install 'sglspec[server]'`.")) from None
    listen(host, port, model, backend, engine, tools, store, programs, max_runs, max_waiting)


__all__ = ["DEFAULT_PORT", "app", "serve"]

"""`sglspec serve`: the application on an address; beyond this machine only where there are keys."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from sglspec.backends import Backend, open_backend
from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.server.access.hosts import is_loopback
from sglspec.server.access.sources import access_to
from sglspec.server.application import create_app
from sglspec.server.drain import DRAIN_SECONDS, Server
from sglspec.server.logs import Format, Level, configure
from sglspec.server.offer import builtin, offer, read
from sglspec.server.service import STALL_SECONDS, Limits
from sglspec.server.storage.database import database_at
from sglspec.tools import Tools

_NO_KEYS = "Make one with `sglspec keys create OWNER`, or use 127.0.0.1, ::1 or localhost."


def listen(
    host: str,
    port: int,
    model: str | None,
    backend: str | None,
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
    drain_seconds: float = DRAIN_SECONDS,
    stall_seconds: float = STALL_SECONDS,
    log_format: Format = "text",
    log_level: Level = "warning",
) -> None:
    """See `sglspec.server.serve`."""
    configure(log_format, log_level)
    tools = tools or Tools()
    documents = read(builtin() if programs is None else map(Path, programs), tools, [Path(root) for root in roots])
    database = database_at(store)
    database.open()
    access = access_to(database, keys_file, allow_hosts)
    locked = asyncio.run(access.keys.locked())
    if not locked and not is_loopback(host):
        message = f"There are no keys, so the server listens on this machine only: `{host}` is not a loopback address."
        raise SpecError(Diagnostic("S613", message, help=_NO_KEYS))
    asyncio.run(offer(database, documents))
    listener = bind(host, port)
    address = f"[{host}]" if ":" in host else host
    print(f"sglspec: listening on http://{address}:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    given = {"runs": max_runs, "waiting": max_waiting}
    limits = replace(
        Limits(stall_seconds=stall_seconds), **{name: value for name, value in given.items() if value is not None}
    )
    opener = partial(open_for_good, engine=engine)
    app = create_app(
        backend, model, opener, limits=limits, tools=tools, database=database, access=access,
        control_tokens=control_tokens,
    )  # fmt: skip
    with listener:
        Server(app, drain_seconds, own_process=True).run(sockets=[listener])


async def open_for_good(reference: str | None, model: str | None, engine: Mapping[str, object] | None) -> Backend:
    """A backend that lives as long as this process. What the process holds by then stays, and the collector need not
    look through it again: that takes a tenth of a second and more, in which no stream goes on."""
    backend = await open_backend(reference, model, engine)
    gc.collect()
    gc.freeze()
    return backend


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SpecError (S609) when the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        message = f"The server cannot listen on {host} port {port}: {reason}."
        help = "Choose another port with `--port`; 0 takes a free one."
        raise SpecError(Diagnostic("S609", message, help=help)) from None


__all__ = ["bind", "listen"]

"""`sglspec serve`."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import typer

from sglspec.cli.complain import Texts
from sglspec.cli.exits import backend_code


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; loopback only, there are no keys yet.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8080,
    model: Annotated[str | None, typer.Option(help="Model of runs that name none: a name or a folder.")] = None,
    backend: Annotated[str | None, typer.Option(help="Where programs run: local, or scripted:FILE.")] = None,
) -> None:
    """Answer HTTP requests that bring a document and its inputs."""
    if not _loopback(host):
        raise typer.BadParameter(
            f"{host!r} is not a loopback address. The server has no keys yet, so it listens on this machine only; "
            "for others put a proxy that checks who asks in front.",
            param_hint="--host",
        )
    from sglspec.diagnostics import SpecError
    from sglspec.server import serve as listen

    try:
        listen(host=host, port=port, model=model, backend=backend)
    except SpecError as error:
        Texts().complain(error.diagnostics)
        raise typer.Exit(backend_code(error.diagnostics)) from None


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""`sglspec serve`."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import typer

from sglspec.cli.complain import Texts
from sglspec.cli.exits import backend_code
from sglspec.cli.options import EngineOption, ToolsOption, host_tools, whole_number, wrong


def serve(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; loopback only, there are no keys yet.")
    ] = "127.0.0.1",
    port: Annotated[str, typer.Option(metavar="PORT", help="Port to listen on; 0 takes a free one.")] = "8080",
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model that every program runs on, whatever its own `model` says: a name that "
            "`sglspec models ls` shows, or a folder.",
        ),
    ] = None,
    backend: Annotated[
        str | None, typer.Option(metavar="REF", help="Where programs run: local, or scripted:FILE.")
    ] = None,
    engine: EngineOption = None,
    tools: ToolsOption = None,
) -> None:
    """Answer HTTP requests that bring a document and its inputs."""
    if not _loopback(host):
        raise wrong(
            f"{host!r} is not a loopback address. The server has no keys yet, so it listens on this machine only; "
            "for others put a proxy that checks who asks in front.",
            "--host",
        )
    number = whole_number(port, "--port", 0, 65535, "0 to 65535")
    offered = host_tools(tools or (), installed=False)
    from sglspec.backends import check_engine
    from sglspec.backends.switches import split_switches
    from sglspec.diagnostics import SpecError
    from sglspec.server import serve as listen

    try:
        settings = check_engine(backend, split_switches(engine or ()))
        listen(host=host, port=number, model=model, backend=backend, engine=settings, tools=offered)
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

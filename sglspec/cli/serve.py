"""`sglspec serve`."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import typer

from sglspec.cli.complain import Texts
from sglspec.cli.documents import documents
from sglspec.cli.exits import backend_code, document_code
from sglspec.cli.options import (
    EngineOption,
    McpOption,
    ToolsOption,
    folders,
    host_tools,
    is_folder,
    one_of,
    whole_number,
    wrong,
)


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class LogLevel(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def serve(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="Documents, or folders with *.sglspec.yaml/.yml/.json, that are the server's programs from the start; "
            "those that come with sglspec if left out.",
        ),
    ] = None,
    root: Annotated[
        list[str] | None,
        typer.Option(
            "--root",
            metavar="FOLDER",
            help="A folder whose files these documents may use, beside their own folders and those that are PATH. "
            "Can be repeated.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to listen on; beyond this machine only where there are keys."),
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
    mcp: McpOption = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Where programs and runs are kept: a path of an SQLite file, or postgresql://USER:PASSWORD@HOST/NAME. "
            "SGLSPEC_STORE if left out; without it, until the server ends.",
        ),
    ] = None,
    keys_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Keys that open the server, besides those in its store: see `sglspec keys`."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name that clients may call the server by, besides its address; * for all names. Can be repeated.",
        ),
    ] = None,
    drain_timeout: Annotated[
        str,
        typer.Option(
            metavar="SECONDS", help="How long runs may go on after the signal to stop; then they are cancelled."
        ),
    ] = "30",
    stall_timeout: Annotated[
        str,
        typer.Option(
            metavar="SECONDS",
            help="An engine that does nothing for so long although there is something to do makes /readyz say so.",
        ),
    ] = "60",
    log_format: Annotated[
        str, typer.Option(metavar="FORMAT", help="The log on standard error: text or json.")
    ] = "text",
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="debug, info (a line for each request), warning or error.")
    ] = "warning",
    max_runs: Annotated[str, typer.Option(metavar="NUMBER", help="Runs at a time.")] = "32",
    max_waiting: Annotated[str, typer.Option(metavar="NUMBER", help="Runs that may wait for their turn.")] = "64",
    control_tokens: Annotated[
        bool,
        typer.Option(
            "--control-tokens",
            help="Raw prompts for /generate and /v1/completions may spell control tokens; without it they are data.",
        ),
    ] = False,
) -> None:
    """Answer HTTP requests that run programs: stored ones by name, and documents that a request brings."""
    place = store or os.environ.get("SGLSPEC_STORE") or None
    number = whole_number(port, "--port", 0, 65535, "0 to 65535")
    runs = whole_number(max_runs, "--max-runs", 1, 10_000, "1 to 10,000")
    waiting = whole_number(max_waiting, "--max-waiting", 0, 100_000, "0 to 100,000")
    drain = whole_number(drain_timeout, "--drain-timeout", 0, 86_400, "0 to 86,400")
    stall = whole_number(stall_timeout, "--stall-timeout", 1, 86_400, "1 to 86,400")
    form, level = one_of(LogFormat, log_format, "--log-format"), one_of(LogLevel, log_level, "--log-level")
    names = [_host_name(name) for name in allow_host or ()]
    files = None if paths is None else list(dict.fromkeys(file for path in paths for file in documents(path)))
    roots = [*(path for path in paths or () if is_folder(path)), *folders(root)]
    from sglspec.backends import check_engine
    from sglspec.backends.switches import split_switches
    from sglspec.diagnostics import SpecError
    from sglspec.document.read import read_source
    from sglspec.server import serve as listen

    try:
        settings = check_engine(backend, split_switches(engine or ()))
        with host_tools(tools, mcp, installed=False) as offered:
            listen(
                host=host, port=number, model=model, backend=backend, engine=settings, tools=offered, store=place,
                programs=files, roots=roots, max_runs=runs, max_waiting=waiting, keys_file=keys_file,
                allow_hosts=names, control_tokens=control_tokens, drain_seconds=drain, stall_seconds=stall,
                log_format=form.value, log_level=level.value,
            )  # fmt: skip
    except SpecError as error:
        texts = Texts()
        for file in {problem.file for problem in error.diagnostics}:
            with suppress(SpecError):
                texts.keep(read_source(file or ""))
        texts.complain(error.diagnostics)
        server = any(problem.code.startswith("S6") for problem in error.diagnostics)
        raise typer.Exit((backend_code if server else document_code)(error.diagnostics)) from None


def _host_name(text: str) -> str:
    if text != "*" and not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[?[0-9a-fA-F:]+\]?", text):
        raise wrong(f"{text!r} is no name of a host, like api.example.org.", "--allow-host")
    return text

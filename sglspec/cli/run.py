"""`sglspec run`: the options. What happens then is in `job`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sglspec.cli.options import (
    ApiKeyOption,
    DocumentArgument,
    EngineOption,
    InputOption,
    McpOption,
    RootOption,
    SamplingOption,
    SettingOption,
    ToolsOption,
    folders,
    one_of,
    whole_number,
    wrong,
)


class Stream(StrEnum):
    text = "text"
    events = "events"
    none = "none"


def run(
    spec: DocumentArgument,
    settings: SettingOption = None,
    inputs: InputOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the whole result as one JSON object.")] = False,
    stream: Annotated[
        str | None,
        typer.Option(metavar="text|events|none", help="What to print while it runs; on a terminal text, else none."),
    ] = None,
    backend: Annotated[
        str | None, typer.Option(metavar="REF", help="Where to run: local, or scripted:FILE (replies from a file).")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A name that `sglspec models ls` shows, or a folder.")
    ] = None,
    engine: EngineOption = None,
    tools: ToolsOption = None,
    mcp: McpOption = None,
    root: RootOption = None,
    seed: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Repeat a run that samples: its seed, from 0 to 2^64 - 1.")
    ] = None,
    sampling: SamplingOption = None,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write tokens, events, and a timeline that Perfetto opens, as JSON."),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Print what each step spent, on standard error, or in the --json result."),
    ] = False,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Run on this server; SPEC may then be one of its programs, too."),
    ] = None,
    api_key_file: ApiKeyOption = None,
) -> None:
    """Run a document and print its outputs. With --server, SPEC may be a program that is stored there: NAME[@VERSION].

    On a terminal the text appears while it is generated. In a pipe the outputs come once: a single text as it is,
    anything else as a JSON object.
    """
    mode = None if stream is None else one_of(Stream, stream, "--stream")
    number = None if seed is None else whole_number(seed, "--seed", 0, 2**64 - 1, "0 to 2^64 - 1")
    if json and mode not in (None, Stream.none):
        raise wrong("With --json one object is printed, so nothing can be streamed beside it.", "--stream")
    if trace == "-":
        raise wrong("Standard output carries the result. Name a file.", "--trace")
    if trace == "":
        raise wrong("Name a file.", "--trace")
    if server is not None:
        here = {
            "--backend": backend,
            "--model": model,
            "--engine": engine,
            "--tools": tools,
            "--mcp": mcp,
            "--sampling": sampling,
        }
        for option, value in {**here, "--trace": trace, "--profile": profile or None}.items():
            if value is not None:
                raise wrong("This is for runs on this machine, and does not go with --server.", option)
        from sglspec.cli.elsewhere import Order, perform_on
        from sglspec.cli.remote import remote

        order = Order(spec, tuple(inputs or ()), tuple(settings or ()), json, mode, number, folders(root))
        raise typer.Exit(perform_on(remote(server, api_key_file), order))
    if api_key_file is not None:
        raise wrong("A key is for a server: name it with --server.", "--api-key-file")
    from sglspec.cli.job import Job, perform

    path = None if trace is None else Path(trace)
    given = tuple(inputs or ()), tuple(settings or ())
    host = tuple(engine or ()), tuple(tools or ()), tuple(mcp or ())
    job = Job(
        spec, *given, json, mode, backend, model, *host, number, path, folders(root), profile, tuple(sampling or ())
    )
    raise typer.Exit(perform(job))

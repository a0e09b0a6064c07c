"""`sglspec run`: the options. What happens then is in `job`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sglspec.cli.options import (
    DocumentArgument,
    EngineOption,
    InputOption,
    McpOption,
    RootOption,
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
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write tokens, events, and a timeline that Perfetto opens, as JSON."),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Print what each step spent, on standard error, or in the --json result."),
    ] = False,
) -> None:
    """Run a document and print its outputs.

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
    from sglspec.cli.job import Job, perform

    path = None if trace is None else Path(trace)
    given = tuple(inputs or ()), tuple(settings or ())
    host = tuple(engine or ()), tuple(tools or ()), tuple(mcp or ())
    job = Job(spec, *given, json, mode, backend, model, *host, number, path, folders(root), profile)
    raise typer.Exit(perform(job))

"""`sglspec run`: the options. What happens then is in `job`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Stream(StrEnum):
    text = "text"
    events = "events"
    none = "none"


def run(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="The document; - reads it from standard input.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="An input, read as its declared type. name:=JSON, name=@FILE, name=@- (standard input), name=@@text "
            "for a text that begins with @. Can be repeated; wins over --input.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="FILE", help="A YAML or JSON mapping of inputs; - is standard input."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the whole result as one JSON object.")] = False,
    stream: Annotated[
        Stream | None,
        typer.Option(help="What to print while it runs; on a terminal text, otherwise none.", show_default=False),
    ] = None,
    backend: Annotated[
        str | None, typer.Option(metavar="REF", help="Where to run: local, or scripted:FILE (replies from a file).")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A name that `sglspec models ls` shows, or a folder.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**64 - 1, help="Repeat a run that samples.", show_default=False)
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every token with its origin, and all events, as JSON.")
    ] = None,
) -> None:
    """Run a document and print its outputs.

    On a terminal the text appears while it is generated. In a pipe the outputs come once: a single text as it is,
    anything else as a JSON object.
    """
    if json and stream not in (None, Stream.none):
        raise typer.BadParameter(
            "--json prints one object, so nothing can be streamed beside it", param_hint="--stream"
        )
    if trace is not None and str(trace) == "-":
        raise typer.BadParameter("standard output carries the result; name a file", param_hint="--trace")
    from sglspec.cli.job import Job, perform

    job = Job(spec, tuple(inputs or ()), tuple(settings or ()), json, stream, backend, model, seed, trace)
    raise typer.Exit(perform(job))

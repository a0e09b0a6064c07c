"""`sglspec batch`: the options. What happens then is in `batchjob`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sglspec.cli.options import EngineOption, one_of, whole_number, wrong


class Order(StrEnum):
    input = "input"
    completed = "completed"


class OnError(StrEnum):
    collect = "collect"
    fail_fast = "fail_fast"


def batch(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="The document.")],
    rows: Annotated[
        str, typer.Argument(metavar="ROWS", help="A file of JSON Lines, *.csv or *.parquet; - reads JSON Lines.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where results go, as JSON Lines. Rows that are in it are not run."
        ),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="INPUT=COLUMN", help="An input from a column of another name. Can be repeated."),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column to copy into the results. Can be repeated.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An input of all rows, as for `run`.")
    ] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="FILE", help="A mapping of inputs of all rows.")
    ] = None,
    concurrency: Annotated[str, typer.Option(metavar="NUMBER", help="Rows at a time.")] = "32",
    order: Annotated[
        str, typer.Option(metavar="input|completed", help="The order of the results: as the rows, or as they end.")
    ] = Order.input.value,
    on_error: Annotated[
        str, typer.Option(metavar="collect|fail_fast", help="Go on after a row that failed, or stop.")
    ] = OnError.collect.value,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run rows again that FILE says have failed.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option(metavar="REF", help="Where to run: local, or scripted:FILE (replies from a file).")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A name that `sglspec models ls` shows, or a folder.")
    ] = None,
    engine: EngineOption = None,
    seed: Annotated[str, typer.Option(metavar="NUMBER", help="What the seeds of all rows come from.")] = "0",
) -> None:
    """Run a document for every row of a file.

    A row is an object of inputs. With -o, the same command goes on where it was stopped, and after a change of rows
    runs those that changed.
    """
    if output in ("", "-"):
        raise wrong("Name a file. Without -o results go to standard output.", "--output")
    if output is None and retry_failed:
        raise wrong("It says what to do with the rows in a file. Name it with -o.", "--retry-failed")
    number = whole_number(seed, "--seed", 0, 2**64 - 1, "0 to 2^64 - 1")
    at_once = whole_number(concurrency, "--concurrency", 1, 10_000, "1 to 10000")
    ordering, policy = one_of(Order, order, "--order"), one_of(OnError, on_error, "--on-error")
    from sglspec.cli.batchjob import BatchJob, perform

    job = BatchJob(
        spec,
        rows,
        None if output is None else Path(output),
        tuple(mapping or ()),
        tuple(keep or ()),
        tuple(inputs or ()),
        tuple(settings or ()),
        at_once,
        ordering.value,
        policy.value,
        retry_failed,
        backend,
        model,
        tuple(engine or ()),
        number,
    )
    raise typer.Exit(perform(job))

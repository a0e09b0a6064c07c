"""`sglspec batch`: the options. What happens then is in `batchjob`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sglspec.cli.options import EngineOption, McpOption, RootOption, ToolsOption, folders, one_of, whole_number, wrong

if TYPE_CHECKING:
    from sglspec.batches.metrics import Metrics


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
    few_shot: Annotated[
        str | None,
        typer.Option("--few-shot", metavar="INPUT=NUMBER", help="Fill an input with so many other rows, as examples."),
    ] = None,
    few_shot_from: Annotated[
        str | None, typer.Option("--few-shot-from", metavar="FILE", help="The rows to take them from, instead of ROWS.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="METRIC",
            help="accuracy:OUTPUT=COLUMN, mean:OUTPUT or vote:OUTPUT[=COLUMN]. Can be repeated.",
        ),
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Metrics by group, too. Can be repeated.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="At the end, print the counts and metrics as one JSON object.")
    ] = False,
    concurrency: Annotated[str, typer.Option(metavar="NUMBER", help="Rows at a time.")] = "32",
    order: Annotated[
        str, typer.Option(metavar="input|completed", help="The order of the results: as the rows, or as they end.")
    ] = Order.input.value,
    on_error: Annotated[
        str, typer.Option(metavar="collect|fail_fast", help="Go on after a row that failed, or stop.")
    ] = OnError.collect.value,
    max_errors: Annotated[
        str | None, typer.Option("--max-errors", metavar="NUMBER", help="Stop when more rows than this have failed.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run rows again that FILE says have failed.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away what is in FILE, and run all rows.")] = False,
    limit: Annotated[str | None, typer.Option(metavar="NUMBER", help="Run the first rows only.")] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Run part I of N about equal parts of the rows.")
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
    seed: Annotated[str, typer.Option(metavar="NUMBER", help="What the seeds of all rows come from.")] = "0",
) -> None:
    """Run a document for every row of a file.

    A row is an object of inputs. With -o, the same command goes on where it was stopped, and after a change of rows
    runs those that changed.
    """
    if output in ("", "-"):
        raise wrong("Name a file. Without -o results go to standard output.", "--output")
    for given, option in ((retry_failed, "--retry-failed"), (fresh, "--fresh")):
        if output is None and given:
            raise wrong("It says what to do with the rows in a file. Name it with -o.", option)
    if json and output is None:
        raise wrong("Results go to standard output. Send them to a file with -o.", "--json")
    examples = None if few_shot is None else _examples(few_shot, few_shot_from or rows)
    if few_shot is None and few_shot_from is not None:
        raise wrong("It says where examples come from. Say which input they fill with --few-shot.", "--few-shot-from")
    ordering, policy = one_of(Order, order, "--order"), one_of(OnError, on_error, "--on-error")
    from sglspec.batches.options import BatchOptions
    from sglspec.cli.batchjob import BatchJob, perform

    options = BatchOptions(
        whole_number(concurrency, "--concurrency", 1, 10_000, "1 to 10000"),
        ordering.value,
        policy.value,
        _count(max_errors, "--max-errors"),
        _count(limit, "--limit"),
        _part(shard),
        None if output is None else Path(output),
        fresh,
        retry_failed,
        whole_number(seed, "--seed", 0, 2**64 - 1, "0 to 2^64 - 1"),
        _metrics(metrics or [], by or []),
    )
    given = tuple(mapping or ()), tuple(keep or ()), tuple(inputs or ()), tuple(settings or ())
    host = tuple(engine or ()), tuple(tools or ()), tuple(mcp or ())
    job = BatchJob(spec, rows, *given, examples, options, backend, model, *host, json, folders(root))
    raise typer.Exit(perform(job))


def _metrics(metrics: list[str], by: list[str]) -> Metrics | None:
    from sglspec.batches.metrics import Metrics

    if by and not metrics:
        raise wrong("It says by what metrics are grouped. Name one with --metric.", "--by")
    try:
        return Metrics(*metrics, by=by) if metrics else None
    except ValueError as error:
        raise wrong(f"{error}.", "--metric") from None


def _examples(text: str, rows: str) -> tuple[str, int, Path]:
    """Input, number and file of few-shot examples."""
    name, equals, number = text.partition("=")
    if not equals or not name:
        raise wrong(f"{text!r} is not of the form INPUT=NUMBER.", "--few-shot")
    if rows == "-":
        raise wrong("Standard input can be read once. Name a file with --few-shot-from.", "--few-shot")
    return name, whole_number(number, "--few-shot", 1, 1000, "1 to 1000"), Path(rows)


def _count(text: str | None, option: str) -> int | None:
    return None if text is None else whole_number(text, option, 0, 2**53, "0 to 2^53")


def _part(text: str | None) -> tuple[int, int]:
    if text is None:
        return 1, 1
    part, slash, parts = text.partition("/")
    if not slash:
        raise wrong(f"{text!r} is not of the form I/N, as in 1/4.", "--shard")
    of = whole_number(parts, "--shard", 1, 10_000, "1 to 10000")
    return whole_number(part, "--shard", 1, of, f"1 to {of}"), of

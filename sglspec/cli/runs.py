"""`sglspec runs`: the runs of a server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sglspec.cli.exits import FAILED, LIMIT, OK
from sglspec.cli.options import ApiKeyOption, Command, JsonOption, ServerOption, whole_number
from sglspec.cli.streams import note, put
from sglspec.cli.table import table

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, as `sglspec runs ls` shows it.")]

_WAIT = 20
"""Seconds that one request waits, less than what a silent connection may take."""


def build() -> typer.Typer:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The runs of a server.")
    group.command("ls", cls=Command)(ls)
    group.command("get", cls=Command)(get)
    group.command("cancel", cls=Command)(cancel)
    group.command("events", cls=Command)(events)
    return group


def ls(
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            help="Only these, several with commas between them: queued, running, succeeded, failed, cancelled, "
            "expired, aborted.",
        ),
    ] = None,
    program: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this program.")] = None,
    limit: Annotated[str, typer.Option(metavar="NUMBER", help="How many at most.")] = "20",
    json: JsonOption = False,
    server: ServerOption = None,
    api_key_file: ApiKeyOption = None,
) -> None:
    """List runs, newest first."""
    from sglspec.cli.names import program_name
    from sglspec.cli.pages import entries
    from sglspec.cli.refusal import mapping
    from sglspec.cli.remote import cell, complaining, moment, remote, show_json

    most = whole_number(limit, "--limit", 1, 100_000, "1 to 100,000")
    if program is not None:
        program_name(program, "--program")
    place = remote(server, api_key_file)
    with complaining():
        found = entries(place, "/v1/runs", {"status": status, "program": program}, most)
    if json:
        show_json(found)
        return
    rows = [("ID", "STATUS", "PROGRAM", "CREATED", "ENDED")]
    for face in found:
        of = mapping(face.get("program"))
        version = f"@{of['version']}" if of.get("version") is not None else ""
        moments = moment(face, "created_at"), moment(face, "ended_at")
        rows.append((cell(face, "id"), cell(face, "status"), cell(of, "name") + version, *moments))
    put(table(rows))


def get(
    run: RunArgument,
    result: Annotated[bool, typer.Option("--result", help="Print its result instead of its state.")] = False,
    wait: Annotated[str, typer.Option(metavar="SECONDS", help="Wait so long for its end.")] = "0",
    server: ServerOption = None,
    api_key_file: ApiKeyOption = None,
) -> None:
    """Print the state of a run as JSON. The exit code says how it ended, as for `sglspec run`."""
    from sglspec.cli.names import run_id
    from sglspec.cli.remote import complaining, remote, show_json

    run_id(run, "RUN")
    left = whole_number(wait, "--wait", 0, 86_400, "0 to 86,400")
    place = remote(server, api_key_file)
    with complaining():
        face = place.json("GET", f"/v1/runs/{run}")
        while left > 0 and face.get("status") in ("queued", "running"):
            step = min(left, _WAIT)
            face = place.json("GET", f"/v1/runs/{run}", headers={"Prefer": f"wait={step}"})
            left -= step
        if result:
            face = place.json("GET", f"/v1/runs/{run}/result")
    show_json(face)
    raise typer.Exit(ended_code(face.get("status"), face.get("error")))


def cancel(run: RunArgument, server: ServerOption = None, api_key_file: ApiKeyOption = None) -> None:
    """Ask a run to end, and print its state as JSON."""
    from sglspec.cli.names import run_id
    from sglspec.cli.remote import complaining, remote, show_json

    run_id(run, "RUN")
    place = remote(server, api_key_file)
    with complaining():
        face = place.json("POST", f"/v1/runs/{run}/cancel")
    show_json(face)


def events(
    run: RunArgument,
    after: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Begin behind the event with this `seq`; at the start without.")
    ] = None,
    server: ServerOption = None,
    api_key_file: ApiKeyOption = None,
) -> None:
    """Print the events of a run as they happen, one JSON object a line, until it ends. The exit code says how it ended,
    as for `sglspec run`. A connection that breaks is made again."""
    from sglspec.cli.follow import Follower
    from sglspec.cli.names import run_id
    from sglspec.cli.remote import complaining, remote, show_json

    run_id(run, "RUN")
    seen = -1 if after is None else whole_number(after, "--after", 0, 10**15 - 1, "0 up")
    follower = Follower(remote(server, api_key_file), run, seen)
    last: dict[str, Any] = {}
    try:
        with complaining():
            for event in follower.events():
                show_json(event, indent=None)
                last = {"status": str(event.get("type")).removeprefix("run."), "error": event.get("error")}
            if not last:  # there were none behind `--after`
                last = follower.place.json("GET", f"/v1/runs/{run}")
    except (KeyboardInterrupt, typer.Exit):
        if follower.seen >= 0:
            note(f"sglspec: the last event was {follower.seen}; `--after {follower.seen}` goes on behind it")
        raise
    raise typer.Exit(ended_code(last.get("status"), last.get("error")))


def ended_code(status: Any, error: Any) -> int:
    """How a run ended. One that somebody cancelled, which need not be who asks, has failed."""
    from sglspec.cli.exits import run_code
    from sglspec.cli.refusal import diagnostics

    if status in ("succeeded", "queued", "running"):
        return OK
    if status in ("expired", "aborted"):
        return LIMIT
    (found,) = diagnostics([error], None) or (None,)
    return run_code("failed", found) if status == "failed" else FAILED

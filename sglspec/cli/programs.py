"""`sglspec programs`: what a server has stored."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sglspec.cli.options import ApiKeyOption, Command, JsonOption, ServerOption
from sglspec.cli.streams import note, printable, put
from sglspec.cli.table import table

ReferenceArgument = Annotated[
    str, typer.Argument(metavar="NAME[@VERSION]", help="The program; its latest version, or a number, digest or alias.")
]


def build() -> typer.Typer:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The programs that a server has stored.")
    group.command("ls", cls=Command)(ls)
    group.command("get", cls=Command)(get)
    group.command("rm", cls=Command)(rm)
    return group


def ls(
    archived: Annotated[bool, typer.Option("--archived", help="List those that are archived, too.")] = False,
    json: JsonOption = False,
    server: ServerOption = None,
    api_key_file: ApiKeyOption = None,
) -> None:
    """List programs with their latest versions."""
    from sglspec.cli.pages import entries
    from sglspec.cli.remote import cell, complaining, moment, remote, show_json

    place = remote(server, api_key_file)
    with complaining():
        found = entries(place, "/v1/programs", {"archived": "true" if archived else None})
    if json:
        show_json(found)
        return
    rows = [("NAME", "VERSION", "CREATED", "DIGEST")]
    rows += [
        (cell(face, "name"), cell(face, "version"), moment(face, "created_at"), cell(face, "digest")[:19])
        for face in found
    ]
    put(table(rows))


def get(
    name: ReferenceArgument,
    source: Annotated[bool, typer.Option("--source", help="Print its text, as it was stored.")] = False,
    server: ServerOption = None,
    api_key_file: ApiKeyOption = None,
) -> None:
    """Print what a server says about a program, as JSON, or its text."""
    from sglspec.cli.names import program_reference
    from sglspec.cli.remote import complaining, remote, show_json

    address = f"/v1/programs/{program_reference(name, 'NAME')}"
    place = remote(server, api_key_file)
    with complaining():
        if not source:
            show_json(place.json("GET", address))
            return
        text = place.ask("GET", f"{address}/source")[1].decode("utf-8", "replace")
    # byte for byte, except on a terminal
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def rm(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The program, with all its versions.")],
    server: ServerOption = None,
    api_key_file: ApiKeyOption = None,
) -> None:
    """Archive a program: it takes no more runs. What is stored stays, and deploying it again brings it back."""
    from sglspec.cli.names import program_name
    from sglspec.cli.remote import complaining, remote

    program_name(name, "NAME")
    place = remote(server, api_key_file)
    with complaining():
        place.ask("DELETE", f"/v1/programs/{name}")
    note(f"sglspec: {name} is archived")

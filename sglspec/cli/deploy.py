"""`sglspec deploy`: a document becomes a program of a server."""

from __future__ import annotations

from typing import Annotated

import typer

from sglspec.cli.complain import Texts
from sglspec.cli.exits import NO
from sglspec.cli.options import ApiKeyOption, DocumentArgument, JsonOption, RootOption, ServerOption, folders
from sglspec.cli.streams import note, printable, to_json


def deploy(
    spec: DocumentArgument,
    alias: Annotated[
        str | None, typer.Option(metavar="NAME", help="Point this alias at the version, as prod in NAME@prod.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the server calls it; the document's `name` if left out.")
    ] = None,
    root: RootOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the server check it, and store nothing.")] = False,
    json: JsonOption = False,
    server: ServerOption = None,
    api_key_file: ApiKeyOption = None,
) -> None:
    """Store a document on a server, with the files that it uses, and print the program's NAME@VERSION. What is there
    already stays the version that it is."""
    from sglspec.cli.bundle import body_of, read_bundle
    from sglspec.cli.names import program_name
    from sglspec.cli.refusal import diagnostics
    from sglspec.cli.remote import complaining, object_of, remote, show, show_json
    from sglspec.cli.stdin import StandardInput

    for given, option in ((alias, "--alias"), (name, "--name")):
        if given is not None:
            program_name(given, option)
    granted = folders(root)
    place = remote(server, api_key_file)
    texts = Texts()
    with complaining(texts):
        bundle = read_bundle(spec, StandardInput(), texts, granted)
        status, body = place.ask(
            "POST", "/v1/programs", {"name": name, "dry_run": "true" if dry_run else None},
            body=body_of(bundle), names=bundle.names,
        )  # fmt: skip
        face = object_of(body)
        texts.complain(diagnostics(face.get("diagnostics"), bundle.names))
        if dry_run:
            if json:
                show_json(face)
            elif face.get("ok") is True:
                note(printable(f"sglspec: {face.get('name') or 'the program'} can be stored"))
            raise typer.Exit(0 if face.get("ok") is True else NO)
        stored = f"{face.get('name')}@{face.get('version')}"
        note(printable(f"sglspec: {stored} {'is new' if status == 201 else 'was there already'}"))
        if alias is not None:
            address = f"/v1/programs/{program_name(str(face.get('name')), 'SPEC')}/aliases/{alias}"
            place.ask("PUT", address, body=("application/json", to_json({"version": face.get("version")}).encode()))
            note(printable(f"sglspec: {face.get('name')}@{alias} is {stored} now"))
    if json:
        show_json(face | {"new": status == 201, "alias": alias})
    else:
        show(stored)

"""`sglspec keys`: the keys of a server."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from sglspec.cli.complain import Texts
from sglspec.cli.exits import NO, backend_code
from sglspec.cli.options import Command, JsonOption, whole_number, wrong
from sglspec.cli.streams import note, put, to_json
from sglspec.cli.table import table

if TYPE_CHECKING:
    from sglspec.server.access.keys import Key, Scope

StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="The server's store: the path of an SQLite file, or postgresql://USER:PASSWORD@HOST/NAME. "
        "SGLSPEC_STORE if left out.",
    ),
]
FileOption = Annotated[
    Path | None, typer.Option("--keys-file", metavar="FILE", help="A file of keys, for a server without a store.")
]

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0}


class _Keys(Protocol):
    """Where keys are kept."""

    def load(self) -> list[Key]: ...
    def add(self, key: Key) -> None: ...
    def revoke(self, id: str) -> bool: ...


def build() -> typer.Typer:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The keys of a server: make, list, revoke.")
    group.command("create", cls=Command)(create)
    group.command("list", cls=Command)(ls)
    group.command("revoke", cls=Command)(revoke)
    return group


def create(
    owner: Annotated[
        str, typer.Argument(metavar="OWNER", help="Whose runs it starts and sees. Keys of one owner see the same.")
    ],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help="What it may do: programs:read, programs:write, runs:read, runs:write, run:adhoc, models, metrics or "
            "admin (all of it). Can be repeated, or several with commas between them; programs:read, runs:read, "
            "runs:write and models if left out.",
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends, from now: 30m, 12h or 90d. Never if left out.")
    ] = None,
    requests: Annotated[
        str | None,
        typer.Option("--requests-per-minute", metavar="NUMBER", help="Requests a minute; no limit if left out."),
    ] = None,
    runs: Annotated[
        str | None, typer.Option("--max-runs", metavar="NUMBER", help="Runs at a time; no limit if left out.")
    ] = None,
    store: StoreOption = None,
    keys_file: FileOption = None,
    json: JsonOption = False,
) -> None:
    """Make a key and print it. This is the only time that it is shown: a hash of it is kept."""
    from sglspec.server.access.keys import OWNER, new_key

    if not OWNER.fullmatch(owner):
        raise wrong("An owner has 1 to 64 characters: letters, digits and . _ @ -, a letter or a digit first.", "OWNER")
    token, key = new_key(
        owner,
        _scopes(scope),
        expires=None if expires is None else time.time() + _seconds(expires),
        requests=None if requests is None else whole_number(requests, "--requests-per-minute", 1, 1_000_000, "1 up"),
        runs=None if runs is None else whole_number(runs, "--max-runs", 1, 100_000, "1 to 100,000"),
    )
    _with(store, keys_file, lambda keys: keys.add(key))
    put(to_json({"key": token, **_face(key)}) if json else token)
    note("sglspec: keep this key now, it is not shown again")


def ls(store: StoreOption = None, keys_file: FileOption = None, json: JsonOption = False) -> None:
    """List keys, without what they open with."""
    found = _with(store, keys_file, lambda keys: keys.load())
    if json:
        put(to_json([_face(key) for key in found]))
        return
    rows = [("ID", "OWNER", "STATE", "CREATED", "EXPIRES", "SCOPES")]
    rows += [
        (key.id, key.owner, _state(key), _moment(key.created), _moment(key.expires), " ".join(key.scopes))
        for key in found
    ]
    put(table(rows))


def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id, as `sglspec keys list` shows it.")],
    store: StoreOption = None,
    keys_file: FileOption = None,
) -> None:
    """End a key. A server that runs learns of it within seconds."""
    if re.fullmatch(r"sgs_[0-9a-f]{12}_.*", id):
        raise wrong("This is a whole key. Give its id only: the part between the two underscores.", "ID")
    if not _with(store, keys_file, lambda keys: keys.revoke(id)):
        note("sglspec: there is no key with this id")
        raise typer.Exit(NO)


def _scopes(given: list[str] | None) -> list[Scope]:
    from sglspec.server.access.keys import SCOPES

    if not given:
        return ["programs:read", "runs:read", "runs:write", "models"]
    words = [word.strip() for item in given for word in item.split(",") if word.strip()]
    for word in words:
        if word not in SCOPES:
            raise wrong(f"{word!r} is not {', '.join(SCOPES[:-1])} or {SCOPES[-1]}.", "--scope")
    return [scope for scope in SCOPES if scope in words]


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if match is None:
        raise wrong(f"{text!r} is not a time like 30m, 12h or 90d.", "--expires")
    return float(match[1]) * _UNITS[match[2]]


def _with(store: str | None, keys_file: Path | None, do: Callable[[_Keys], Any]) -> Any:
    """Do something with the keys where they are kept."""
    from sglspec.diagnostics import SpecError

    place = store or os.environ.get("SGLSPEC_STORE") or None
    if keys_file is not None and store is not None:
        raise wrong("Give either `--store` or `--keys-file`.", "--keys-file")
    if keys_file is None and place is None:
        raise wrong("Say where the server's keys are: `--store PLACE` or `--keys-file FILE`.", "--store")
    try:
        if keys_file is not None:
            from sglspec.server.access.keyfile import KeyFile

            return do(KeyFile(keys_file))
        assert place is not None
        return _in_store(place, do)
    except SpecError as error:
        Texts().complain(error.diagnostics)
        raise typer.Exit(backend_code(error.diagnostics)) from None


def _in_store(place: str, do: Callable[[_Keys], Any]) -> Any:
    from sglspec.diagnostics import Diagnostic, SpecError

    try:
        from sglspec.server.access.stored import open_keys
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sglspec"):
            raise
        message = f"The store needs the package `{error.name}`, which is not installed."
        raise SpecError(Diagnostic("S607", message, help="Run `pip install 'sglspec[server]'`.")) from None
    keys = open_keys(place)
    try:
        return do(keys)
    finally:
        keys.close()


def _face(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "owner": key.owner,
        "scopes": list(key.scopes),
        "state": _state(key),
        "created_at": _moment(key.created),
        "expires_at": None if key.expires is None else _moment(key.expires),
        "requests_per_minute": key.requests,
        "max_runs": key.runs,
    }


def _state(key: Key) -> str:
    if key.revoked is not None:
        return "revoked"
    return "expired" if key.ended else "valid"


def _moment(seconds: float | None) -> str:
    return "-" if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))

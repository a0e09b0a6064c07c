"""`sglspec explain`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sglspec.cli.exits import USAGE
from sglspec.cli.streams import note, put, wants_color


def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="A code (S201) or its name (unknown-key).")],
) -> None:
    """Print the page of a diagnostic code."""
    from sglspec.diagnostics.explain import explain as page_of

    page = page_of(code)
    if page is None:
        note(_unknown(code))
        raise typer.Exit(USAGE)
    if wants_color(sys.stdout):
        _show(page)
    else:
        put(page)


def _unknown(code: str) -> str:
    from sglspec.diagnostics.codes import CODES
    from sglspec.diagnostics.suggest import nearest

    close = nearest(code.strip(), [*CODES, *(row.slug for row in CODES.values())])
    hint = f" Did you mean {close}?" if close else ""
    return f"sglspec: there is no code {code!r}.{hint}"


def _show(page: str) -> None:
    """Markdown as a terminal shows it."""
    from rich.console import Console
    from rich.markdown import Markdown

    Console(file=sys.stdout).print(Markdown(page))

"""`sglspec fmt`: documents in one layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sglspec.cli.options import CheckOption, DiffOption, DocumentPaths
from sglspec.cli.streams import note

if TYPE_CHECKING:
    from sglspec.diagnostics import Report
    from sglspec.document.nodes import Source


def fmt(paths: DocumentPaths, check: CheckOption = False, diff: DiffOption = False) -> None:
    """Lay documents out alike; their meaning and their comments stay. - writes to standard output."""
    from sglspec.cli.rewrite import Rewriting

    raise typer.Exit(Rewriting("fmt", _format, "formatted", check, diff).run(paths))


def _format(source: Source, report: Report) -> str | None:
    from sglspec.document.edit import MeaningChanged, format_source

    try:
        return format_source(source, report)
    except MeaningChanged:
        note(f"sglspec: {source.name} is left as it is: laid out anew it would not read as the same document")
        return source.text

"""`sglspec upgrade`: documents in older or other spellings, in those of this build."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sglspec.cli.options import CheckOption, DiffOption, DocumentPaths

if TYPE_CHECKING:
    from sglspec.diagnostics import Report
    from sglspec.document.nodes import Source


def upgrade(paths: DocumentPaths, check: CheckOption = False, diff: DiffOption = False) -> None:
    """Rewrite spellings that this build does not know, where it is certain what they mean. - writes to standard output.

    Comments and layout stay. What is not certain is left to `sglspec check` and the author.
    """
    from sglspec.cli.rewrite import Rewriting

    raise typer.Exit(Rewriting("upgrade", _upgrade, "upgraded", check, diff).run(paths))


def _upgrade(source: Source, report: Report) -> str | None:
    from sglspec.document.upgrade import upgrade_source

    return upgrade_source(source, report)

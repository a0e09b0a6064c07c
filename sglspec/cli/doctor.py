"""`sglspec doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sglspec.cli.complain import Texts
from sglspec.cli.exits import OK, backend_code
from sglspec.cli.options import EngineOption
from sglspec.cli.streams import printable, put, to_json
from sglspec.cli.version import packages

if TYPE_CHECKING:
    from sglspec.diagnostics import Diagnostic

_COLUMNS = ("name", "value", "reason")


def doctor(
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Load this model too; the default model is loaded if it is here."),
    ] = None,
    engine: EngineOption = None,
    json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Show what the local engine would choose on this machine, and why."""
    import platform

    from sglspec import __version__, backends

    chosen = model or (backends.DEFAULT_MODEL if _is_here(backends.DEFAULT_MODEL) else None)
    lines, problems = _report(chosen, engine or ())
    if problems and chosen is not None:  # what can be said without the model
        lines, _ = _report(None, engine or ())
    versions = {"sglspec": __version__, "python": platform.python_version(), **packages()}
    system = f"{platform.system()} {platform.machine()}"
    rows = [_row(line) for line in lines]
    if json:
        face: dict[str, Any] = {"versions": versions, "system": system, "model": chosen}
        face["engine"] = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
        put(to_json({**face, "diagnostics": [problem.as_dict() for problem in problems]}))
    else:
        put(printable(_text(versions, system, chosen, rows)))
    if problems:
        Texts().complain(problems)
    raise typer.Exit(backend_code(problems) if problems else OK)


def _report(model: str | None, engine: Sequence[str]) -> tuple[Sequence[str], Sequence[Diagnostic]]:
    """The engine's lines, or what is in their way."""
    import asyncio

    from sglspec.backends import report_engine
    from sglspec.backends.switches import split_switches
    from sglspec.diagnostics import SpecError

    try:
        return asyncio.run(report_engine(model, split_switches(engine))), ()
    except SpecError as error:
        return (), error.diagnostics


def _is_here(model: str) -> bool:
    from sglspec import models as store

    return any(info.present for info in store.ls() if info.name == model)


def _row(line: str) -> tuple[str, str, str]:
    """A line `name=value: reason` of the engine."""
    name, _, rest = line.partition("=")
    value, _, reason = rest.partition(": ")
    return name, value, reason


def _text(versions: dict[str, str | None], system: str, model: str | None, rows: Sequence[tuple[str, ...]]) -> str:
    head = [(name, version or "not installed") for name, version in versions.items()]
    head += [("system", system), ("model", model or "none: neither given nor installed")]
    return "\n".join([*_table(head), "", *_table(rows)]) if rows else "\n".join(_table(head))


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]

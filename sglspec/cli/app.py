"""The commands, put together. Importing this loads typer and nothing else that takes time."""

from __future__ import annotations

from typing import Annotated

import typer

from sglspec.cli import (
    batch,
    check,
    deploy,
    doctor,
    explain,
    fmt,
    keys,
    models,
    new,
    plan,
    programs,
    render,
    run,
    runs,
    schema,
    serve,
    test,
    upgrade,
    version,
)
from sglspec.cli.options import Command


def _show_version(wanted: bool) -> None:
    if wanted:
        version.version()
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Language-model programs as YAML or JSON documents: check them, run them."""


def _build() -> typer.Typer:
    # Plain help and plain errors: rich would be loaded for them, and paints boxes where text does.
    app = typer.Typer(
        name="sglspec",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=_root,
    )
    app.command(cls=Command)(run.run)
    app.command(cls=Command)(check.check)
    app.command(cls=Command)(test.test)
    app.command(cls=Command)(batch.batch)
    app.command(cls=Command)(plan.plan)
    app.command(cls=Command)(render.render)
    app.command(cls=Command)(fmt.fmt)
    app.command(cls=Command)(upgrade.upgrade)
    app.command(cls=Command)(new.new)
    app.command(cls=Command)(schema.schema)
    app.add_typer(models.build(), name="models")
    app.command(cls=Command)(explain.explain)
    app.command(cls=Command)(serve.serve)
    app.add_typer(keys.build(), name="keys")
    app.command(cls=Command)(deploy.deploy)
    app.add_typer(programs.build(), name="programs")
    app.add_typer(runs.build(), name="runs")
    app.command(cls=Command)(doctor.doctor)
    app.command(cls=Command)(version.version)
    return app


app = _build()

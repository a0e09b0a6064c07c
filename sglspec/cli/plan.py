"""`sglspec plan`: what a run will do, before it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sglspec.cli.complain import Refused, Texts
from sglspec.cli.exits import backend_code
from sglspec.cli.options import DocumentArgument, InputOption, RootOption, SettingOption, folders, one_of
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import printable, put, to_json

if TYPE_CHECKING:
    from sglspec.analysis.plan import Plan
    from sglspec.backends.markup import Markup


class Format(StrEnum):
    text = "text"
    mermaid = "mermaid"
    dot = "dot"
    json = "json"
    svg = "svg"


def plan(
    spec: DocumentArgument,
    settings: SettingOption = None,
    inputs: InputOption = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Count tokens as this model does; its weights are not read."),
    ] = None,
    format: Annotated[
        str, typer.Option("--format", metavar="text|mermaid|dot|json|svg", help="How to print the plan.")
    ] = Format.text.value,
    root: RootOption = None,
) -> None:
    """Print what a run will do: steps, branches, waits, and bounds on all of it. Nothing runs.

    Inputs make it exact where they decide. Without a model, texts are counted in characters.
    """
    face = one_of(Format, format, "--format")
    texts = Texts()
    try:
        found = _planned(spec, inputs or [], settings or [], model, root or [], texts)
    except Refused as refusal:
        texts.complain(refusal.diagnostics)
        raise typer.Exit(refusal.code) from None
    put(_shown(found, face))


def _planned(
    spec: str, files: list[str], settings: list[str], model: str | None, root: list[str], texts: Texts
) -> Plan:
    from sglspec.analysis.plan import plan as plan_of
    from sglspec.cli.documents import load
    from sglspec.cli.inputs import read_settings

    stdin = StandardInput()
    program = load(spec, stdin, texts, roots=folders(root))
    given = read_settings(program, files, settings, stdin, texts)
    return plan_of(program, given, _markup(model))


def _markup(model: str | None) -> Markup | None:
    from sglspec.backends import open_markup
    from sglspec.diagnostics import SpecError

    if model is None:
        return None
    try:
        return open_markup(model)
    except SpecError as error:
        raise Refused(backend_code(error.diagnostics), error.diagnostics) from None


def _shown(found: Plan, face: Format) -> str:
    match face:
        case Format.json:
            return to_json(found.as_dict())
        case Format.mermaid:
            from sglspec.cli.plans.graph import mermaid

            return mermaid(found)
        case Format.dot:
            from sglspec.cli.plans.graph import dot

            return dot(found)
        case Format.svg:
            from sglspec.cli.plans.svg import svg

            return svg(found)
        case Format.text:
            from sglspec.cli.plans.text import text

            return printable(text(found))

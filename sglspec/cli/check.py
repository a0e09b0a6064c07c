"""`sglspec check`: every mistake of every document, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sglspec.cli.complain import Texts, once
from sglspec.cli.documents import documents, read_document
from sglspec.cli.exits import NO, OK, backend_code, document_code
from sglspec.cli.options import DocumentPaths, McpOption, RootOption, ToolsOption, folders, host_tools, one_of
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import note, output, put

if TYPE_CHECKING:
    from sglspec.analysis.program import Program
    from sglspec.diagnostics import Diagnostic
    from sglspec.tools import Tools


class Format(StrEnum):
    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"


def check(
    paths: DocumentPaths,
    format: Annotated[
        str, typer.Option("--format", metavar="text|json|sarif|github", help="How to print what was found.")
    ] = Format.text.value,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    backend: Annotated[
        str | None,
        typer.Option(metavar="REF", help="Also report what this backend cannot do: local, or scripted:FILE."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model that the backend runs, as for `sglspec run`.")
    ] = None,
    tools: ToolsOption = None,
    mcp: McpOption = None,
    root: RootOption = None,
) -> None:
    """Report every mistake of documents. Exit code 1 if there are errors."""
    face = one_of(Format, format, "--format")
    texts, stdin = Texts(), StandardInput()
    files = [file for path in paths for file in documents(path)]
    granted = folders(root)
    with host_tools(tools, mcp) as host:
        known = host if tools or mcp else None
        checked = [_check(file, stdin, texts, known, granted) for file in files]
    if backend is not None or model is not None:
        _ask(checked, backend, model, texts)
    found = once(problem for _, problems in checked for problem in problems)
    faulty = sum(any(p.severity == "error" or strict for p in problems) for _, problems in checked)
    if face is Format.text:
        put(texts.render(found, output()) + _summary(len(files), faulty, clean=not found))
    else:
        _print_records(face, found)
    code = document_code(found)
    raise typer.Exit(NO if code == OK and strict and found else code)


def _check(
    file: str, stdin: StandardInput, texts: Texts, tools: Tools | None, roots: Sequence[Path]
) -> tuple[Program | None, list[Diagnostic]]:
    """The program, None where there are errors, and all that was found."""
    from sglspec.analysis import load_program
    from sglspec.diagnostics import Report, SpecError

    try:
        source = read_document(file, "check -", stdin)
    except SpecError as error:
        return None, list(error.diagnostics)
    report = Report(source.name)
    program = load_program(texts.keep(source), report, tools, roots)
    texts.keep_all(report)
    return program, report.sorted()


def _ask(
    checked: Sequence[tuple[Program | None, list[Diagnostic]]], reference: str | None, model: str | None, texts: Texts
) -> None:
    """Add what a backend cannot do of what programs need. It is opened once for each model."""
    import asyncio

    from sglspec.backends import open_backend
    from sglspec.diagnostics import SpecError
    from sglspec.runtime.needs import unmet

    by_model: dict[str | None, list[tuple[Program, list[Diagnostic]]]] = {}
    for program, problems in checked:
        if program is not None:
            by_model.setdefault(model or program.spec.model, []).append((program, problems))

    async def ask() -> None:
        for name, group in by_model.items():
            backend = await open_backend(reference, name)
            try:
                for program, problems in group:
                    problems += unmet(program, backend)
            finally:
                await backend.close()

    try:
        asyncio.run(ask())
    except SpecError as error:
        texts.complain(error.diagnostics)
        raise typer.Exit(backend_code(error.diagnostics)) from None


def _print_records(face: Format, found: Sequence[Diagnostic]) -> None:
    """The faces for programs."""
    from sglspec.diagnostics import MAX_REPORTED

    first = found[:MAX_REPORTED]
    if face is Format.json:
        from sglspec.diagnostics.render import render_json

        put(render_json(first))
    elif face is Format.sarif:
        from sglspec import __version__
        from sglspec.diagnostics.annotations import render_sarif

        put(render_sarif(first, __version__))
    else:
        from sglspec.diagnostics.annotations import render_github

        if first:
            put(render_github(first))
    if len(found) > MAX_REPORTED:
        note(f"sglspec: and {len(found) - MAX_REPORTED} more, not listed")


def _summary(documents: int, faulty: int, *, clean: bool) -> str:
    """The last line. One document with problems has it already: the number of problems."""
    if documents == 1:
        return "1 document, no problems" if clean else ""
    tail = "no problems" if clean else f"{faulty} with errors" if faulty else "none with errors"
    return f"{documents} documents, {tail}"

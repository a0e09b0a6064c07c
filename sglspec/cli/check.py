"""`sglspec check`: every mistake of every document, without running anything."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sglspec.cli.complain import Texts
from sglspec.cli.exits import NO, OK, backend_code, document_code
from sglspec.cli.inputs import text_source
from sglspec.cli.options import one_of, wrong
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import note, put

if TYPE_CHECKING:
    from sglspec.analysis.program import Program
    from sglspec.diagnostics import Diagnostic

ENDINGS = (".sglspec.yaml", ".sglspec.yml", ".sglspec.json")


class Format(StrEnum):
    text = "text"
    json = "json"


def check(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Documents, folders with *.sglspec.yaml/.yml/.json in them, or -."),
    ],
    format: Annotated[
        str, typer.Option("--format", metavar="text|json", help="How to print what was found.")
    ] = Format.text.value,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    backend: Annotated[
        str | None,
        typer.Option(metavar="REF", help="Also report what this backend cannot do: local, or scripted:FILE."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model that the backend runs, as for `sglspec run`.")
    ] = None,
) -> None:
    """Report every mistake of documents. Exit code 1 if there are errors."""
    face = one_of(Format, format, "--format")
    texts, stdin = Texts(), StandardInput()
    files = [file for path in paths for file in documents(path)]
    checked = [_check(file, stdin, texts) for file in files]
    if backend is not None or model is not None:
        _ask(checked, backend, model, texts)
    found = [problem for _, problems in checked for problem in problems]
    faulty = sum(any(p.severity == "error" or strict for p in problems) for _, problems in checked)
    if face is Format.json:
        from sglspec.diagnostics import MAX_REPORTED
        from sglspec.diagnostics.render import render_json

        put(render_json(found[:MAX_REPORTED]))
        if len(found) > MAX_REPORTED:
            note(f"sglspec: and {len(found) - MAX_REPORTED} more, not listed")
    else:
        put(texts.render(found, sys.stdout) + _summary(len(files), faulty, clean=not found))
    code = document_code(found)
    raise typer.Exit(NO if code == OK and strict and found else code)


def documents(path: str) -> Iterator[str]:
    """The files that a path stands for. A file is taken whatever its name."""
    if not Path(path).is_dir():
        yield path
        return
    found = False
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(ENDINGS):
                found = True
                yield str(Path(folder) / name)
    if not found:
        raise wrong(f"The folder {path!r} holds no {', no '.join(f'*{end}' for end in ENDINGS)}.", "PATH")


def _check(file: str, stdin: StandardInput, texts: Texts) -> tuple[Program | None, list[Diagnostic]]:
    """The program, None where there are errors, and all that was found."""
    from sglspec.analysis import load_program
    from sglspec.diagnostics import Report, SpecError
    from sglspec.document.read import read_source

    try:
        source = text_source(stdin.read("check -"), StandardInput.NAME) if file == "-" else read_source(file)
    except SpecError as error:
        return None, list(error.diagnostics)
    report = Report(source.name)
    program = load_program(texts.keep(source), report)
    return program, report.sorted()


def _ask(
    checked: Sequence[tuple[Program | None, list[Diagnostic]]], reference: str | None, model: str | None, texts: Texts
) -> None:
    """Add what a backend cannot do of what programs need. It is opened once for each model."""
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


def _summary(documents: int, faulty: int, *, clean: bool) -> str:
    """The last line. One document with problems has it already: the number of problems."""
    if documents == 1:
        return "1 document, no problems" if clean else ""
    tail = "no problems" if clean else f"{faulty} with errors" if faulty else "none with errors"
    return f"{documents} documents, {tail}"

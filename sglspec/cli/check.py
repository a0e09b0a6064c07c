"""`sglspec check`: every mistake of every document, without running anything."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sglspec.cli.complain import Texts
from sglspec.cli.exits import NO, OK, document_code
from sglspec.cli.inputs import text_source
from sglspec.cli.options import one_of, wrong
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import note, put

if TYPE_CHECKING:
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
) -> None:
    """Report every mistake of documents. Exit code 1 if there are errors."""
    face = one_of(Format, format, "--format")
    texts, stdin = Texts(), StandardInput()
    documents = [file for path in paths for file in _documents(path)]
    found: list[Diagnostic] = []
    faulty = 0
    for file in documents:
        problems = _check(file, stdin, texts)
        faulty += any(p.severity == "error" or strict for p in problems)
        found += problems
    if face is Format.json:
        from sglspec.diagnostics import MAX_REPORTED
        from sglspec.diagnostics.render import render_json

        put(render_json(found[:MAX_REPORTED]))
        if len(found) > MAX_REPORTED:
            note(f"sglspec: and {len(found) - MAX_REPORTED} more, not listed")
    else:
        put(texts.render(found, sys.stdout) + _summary(len(documents), faulty, clean=not found))
    code = document_code(found)
    raise typer.Exit(NO if code == OK and strict and found else code)


def _documents(path: str) -> Iterator[str]:
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


def _check(file: str, stdin: StandardInput, texts: Texts) -> list[Diagnostic]:
    from sglspec.analysis import load_program
    from sglspec.diagnostics import Report, SpecError
    from sglspec.document.read import read_source

    try:
        source = text_source(stdin.read("check -"), StandardInput.NAME) if file == "-" else read_source(file)
    except SpecError as error:
        return list(error.diagnostics)
    report = Report(source.name)
    load_program(texts.keep(source), report)
    return report.sorted()


def _summary(documents: int, faulty: int, *, clean: bool) -> str:
    """The last line. One document with problems has it already: the number of problems."""
    if documents == 1:
        return "1 document, no problems" if clean else ""
    tail = "no problems" if clean else f"{faulty} with errors" if faulty else "none with errors"
    return f"{documents} documents, {tail}"

"""The programs that a server starts with: documents in files, stored before it listens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sglspec.analysis import load_program
from sglspec.analysis.program import Program
from sglspec.diagnostics import Diagnostic, Report, SpecError, sentence
from sglspec.document.read import read_source, source_from_text
from sglspec.server.storage import programs as table
from sglspec.server.storage.database import Database
from sglspec.server.storage.programs import NAME, Document, Format
from sglspec.tools import Tools


def builtin() -> list[Path]:
    """The documents that come with sglspec: beside the package in a checkout, in it once installed."""
    package = Path(__file__).parents[1]
    folder = next((place for place in (package / "specs", package.parent / "specs") if place.is_dir()), None)
    return sorted(folder.glob("*.sglspec.yaml")) if folder is not None else []


def read(files: Iterable[Path], tools: Tools) -> dict[str, Document]:
    """Check documents; their texts by the names of the programs. Raises SpecError with what is wrong in all of them."""
    found: dict[str, Document] = {}
    problems: list[Diagnostic] = []
    for file in files:
        try:
            name, document = _read(file, tools)
        except SpecError as error:
            problems += error.diagnostics
            continue
        if name in found and found[name] != document:
            message = f"Another file holds a program of the name `{name}`, too."
            problems.append(Diagnostic("S612", message, file=str(file), help="Give one of them another `name`."))
        found.setdefault(name, document)
    if problems:
        raise SpecError(*problems)
    return found


async def offer(database: Database, documents: dict[str, Document]) -> None:
    """Store programs. A text that is stored already stays the version that it is."""
    for name, document in documents.items():
        await database.write(lambda connection, n=name, d=document: table.save(connection, n, d))


def _read(file: Path, tools: Tools) -> tuple[str, Document]:
    source = read_source(file)
    program = _checked(str(file), source.text, source.format, tools)
    name = program.name
    if not NAME.fullmatch(name):
        message = f"`{name}` cannot be the name of a program: a-z, 0-9 and -, a letter first"
        raise SpecError(Diagnostic("S612", sentence(message), file=str(file), help="Write `name:` into the document."))
    return name, Document.of(file.read_bytes(), source.format)


def _checked(name: str, text: str, format: Format, tools: Tools) -> Program:
    report = Report(name)
    program = load_program(source_from_text(text, name, format), report, tools)
    if program is None or report.has_errors:
        raise SpecError(*(problem for problem in report.sorted() if problem.severity == "error"))
    return program


__all__ = ["builtin", "offer", "read"]

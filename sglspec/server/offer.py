"""The programs that a server starts with: documents in files, stored before it listens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sglspec.analysis import load_program
from sglspec.diagnostics import Diagnostic, Report, SpecError, sentence
from sglspec.document.files import Files, PathFault
from sglspec.document.read import read_source
from sglspec.server.storage import programs as table
from sglspec.server.storage.database import Database
from sglspec.server.storage.programs import NAME, Document
from sglspec.tools import Tools


def builtin() -> list[Path]:
    """The documents that come with sglspec: beside the package in a checkout, in it once installed."""
    package = Path(__file__).parents[1]
    folder = next((place for place in (package / "specs", package.parent / "specs") if place.is_dir()), None)
    return sorted(folder.glob("*.sglspec.yaml")) if folder is not None else []


def read(files: Iterable[Path], tools: Tools, roots: Sequence[Path] = ()) -> dict[str, Document]:
    """Check documents, which may use files of their own folder and of `roots`; their texts by the names of the
    programs. Raises SpecError with what is wrong in all of them."""
    found: dict[str, Document] = {}
    problems: list[Diagnostic] = []
    for file in files:
        try:
            name, document = _read(file, tools, roots)
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


def _read(file: Path, tools: Tools, roots: Sequence[Path]) -> tuple[str, Document]:
    source = read_source(file)
    files = Files(source, roots)
    report = Report(source.name)
    program = load_program(source, report, tools, files=files)
    if program is None or report.has_errors:
        raise SpecError(*(problem for problem in report.sorted() if problem.severity == "error"))
    name = program.name
    if not NAME.fullmatch(name):
        message = f"`{name}` cannot be the name of a program: a-z, 0-9 and -, a letter first"
        raise SpecError(Diagnostic("S612", sentence(message), file=str(file), help="Write `name:` into the document."))
    try:
        bundle = files.bundle()
    except PathFault as fault:
        raise SpecError(Diagnostic(fault.code, sentence(fault.message), file=str(file), help=fault.help)) from None
    return name, Document.of(file.read_bytes(), source.format, bundle)


__all__ = ["builtin", "offer", "read"]

"""Programs by name and version, read and checked once for each text."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from sglspec.analysis import load_program
from sglspec.analysis.program import Program
from sglspec.diagnostics import Diagnostic, Report, SpecError
from sglspec.document.files import Bundle
from sglspec.document.nodes import Source
from sglspec.document.read import source_from_text
from sglspec.server.problems import Problem
from sglspec.server.storage import programs as table
from sglspec.server.storage.database import Database
from sglspec.server.storage.programs import DIGEST, NAME, Document, Format, Version
from sglspec.tools import Tools

KEPT = 256
"""Checked programs that stay in memory."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """A program that can run. name, version: of a stored one."""

    program: Program
    document: Document
    name: str | None = None
    version: int | None = None


class Programs:
    """The stored programs, and those that come with a request."""

    def __init__(self, database: Database, tools: Tools) -> None:
        self._database = database
        self._tools = tools
        self._kept: OrderedDict[tuple[str, str, str], Checked] = OrderedDict()
        self._checking = asyncio.Lock()

    async def resolve(self, reference: str) -> Version:
        """The version that `NAME` or `NAME@VERSION` means. Raises Problem: 404, and 410 for an archived program."""
        name, at, which = reference.partition("@")
        found = None
        if NAME.fullmatch(name) and (not at or is_version(which)):
            found = await self._database.read(lambda connection: table.find(connection, name, which or None))
        if found is None:
            raise Problem(404, "not-found", "There is no such program or version.")
        return found

    async def load(self, reference: str) -> Checked:
        """The program to run. Raises Problem as `resolve`."""
        version = await self.resolve(reference)
        if version.archived:
            raise Problem(410, "archived")
        return await self.stored(version.digest, version.name, version.version)

    async def stored(self, digest: str, name: str | None = None, version: int | None = None) -> Checked:
        """The program with this text. Raises Problem (422) when this sglspec does not take it (any more)."""
        document = await self.document(digest)
        key = (digest, document.format, name or "spec")
        checked = self._remembered(key)
        if checked is None:
            source = source_from_text(document.source, name or "spec", document.format)
            checked, diagnostics = await self.check(source, document)
            if checked is None:
                raise Problem(422, "invalid-program", errors=[d for d in diagnostics if d.severity == "error"])
            self._remember(key, checked)
        return Checked(checked.program, document, name, version)

    async def document(self, digest: str) -> Document:
        """Raises Problem (404)."""
        found = await self._database.read(lambda connection: table.document(connection, digest))
        if found is None:
            raise Problem(404, "not-found", "There is no such program.")
        return found

    async def posted(self, source: Source, files: Mapping[str, str]) -> tuple[Checked | None, list[Diagnostic]]:
        """A program that came with a request; None when it has errors, and all diagnostics."""
        document = Document.of(source.text.encode("utf-8", "surrogatepass"), source.format, files)
        key = (document.digest, document.format, source.name)
        checked = self._remembered(key)
        if checked is not None:
            return checked, []
        checked, diagnostics = await self.check(source, document)
        if checked is not None and not diagnostics:
            self._remember(key, checked)
        return checked, diagnostics

    async def check(self, source: Source, document: Document) -> tuple[Checked | None, list[Diagnostic]]:
        """Read and check, beside the event loop, one at a time: runs go on meanwhile. None for a program with errors.
        What comes back has those of the document's files that it uses."""
        return await self.beside(lambda: _check(source, document, self._tools))

    async def beside(self, work: Callable[[], T]) -> T:
        """Do work that takes a processor for a while."""
        async with self._checking:
            return await asyncio.to_thread(work)

    def _remembered(self, key: tuple[str, str, str]) -> Checked | None:
        checked = self._kept.get(key)
        if checked is not None:
            self._kept.move_to_end(key)
        return checked

    def _remember(self, key: tuple[str, str, str], checked: Checked) -> None:
        """key: digest, format and name of what was given."""
        self._kept[key] = checked
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)


def is_version(text: str) -> bool:
    """A number, a digest, or the name of an alias."""
    number = text.isascii() and text.isdigit() and len(text) <= 9
    return number or bool(DIGEST.fullmatch(text) or NAME.fullmatch(text))


def _check(source: Source, document: Document, tools: Tools) -> tuple[Checked | None, list[Diagnostic]]:
    report = Report()
    files = Bundle(source, document.files)
    program: Program | None = None
    try:
        program = load_program(source, report, tools, files=files)
    except SpecError as error:
        report.extend(error.diagnostics)
    if program is None and not report.has_errors:
        raise RuntimeError("the analysis gave neither a program nor an error")
    if program is None or report.has_errors:
        return None, report.sorted()
    return Checked(program, Document.of(document.source, document.format, files.bundle())), report.sorted()


__all__ = ["KEPT", "Checked", "Format", "Programs", "is_version"]

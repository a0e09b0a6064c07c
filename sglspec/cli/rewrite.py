"""Commands that rewrite documents in place (`fmt`, `upgrade`): what they have in common."""

from __future__ import annotations

import difflib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sglspec.cli.complain import Texts
from sglspec.cli.documents import documents, read_document
from sglspec.cli.exits import NO, OK, document_code
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import note, put

if TYPE_CHECKING:
    from sglspec.diagnostics import Diagnostic, Report
    from sglspec.document.nodes import Source

Rewriter = Callable[["Source", "Report"], str | None]
"""The new text of a document; None when it cannot be read, and then the report says why."""


@dataclass(slots=True)
class Rewriting:
    """One command over its documents. `done` and `would` are its words for the summary ("formatted")."""

    command: str
    rewrite: Rewriter
    done: str
    check: bool
    diff: bool

    def run(self, paths: Iterable[str]) -> int:
        """Rewrite, print, and return the exit code: 1 for a document that cannot be read, and with `check` for one that
        would change."""
        texts, stdin = Texts(), StandardInput()
        changed = total = code = 0
        for file in [file for path in paths for file in documents(path)]:
            total += 1
            differs, found = self._one(file, texts, stdin)
            changed += differs
            texts.complain(found)
            code = max(code, document_code(found))
        if not (self.diff or paths == ["-"]):
            note(self._summary(changed, total))
        return NO if code == OK and self.check and changed else code

    def _one(self, file: str, texts: Texts, stdin: StandardInput) -> tuple[bool, list[Diagnostic]]:
        from sglspec.diagnostics import Report, SpecError

        try:
            source = texts.keep(read_document(file, f"{self.command} -", stdin))
        except SpecError as error:
            return False, list(error.diagnostics)
        report = Report(source.name)
        text = self.rewrite(source, report)
        if text is None:
            return False, report.sorted()
        marked = file != "-" and _has_mark(Path(file))
        differs = marked or text != source.text
        problem = self._deliver(file, source, text, differs)
        return differs, [*report.sorted(), *problem]

    def _deliver(self, file: str, source: Source, text: str, differs: bool) -> list[Diagnostic]:
        if self.diff:
            if differs:
                put(_diff(source, text))
        elif self.check:
            if differs:
                put(source.name)
        elif file == "-":
            sys.stdout.write(text)
            sys.stdout.flush()
        elif differs:
            return _write(file, text)
        return []

    def _summary(self, changed: int, total: int) -> str:
        one, many = f"{changed} of {total} document{'' if total == 1 else 's'}", "would be " if self.check else ""
        return f"{one} {many}{self.done}"


def _has_mark(path: Path) -> bool:
    """Whether a file begins with a byte order mark. What is no regular file can be read once only."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(3) == b"\xef\xbb\xbf"
    except OSError:  # it has gone
        return False


def _diff(source: Source, text: str) -> str:
    before, after = source.text.splitlines(keepends=True), text.splitlines(keepends=True)
    lines = difflib.unified_diff(before, after, source.name, source.name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _write(file: str, text: str) -> list[Diagnostic]:
    """Put a text in a file's place, all of it or nothing: a reader never sees half of it. Links are followed, the
    file's mode is kept."""
    from sglspec.diagnostics import Diagnostic

    path = Path(file).resolve()
    temporary: Path | None = None
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return [Diagnostic("S100", f"`{file}` cannot be written: it is no regular file.", file=file)]
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".sglspec-")
        temporary = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(handle)
        temporary.chmod(mode & 0o7777)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
        return [Diagnostic("S100", f"`{file}` cannot be written: {error.strerror}.", file=file)]
    return []

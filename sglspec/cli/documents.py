"""Documents that commands are given: files, folders of them, and standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sglspec.cli.complain import Refused, Texts
from sglspec.cli.exits import document_code
from sglspec.cli.inputs import text_source
from sglspec.cli.options import is_folder, wrong
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import note

if TYPE_CHECKING:
    from sglspec.analysis.program import Program
    from sglspec.document.nodes import Source
    from sglspec.tools import Tools

ENDINGS = (".sglspec.yaml", ".sglspec.yml", ".sglspec.json")


def documents(path: str) -> Iterator[str]:
    """The files that a path stands for. A file is taken whatever its name."""
    if not path:  # an empty path would be the folder where we are
        raise wrong("A path is empty.", "PATH")
    if not is_folder(path):
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


def read_document(file: str, user: str, stdin: StandardInput) -> Source:
    """A document's text; `user` is who reads standard input, as a message shall name it. Raises SpecError."""
    from sglspec.document.read import read_source

    return text_source(stdin.read(user), StandardInput.NAME) if file == "-" else read_source(file)


def load(
    spec: str, stdin: StandardInput, texts: Texts, tools: Tools | None = None, roots: Sequence[Path] = ()
) -> Program:
    """The checked document, with the `tools` that a host offers where they are known; it may use files of `roots`.
    Lints are left to `check`; on a terminal one line says that there are some. Raises Refused for one with errors."""
    from sglspec.analysis import load_program
    from sglspec.diagnostics import Report, SpecError

    if not spec:
        raise wrong("The path is empty.", "SPEC")
    try:
        source = read_document(spec, "SPEC", stdin)
    except SpecError as error:
        raise Refused(document_code(error.diagnostics), error.diagnostics) from None
    report = Report(source.name)
    program = load_program(texts.keep(source), report, tools, roots)
    texts.keep_all(report)
    found = report.sorted()
    if program is None or report.has_errors:
        raise Refused(document_code(found), found)
    if found and sys.stderr.isatty():
        count = f"{len(found)} warning{'' if len(found) == 1 else 's'}"
        note(f"{count}; see: sglspec check {source.name}")
    return program

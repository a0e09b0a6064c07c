"""A document with the files that it uses, as it is sent to a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sglspec.analysis import load_program
from sglspec.analysis.program import Program
from sglspec.cli.complain import Refused, Texts
from sglspec.cli.documents import read_document
from sglspec.cli.exits import document_code
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import to_json
from sglspec.diagnostics import Diagnostic, Report, SpecError, sentence
from sglspec.document.files import Files, PathFault
from sglspec.document.nodes import Source

_FILES = frozenset({"S100", "S109", "S113", "S120", "S121", "S122"})
"""What is wrong with files; of everything else the server is the judge."""


@dataclass(frozen=True, slots=True)
class DocumentBundle:
    """files: texts by path from the document's folder; names: what is called how here, by what a server calls it.
    program: None where the check of this sglspec found errors; found: all that it found."""

    source: Source
    files: dict[str, str]
    names: dict[str, str]
    program: Program | None
    found: list[Diagnostic]


def read_bundle(spec: str, stdin: StandardInput, texts: Texts, roots: Sequence[Path]) -> DocumentBundle:
    """Raises Refused when the document or a file that it uses cannot be read."""
    try:
        source = texts.keep(read_document(spec, "SPEC", stdin))
        files = Files(source, roots)
        report = Report(source.name)
        program = load_program(source, report, files=files)
        bundle = files.bundle()
    except SpecError as error:
        raise Refused(document_code(error.diagnostics), error.diagnostics) from None
    except PathFault as fault:
        problem = Diagnostic(fault.code, sentence(fault.message), file=spec, help=fault.help)
        raise Refused(document_code([problem]), [problem]) from None
    texts.keep_all(report)
    if faults := [problem for problem in report.sorted() if problem.code in _FILES]:
        raise Refused(document_code(faults), faults)
    names = {**files.names, "spec": source.name, "body": source.name}
    return DocumentBundle(source, bundle, names, program, report.sorted())


def body_of(bundle: DocumentBundle) -> tuple[str, bytes]:
    """The type and the bytes of a body with a program to store."""
    source = bundle.source
    if not bundle.files:
        return f"application/{source.format}", source.text.encode()
    return "application/json", to_json({"spec": source.text, "files": bundle.files}).encode()

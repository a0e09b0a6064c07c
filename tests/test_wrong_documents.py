"""Documents that are wrong on purpose: one message each, at the right line and column, in the words of the golden file.

After a deliberate change of a message: `SGLSPEC_UPDATE_GOLDEN=1 pytest tests/test_wrong_documents.py`, then read the diff.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from sglspec.analysis import load_program
from sglspec.diagnostics import Diagnostic, Report, SpecError
from sglspec.diagnostics.render import render_text
from sglspec.document.nodes import to_python
from sglspec.document.read import parse, source_from_text
from sglspec.document.schema import editor_schema

FOLDER = Path(__file__).parent / "wrong"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".yaml", ".json"))
LAST_STRUCTURAL = 23
"""Files up to this number break the document's structure; the editor schema must flag them too."""


def problems_of(path: Path) -> tuple[dict[str, str], list[Diagnostic]]:
    """What is found, and the texts that it is found in, by name."""
    text = path.read_text("utf-8")
    report = Report(path.name)
    try:
        load_program(replace(source_from_text(text, path.name), path=path), report)
    except SpecError as error:
        return {path.name: text}, list(error.diagnostics)
    return {path.name: text} | report.texts, report.sorted()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_one_correct_message(path: Path):
    texts, problems = problems_of(path)
    shown = render_text(problems, texts)
    golden = path.with_suffix(".txt")
    if os.environ.get("SGLSPEC_UPDATE_GOLDEN"):
        golden.write_text(shown, "utf-8")
    assert shown == golden.read_text("utf-8")
    assert [problem.severity for problem in problems] == ["error"]


@pytest.mark.parametrize(
    "path", [p for p in FILES if int(p.name.split("-")[0]) <= LAST_STRUCTURAL], ids=lambda path: path.stem
)
def test_the_editor_schema_flags_the_structural_ones(path: Path):
    report = Report(path.name)
    root = parse(source_from_text(path.read_text("utf-8"), path.name), report)
    assert root is not None
    assert list(jsonschema.Draft7Validator(editor_schema()).iter_errors(to_python(root)))


def test_there_are_enough():
    assert len(FILES) >= 40
    assert len({path.suffix for path in FILES}) == 2

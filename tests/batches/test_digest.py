"""What a result of a batch depends on: the document, and every file that it uses."""

from __future__ import annotations

from pathlib import Path

from sglspec.analysis import load_program
from sglspec.batches.source import digest_of
from sglspec.diagnostics import Report
from sglspec.document.read import read_source

MAIN = """
sglspec: v1
use: {a: ./a.yaml}
defs:
  texts: {t: {file: ./t.md}}
  schemas: {s: ./s.json}
steps:
  - "{{ texts.t }}"
  - include: a
  - gen: x
    schema: s
"""
FILES = {"main.yaml": MAIN, "a.yaml": "sglspec: v1\nsteps: hello\n", "t.md": "text\n", "s.json": '{"type": "integer"}'}


def digest(folder: Path, **changed: str) -> str:
    for name, text in FILES.items():
        (folder / name).write_text(changed.get(name.partition(".")[0], text))
    program = load_program(read_source(folder / "main.yaml"), Report())
    assert program is not None
    return digest_of(program)


def test_every_file_counts(tmp_path: Path):
    changes = {
        "main": MAIN + "  - more\n",
        "a": "sglspec: v1\nsteps: hallo\n",
        "t": "another text\n",
        "s": '{"type": "boolean"}',
    }
    same = digest(tmp_path)
    others = {digest(tmp_path, **{name: text}) for name, text in changes.items()}
    assert len(others) == len(changes) and same not in others


def test_spacing_and_remarks_do_not(tmp_path: Path):
    remark = "# a remark\nsglspec: v1\ndescription: About.\nsteps:   hello\n"
    assert digest(tmp_path) == digest(tmp_path, a=remark, s='{"type":\n"integer"}')

"""Each wrong item of a list or mapping has its own message, and a fault in a used file says who uses that."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglspec.analysis import load_program
from sglspec.diagnostics import Diagnostic, Report
from sglspec.document.read import read_source, source_from_text

GEN = "sglspec: v1\nsteps:\n  - gen: a\n"


def places(found: list[Diagnostic]) -> list[tuple[str, int, int]]:
    assert all(one.range is not None for one in found)
    return [(one.code, one.range.start.line, one.range.start.column) for one in found if one.range is not None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GEN + "    stop: ['', null, 3]\n", [("S507", 4, 12), ("S206", 4, 16)]),
        (GEN + "    stop: [[], ok, {}, null]\n", [("S203", 4, 12), ("S203", 4, 20), ("S206", 4, 24)]),
        (GEN + "    stop_regex: ['(', null, [a]]\n", [("S501", 4, 19), ("S206", 4, 23), ("S203", 4, 29)]),
        (GEN.replace("steps", "defaults: {stop: [null, '']}\nsteps"), [("S206", 2, 19), ("S507", 2, 25)]),
        ("sglspec: v1\noutputs: [a, [], {}]\nsteps:\n  - gen: a\n", [("S203", 2, 14), ("S203", 2, 18)]),
        (
            GEN + "  - call: foo\n    into: {1a: x, b: 2x, c: []}\n",
            [("S211", 5, 12), ("S211", 5, 22), ("S203", 5, 29)],
        ),
    ],
)
def test_one_message_for_each_wrong_item(text: str, expected: list[tuple[str, int, int]]):
    report = Report("t.yaml")
    assert load_program(source_from_text(text, "t.yaml"), report) is None
    assert places(report.sorted()) == expected


FILES = {
    "main.yaml": "sglspec: v1\nuse:\n  part: ./part.yaml\ndefs:\n  texts: {t: {file: ./t.txt}}\n  schemas: {s: ./s.json}\n"
    "steps: ['{{ texts.t }}']\n",
    "part.yaml": "sglspec: v1\nuse: {deep: ./deep.yaml}\nsteps:\n  - gen: a\n    regex: '('\n  - gen: b\n    regex: ')'\n",
    "deep.yaml": "sglspec: v1\nsteps: [\n",
    "s.json": '{"type":',
}


def test_a_fault_in_a_used_file_says_who_uses_it(tmp_path: Path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "t.txt").write_bytes(b"caf\xe9")
    report = Report("main.yaml")
    assert load_program(read_source(tmp_path / "main.yaml", "main.yaml"), report) is None
    notes = [(one.file, [(n.message, n.file, n.range.start.line) for n in one.related]) for one in report.sorted()]
    assert notes == [
        ("deep.yaml", [("used here", "part.yaml", 2)]),
        ("part.yaml", [("used here", "main.yaml", 3)]),
        ("part.yaml", []),  # once for each file
        ("s.json", [("used here", "main.yaml", 6)]),
        ("t.txt", [("used here", "main.yaml", 5)]),
    ]

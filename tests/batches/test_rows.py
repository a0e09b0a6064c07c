"""Rows that say something twice, or nothing that a reader could take; how many there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglspec.batches import rows
from sglspec.batches.rows import count_rows, read_rows
from sglspec.diagnostics import SpecError


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (r'{"q": "\ud800"}', "half of a character"),
        (r'{"q": [{"\uDC00": 1}]}', "half of a character"),
        (r'{"q": "a", "p": "b", "q": "c"}', "`q`"),
        ('{"p": {"q": 1, "q": 1}}', "`q`"),
        ('{"q": NaN}', "NaN"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_lines_that_are_no_rows(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "rows.jsonl").write_text(f'{{"q": "a"}}\n{line}\n')
    good, bad = read_rows(tmp_path / "rows.jsonl")
    assert good.values == {"q": "a"} and bad.values is None and bad.problem is not None
    assert (bad.problem.code, says in bad.problem.message) == ("S411", True)
    assert bad.problem.file == f"{tmp_path / 'rows.jsonl'}:2"


def test_bytes_and_cells_that_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"q": "\xff"}\n')
    (tmp_path / "rows.csv").write_text("q\n" + "x" * 200_000 + "\ny\n")
    (line,) = read_rows(tmp_path / "rows.jsonl")
    long, good = read_rows(tmp_path / "rows.csv")
    assert line.problem is not None and line.problem.message.startswith("The line is not UTF-8")
    assert long.problem is not None and "a cell is longer than 131,072 characters" in long.problem.message
    assert good.values == {"q": "y"}


def test_pairs_of_halves_are_characters(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(r'{"q": "\ud83d\ude00"}')
    assert [row.values for row in read_rows(tmp_path / "rows.jsonl")] == [{"q": "\U0001f600"}]


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("q,p,q\na,b,c\n")
    with pytest.raises(SpecError) as refused:
        list(read_rows(tmp_path / "rows.csv"))
    assert [item.code for item in refused.value.diagnostics] == ["S411"]
    (tmp_path / "rows.csv").write_text("q,p,,\na,b,,\n")  # columns without a name are no columns
    assert [row.values for row in read_rows(tmp_path / "rows.csv")] == [{"q": "a", "p": "b", "": ""}]


def test_rows_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, text, number in (
        ("a.jsonl", '{}\n\n  \n{"a": 1}\nnonsense', 3),
        ("b.csv", 'a,b\n1,"two\nlines"\n\n3,4\n', 2),
        ("c.csv", "", 0),
        ("d.csv", 'a\n"b', None),
        ("e.parquet", "nonsense", None),
    ):
        (tmp_path / name).write_text(text)
        assert count_rows(tmp_path / name) == number, name
    assert count_rows(tmp_path) is None and count_rows(tmp_path / "none.jsonl") is None
    monkeypatch.setattr(rows, "MAX_COUNTED", 3)
    assert count_rows(tmp_path / "a.jsonl") is None

"""Rows that say something twice, or nothing that a reader could take."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglspec.batches.rows import read_rows
from sglspec.diagnostics import SpecError


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (r'{"q": "\ud800"}', "half of a character"),
        (r'{"q": [{"\uDC00": 1}]}', "half of a character"),
        (r'{"q": "a", "p": "b", "q": "c"}', "`q`"),
        ('{"p": {"q": 1, "q": 1}}', "`q`"),
        ('{"q": NaN}', "NaN"),
    ],
)
def test_lines_that_are_no_rows(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "rows.jsonl").write_text(f'{{"q": "a"}}\n{line}\n')
    good, bad = read_rows(tmp_path / "rows.jsonl")
    assert good.values == {"q": "a"} and bad.values is None and bad.problem is not None
    assert (bad.problem.code, says in bad.problem.message) == ("S411", True)
    assert bad.problem.file == f"{tmp_path / 'rows.jsonl'}:2"


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

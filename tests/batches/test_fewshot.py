"""Few-shot examples: which rows are drawn, for whom, and what a change of them changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sglspec

PROGRAM = sglspec.load("""
sglspec: v1
inputs:
  q: string
  shots: {type: array, items: {properties: {q: string, a: integer}}}
outputs: {shots: "{{ shots }}"}
steps:
  - "{% for one in shots %}{{ one.q }} {{ one.a }}\\n{% endfor %}{{ q }} "
""")


def rows(count: int) -> list[dict[str, Any]]:
    return [{"q": f"q{i}", "a": i, "more": "x"} for i in range(count)]


def shots(table: Any, **options: Any) -> list[list[int]]:
    """The examples of each row, by their number."""
    found = list(PROGRAM.batch(table, on={}, few_shot=("shots", 3), **options))
    assert [row.error for row in found] == [None] * len(found)
    assert all(shot == {"q": f"q{shot['a']}", "a": shot["a"]} for row in found for shot in row.outputs["shots"])
    return [[shot["a"] for shot in row.outputs["shots"]] for row in found]


def test_all_rows_see_the_same_but_none_sees_itself():
    found = shots(rows(20))
    common = max(found, key=found.count)
    assert len(common) == 3 and common == sorted(common)
    for number, seen in enumerate(found):
        if number in common:
            assert len(set(seen)) == 3 and number not in seen and seen == sorted(seen)
            assert len(set(seen) & set(common)) == 2
        else:
            assert seen == common
    assert shots(rows(20)) == found
    assert any(shots(rows(20), seed=seed) != found for seed in (1, 2, 3))


@given(st.integers(5, 30), st.integers(0, 29), st.integers(0, 5))
def test_examples_stay_when_another_row_changes_or_goes(count: int, changed: int, seed: int):
    table = rows(count)
    before = shots(table, seed=seed)
    common = max(before, key=before.count)
    spare = {one for seen in before for one in seen}
    if changed >= count or changed in spare:
        return
    for other in ({"q": "another", "a": 1_000_000}, None):
        pool = [*table[:changed], *([other] if other else []), *table[changed + 1 :]]
        after = shots([{"q": "new"}], few_shot_from=pool, seed=seed)[0]
        assert other is not None or after == common, "a row that goes is no example"
        assert len(set(after) & set(common)) >= 2, "one that comes takes one place at most"


@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_a_file_of_another_kind_that_holds_the_row_too(tmp_path: Path, ending: str):
    file = tmp_path / f"train{ending}"
    if ending == ".csv":
        file.write_text("q,a\nq0,0\nq1,1\nq2,\nq3,3\nq4,x\nq5,5\n")
    else:
        file.write_text('{"q":"q0","a":0}\n{"q":"q1","a":1}\n{"q":"q2"}\n{"q":"q3","a":3}\n[]\n{"q":"q5","a":5}\n')
    # of six rows two cannot be examples
    found = shots([{"q": f"q{i}"} for i in range(7)], few_shot_from=file)
    assert {one for seen in found for one in seen} == {0, 1, 3, 5}
    assert all(number not in seen for number, seen in enumerate(found))


def test_equal_rows_are_one(tmp_path: Path):
    table = [row for row in rows(4) for _ in range(5)]
    found = shots(table)
    assert all(len(set(seen)) == 3 for seen in found)
    assert all(number // 5 not in seen for number, seen in enumerate(found))


def test_what_cannot_be_an_example():
    def codes(error: pytest.ExceptionInfo[sglspec.SpecError]) -> list[str]:
        return [problem.code for problem in error.value.diagnostics]

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"few_shot": ("shots", 5)}, "S412"),
        ({"few_shot": ("q", 2)}, "S412"),
        ({"few_shot": ("shot", 2)}, "S403"),
        ({"few_shot": ("shots", 2), "columns": {"shots": "a"}}, "S410"),
    ]
    for options, code in wrong:
        with pytest.raises(sglspec.SpecError) as error:
            list(PROGRAM.batch(rows(4), on={}, **options))
        assert codes(error) == [code]
    found = list(PROGRAM.batch(rows(4), on={}, few_shot=("shots", 4)))
    assert [row.error and row.error.code for row in found] == ["S412"] * 4
    with pytest.raises(ValueError, match="few_shot_from"):
        list(PROGRAM.batch(iter(rows(4)), on={}, few_shot=("shots", 2)))


def test_a_changed_example_is_a_changed_row(tmp_path: Path):
    out = tmp_path / "out.jsonl"
    table = rows(12)
    common = max(found := shots(table, output=out), key=found.count)
    other = next(number for number in range(12) if all(number not in seen for seen in found))
    table[other] = {"q": "another", "a": 1_000_000}  # ranks behind the others
    again = [row.row for row in PROGRAM.batch(table, on={}, few_shot=("shots", 3), output=out)]
    assert again == [other + 1]
    table[common[0]] = {"q": f"q{common[0]}", "a": 7_000_000}
    assert len(list(PROGRAM.batch(table, on={}, few_shot=("shots", 3), output=out))) >= 11

"""`sglspec batch`: what goes in, what comes out, and what a batch that was stopped leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.soak.batch import soak

from .conftest import command, environment

PROGRAM = """\
sglspec: v1
inputs: {q: string, n: {type: integer, default: 1}}
steps:
  - "Q: {{ q }} {{ n }} A:"
  - gen: a
  - check: n < 3
"""


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def batch(cli, write):
    write("program.yaml", PROGRAM)
    write("replies.yaml", "a: fine\n")

    def run(*arguments: str, stdin: str = ""):
        return cli("batch", "program.yaml", *arguments, "--backend", "scripted:replies.yaml", stdin=stdin)

    return run


def test_every_row_has_a_result(batch, write):
    rows = (
        lines({"q": "x", "other": 1}, {"q": 3}) + "nonsense\n[1]\n" + lines({"q": "y", "n": 5}, {"q": "x"}, {"p": ""})
    )
    write("rows.jsonl", rows)
    done = batch("rows.jsonl")
    found = records(done.out)
    assert [(one["row"], one["status"]) for one in found] == [
        (1, "succeeded"), (2, "refused"), (3, "refused"), (4, "refused"), (5, "failed"), (6, "succeeded"), (7, "refused"),
    ]  # fmt: skip
    codes = [one["error"] and one["error"]["code"] for one in found]
    assert codes == [None, "S401", "S411", "S411", "S702", None, "S402"]
    assert found[0]["outputs"] == {"a": "fine"}
    assert len({one["key"] for one in found}) == len({one["seed"] for one in found}) == 7
    assert done.code == 1
    assert done.err.startswith("sglspec: row 2, the first that failed:\nerror S401")
    assert done.err.endswith("sglspec: 7 rows, 5 failed\n")


def test_csv(batch, write):
    write("rows.csv", '\ufeffquestion,n,gold\nx,2,a\n"y, ""z""",,b\nw,k,c\n1,2,3,4\n')
    found = records(batch("rows.csv", "--map", "q=question", "--keep", "gold").out)
    assert [one["status"] for one in found] == ["succeeded", "succeeded", "refused", "refused"]
    assert [one["columns"] for one in found] == [{"gold": "a"}, {"gold": "b"}, {"gold": "c"}, {"gold": None}]


def test_parquet(batch, tmp_path):
    day, raw = date(2026, 1, 2), b"\xff"
    table = pyarrow.table({"q": ["x", "y"], "n": [2, 3], "day": [day, None], "raw": [raw, raw]})
    parquet.write_table(table, tmp_path / "rows.parquet")
    found = records(batch("rows.parquet", "--keep", "day", "--keep", "raw").out)
    assert [one["status"] for one in found] == ["succeeded", "failed"]
    assert [one["columns"] for one in found] == [{"day": "2026-01-02", "raw": "_w=="}, {"day": None, "raw": "_w=="}]


@pytest.mark.parametrize("head", ["sglspec: v1", "# a remark\nsglspec:   v1\ndescription: new"])
def test_a_second_start_runs_nothing_again(batch, write, tmp_path, head: str):
    write("rows.jsonl", lines({"q": "x"}, {"q": "x"}, {"q": "y", "n": 3}))
    out = tmp_path / "out.jsonl"
    batch("rows.jsonl", "-o", "out.jsonl")
    before = out.read_text()
    write("program.yaml", PROGRAM.replace("sglspec: v1", head))
    write("replies.yaml", "a: other\n")
    done = batch("rows.jsonl", "-o", "out.jsonl")
    assert (done.code, done.err) == (1, "sglspec: 3 rows, 3 of them from before, 1 failed\n")
    assert out.read_text() == before


@pytest.mark.parametrize("order", ["input", "completed"])
def test_only_what_changed_is_run(batch, write, tmp_path, order: str):
    """One row edited, one removed, one added in front, one of two equal ones gone."""
    write("rows.jsonl", lines(*({"q": q} for q in ("a", "b", "c", "d", "d"))))
    batch("rows.jsonl", "-o", "out.jsonl")
    write("replies.yaml", "a: new\n")
    write("rows.jsonl", lines(*({"q": q} for q in ("z", "a", "B", "d"))))
    done = batch("rows.jsonl", "-o", "out.jsonl", "--order", order)
    assert done.err == "sglspec: 4 rows, 2 of them from before\n"
    found = [(one["row"], one["outputs"]["a"]) for one in records((tmp_path / "out.jsonl").read_text())]
    assert sorted(found) == [(1, "new"), (2, "fine"), (3, "new"), (4, "fine")]
    assert (found == sorted(found)) == (order == "input")


def test_rows_that_failed_can_be_run_again(batch, write, tmp_path):
    write("rows.jsonl", lines({"q": "x", "n": 5}, {"q": "y"}))
    batch("rows.jsonl", "-o", "out.jsonl")
    write("replies.yaml", "a: new\n")
    done = batch("rows.jsonl", "-o", "out.jsonl", "--retry-failed")
    assert done.err.endswith("sglspec: 2 rows, 1 of them from before, 1 failed\n")
    assert [one["outputs"]["a"] for one in records((tmp_path / "out.jsonl").read_text())] == ["new", "fine"]


def test_fail_fast(batch, write, tmp_path):
    write("rows.jsonl", lines(*({"q": str(i), "n": 1 + 4 * (i == 2)} for i in range(9))))
    done = batch("rows.jsonl", "-o", "out.jsonl", "--on-error", "fail_fast", "--concurrency", "1")
    assert done.code == 1
    assert done.err.endswith("sglspec: 3 rows, 1 failed, stopped by a row that failed\n")
    assert [one["status"] for one in records((tmp_path / "out.jsonl").read_text())] == [
        "succeeded",
        "succeeded",
        "failed",
    ]
    again = batch("rows.jsonl", "-o", "out.jsonl", "--on-error", "fail_fast", "--concurrency", "1")
    assert again.err.endswith("sglspec: 3 rows, 2 of them from before, 1 failed, stopped by a row that failed\n")


def written(tmp_path: Path) -> list[tuple[int, str]]:
    """Row and reply of each record, in order."""
    return [(one["row"], one["outputs"]["a"]) for one in records((tmp_path / "out.jsonl").read_text())]


def test_more_errors_than_are_allowed(batch, write, tmp_path):
    write("rows.jsonl", lines(*({"q": str(i), "n": 1 + 4 * (i % 2)} for i in range(9))))
    arguments = ("rows.jsonl", "-o", "out.jsonl", "--concurrency", "1", "--max-errors")
    done = batch(*arguments, "1")
    assert done.code == 1
    assert done.err.endswith("sglspec: 4 rows, 2 failed, stopped: more than 1 failed\n")
    # those that failed before count, and stay
    assert (
        batch(*arguments, "1").err == "sglspec: 4 rows, 4 of them from before, 2 failed, stopped: more than 1 failed\n"
    )
    assert batch(*arguments, "4").err.endswith("sglspec: 9 rows, 4 of them from before, 4 failed\n")


def test_starting_anew(batch, write, tmp_path):
    write("rows.jsonl", lines({"q": "x"}, {"q": "y"}))
    batch("rows.jsonl", "-o", "out.jsonl")
    write("replies.yaml", "a: new\n")
    assert batch("rows.jsonl", "-o", "out.jsonl", "--fresh").err == "sglspec: 2 rows\n"
    assert written(tmp_path) == [(1, "new"), (2, "new")]
    precious = write("precious.txt", "precious\n")
    assert batch("rows.jsonl", "-o", "precious.txt", "--fresh").code == 2
    assert precious.read_text() == "precious\n"


def test_the_first_rows_only(batch, write, tmp_path):
    """What is in the file already stays, but for a row that was changed."""
    write("rows.jsonl", lines(*({"q": q} for q in "abcd")))
    batch("rows.jsonl", "-o", "out.jsonl")
    write("replies.yaml", "a: new\n")
    assert batch("rows.jsonl", "-o", "out.jsonl", "--limit", "2").err == "sglspec: 2 rows, 2 of them from before\n"
    assert written(tmp_path) == [(1, "fine"), (2, "fine"), (3, "fine"), (4, "fine")]
    write("rows.jsonl", lines(*({"q": q} for q in "aBcd")))
    assert batch("rows.jsonl", "-o", "out.jsonl", "--limit", "3").err == "sglspec: 3 rows, 2 of them from before\n"
    assert written(tmp_path) == [(1, "fine"), (2, "new"), (3, "fine"), (4, "fine")]
    assert batch("rows.jsonl", "-o", "out.jsonl", "--limit", "0").err == "sglspec: 0 rows\n"


def test_parts_are_all_rows_and_none_twice(batch, write, tmp_path):
    rows = [{"q": str(i // 2)} for i in range(40)]
    write("rows.jsonl", lines(*rows))
    parts = [{one["row"] for one in records(batch("rows.jsonl", "--shard", f"{i}/3").out)} for i in (1, 2, 3)]
    assert all(parts) and sum(len(part) for part in parts) == 40 and set.union(*parts) == set(range(1, 41))
    write("rows.jsonl", lines({"q": "new"}, *rows))
    moved = {one["row"] for one in records(batch("rows.jsonl", "--shard", "1/3").out)}
    assert {row + 1 for row in parts[0]} <= moved, "a row stays in its part when others come"
    for i in (3, 1, 2):  # one file for all of them
        batch("rows.jsonl", "--shard", f"{i}/3", "-o", "out.jsonl")
    assert [row for row, _ in written(tmp_path)] == list(range(1, 42))
    assert batch("rows.jsonl", "-o", "out.jsonl").err == "sglspec: 41 rows, 41 of them from before\n"


@pytest.mark.parametrize("cut", [1, 5, 40, 200])
def test_a_torn_line_is_cut_off(batch, write, tmp_path, cut: int):
    write("rows.jsonl", lines(*({"q": str(i)} for i in range(3))))
    batch("rows.jsonl", "-o", "out.jsonl")
    out = tmp_path / "out.jsonl"
    whole = out.read_bytes()
    out.write_bytes(whole[:-cut])
    assert batch("rows.jsonl", "-o", "out.jsonl").err == "sglspec: 3 rows, 2 of them from before\n"
    assert out.read_bytes() == whole


@pytest.mark.parametrize("content", ["q,n\n1,2\n", "precious", '{"a": 1}\n', '{"row": 1, "key": "x", "status": "y"}\n'])
def test_another_file_is_left_alone(batch, write, content: str):
    write("rows.jsonl", lines({"q": "x"}))
    file = write("out.jsonl", content)
    done = batch("rows.jsonl", "-o", "out.jsonl")
    assert done.code == 2
    assert "it holds something else" in done.err
    assert file.read_text() == content


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing.jsonl",), "S100"),
        (("rows.jsonl", "--map", "q"), "INPUT=COLUMN"),
        (("rows.jsonl", "--map", "z=q"), "no input `z`"),
        (("rows.jsonl", "--map", "q=p", "--set", "q=1"), "a value for all rows already"),
        (("rows.jsonl", "--set", "z=1"), "S403"),
        (("rows.jsonl", "--set", "n=x"), "S401"),
        (("rows.jsonl", "--concurrency", "0"), "1 to 10000"),
        (("rows.jsonl", "--retry-failed"), "-o"),
        (("rows.jsonl", "--fresh"), "-o"),
        (("rows.jsonl", "--max-errors", "-1"), "0 to 2^53"),
        (("rows.jsonl", "--shard", "2"), "I/N"),
        (("rows.jsonl", "--shard", "3/2"), "1 to 2"),
        (("rows.jsonl", "--order", "random"), "input or completed"),
    ],
)
def test_wrong_usage(batch, write, arguments, says: str):
    write("rows.jsonl", lines({"q": "x"}))
    done = batch(*arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_tools_of_the_host(cli, write):
    write("tools.py", "from sglspec.tools import tool\n@tool\ndef double(text: str) -> str: return text * 2\n")
    step = "{tool: double, with: {text: '{{ q }}'}, into: a}"
    write(
        "spec.yaml",
        f"sglspec: v1\ninputs: {{q: string}}\nsteps:\n  - {step}\ntests:\n  - inputs: {{q: x}}\n    replies: {{a: y}}\n",
    )
    write("rows.jsonl", lines({"q": "x"}))
    arguments = ("batch", "spec.yaml", "rows.jsonl")
    # a script answers for tools, so only without one they have to be there
    assert records(cli(*arguments, "--backend", "scripted").out)[0]["error"]["code"] == "S710"
    done = cli(*arguments)
    assert (done.code, done.out) == (1, "") and "S320" in done.err
    assert cli("test", "spec.yaml", "--tools", "tools.py").code == 0
    assert cli("test", "spec.yaml", "--tools", "none.py").code == 2


def test_an_input_for_all_rows(batch):
    done = batch("-", "--set", "n=2", stdin=lines({"q": "x"}, {"q": "y", "n": 2}))
    assert [one["error"] and one["error"]["code"] for one in records(done.out)] == [None, "S410"]


def test_killed_again_and_again(tmp_path: Path):
    """In the end every row is there once, and an edited row alone is run again. `make killed` does it with more rows."""
    soak(tmp_path, rows=1500, kills=3)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path, write):
    write("program.yaml", PROGRAM)
    write("replies.yaml", f"a: {'slowly ' * 4}\n")
    write("rows.jsonl", lines(*({"q": str(i)} for i in range(50))))
    arguments = ("batch", "program.yaml", "rows.jsonl", "-o", "out.jsonl", "--backend", "scripted:replies.yaml")
    process = subprocess.Popen(
        command(*arguments, "--concurrency", "2", runner="slow"), cwd=tmp_path, env=environment(), stderr=subprocess.PIPE
    )  # fmt: skip
    out = tmp_path / "out.jsonl"
    limit = time.monotonic() + 60
    while not out.exists() or b"\n" not in out.read_bytes():
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.decode().endswith("stopped; the same command goes on\n")
    assert 1 <= len(records(out.read_text())) < 50


def test_examples_from_other_rows(cli, write):
    write(
        "shots.yaml",
        "sglspec: v1\ninputs: {q: string, shots: array}\noutputs: {n: '{{ shots | map(attribute=\"q\") }}'}\n"
        "steps: ['{{ shots }} {{ q }}']\n",
    )
    write("rows.jsonl", lines({"q": "x"}))
    write("train.jsonl", lines({"q": "a"}, {"q": "x"}, {"q": "b"}))
    arguments = ("batch", "shots.yaml", "rows.jsonl", "--backend", "scripted", "--few-shot")
    done = cli(*arguments, "shots=2", "--few-shot-from", "train.jsonl")
    assert [one["outputs"] for one in records(done.out)] == [{"n": ["a", "b"]}]
    for given, says in (
        (("shots=2",), "S412"),
        (("shots",), "INPUT=NUMBER"),
        (("shots=0",), "1 to 1000"),
        (("z=2",), "S403"),
        (("shots=2", "--few-shot-from", "nothing.jsonl"), "S100"),
    ):
        done = cli(*arguments, *given)
        assert (done.code, done.out) == (2, "")
        assert says in done.err
    done = cli("batch", "shots.yaml", "-", "--few-shot", "shots=1", "--backend", "scripted")
    assert done.code == 2 and "--few-shot-from" in done.err


def test_metrics(batch, write):
    write("replies.yaml", "a: yes\n")
    rows = [
        {"q": str(i), "n": 1 + 4 * (i == 3), "gold": "yes" if i % 3 else "no", "lang": "en" if i < 6 else "fr"}
        for i in range(10)
    ]
    write("rows.jsonl", lines(*rows))
    arguments = ("rows.jsonl", "-o", "out.jsonl", "--metric", "accuracy:a=gold", "--metric", "vote:a", "--by", "lang")
    done = batch(*arguments, "--json")
    # a row that failed is wrong, and has no vote
    expected = {
        "rows": 10, "from_before": 0, "failed": 1,
        "metrics": [
            {"metric": "accuracy:a=gold", "by": {}, "value": 0.6, "rows": 10, "left_out": 0},
            {"metric": "accuracy:a=gold", "by": {"lang": "en"}, "value": 4 / 6, "rows": 6, "left_out": 0},
            {"metric": "accuracy:a=gold", "by": {"lang": "fr"}, "value": 0.5, "rows": 4, "left_out": 0},
            {"metric": "vote:a", "by": {}, "value": 1.0, "rows": 9, "left_out": 1},
            {"metric": "vote:a", "by": {"lang": "en"}, "value": 1.0, "rows": 5, "left_out": 1, "choice": "yes"},
            {"metric": "vote:a", "by": {"lang": "fr"}, "value": 1.0, "rows": 4, "left_out": 0, "choice": "yes"},
        ],
    }  # fmt: skip
    assert json.loads(done.out) == expected
    assert done.err.endswith(
        "accuracy:a=gold 0.6 (10 rows)\n  lang=en 0.6667 (6 rows)\n  lang=fr 0.5 (4 rows)\n"
        'vote:a 1 (9 rows, 1 left out)\n  lang=en 1 "yes" (5 rows, 1 left out)\n  lang=fr 1 "yes" (4 rows)\n'
    )
    # rows from before count, also by other columns than then
    again = json.loads(batch("rows.jsonl", "-o", "out.jsonl", "--metric", "accuracy:a=gold", "--json").out)
    assert again == {"rows": 10, "from_before": 10, "failed": 1, "metrics": expected["metrics"][:1]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--metric", "accuracy:b=gold"), "no output `b`; it has a"),
        (("--metric", "accuracy:a"), "accuracy:OUTPUT=COLUMN"),
        (("--metric", "mean:a=b"), "mean:OUTPUT"),
        (("--metric", "median:a"), "is not of the form"),
        (("--by", "lang"), "--metric"),
        (("--json",), "-o"),
    ],
)
def test_metrics_that_are_none(batch, write, arguments, says: str):
    write("rows.jsonl", lines({"q": "x"}))
    done = batch("rows.jsonl", *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


@pytest.mark.parametrize(
    ("option", "column"), [("--metric", "accuracy:a=godl"), ("--by", "godl"), ("--keep", "godl"), ("--keep", "other")]
)
def test_columns_that_no_row_has(batch, write, tmp_path, option: str, column: str):
    arguments = (option, column, *(("--metric", "vote:a") if option == "--by" else ()))
    says = "no row has a column `other`. there is: q, gold." if column == "other" else "did you mean `gold`?"
    write("rows.csv", "q,gold\nx,a\n")
    parquet.write_table(pyarrow.table({"q": ["x"], "gold": ["a"]}), tmp_path / "rows.parquet")
    for file in ("rows.csv", "rows.parquet"):
        done = batch(file, *arguments)
        assert (done.code, done.out) == (2, "")
        assert says in " ".join(done.err.lower().replace("│", "").split()) and option in done.err
    write("rows.jsonl", lines({"q": "x", "gold": "a"}, {"q": "y"}))
    done = batch("rows.jsonl", *arguments)
    assert done.code == 0 and len(records(done.out)) == 2
    assert f"sglspec: warning: {option}: no row" in done.err.replace("No", "no") and says in done.err.lower()
    write("rows.jsonl", lines({"q": "x"}, {"q": "y", "godl": "a", "other": 1}))
    assert "warning" not in batch("rows.jsonl", *arguments).err


def test_a_mean_of_what_is_never_a_number(batch, write):
    write("rows.jsonl", lines({"q": "x"}))
    done = batch("rows.jsonl", "--metric", "mean:a")
    assert done.code == 0 and done.err.endswith("sglspec: warning: --metric mean:a: It is a number in no row.\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "There are no rows at all."),
        ('q,a\n"x,1\n', "1 of 1 rows were passed over, first train.csv:2: The row is not CSV: unexpected end of data."),
        ("q;a\nx;1\n", "(its columns: `q;a`)"),
        ("q,a\nx,1,2\ny,2\n", "1 of 2 rows were passed over, first train.csv:2: The row has 3 cells"),
        ("q,a\nx,1\ny,k\n", "1 of 2 rows were passed over, first row 2: Input `a`"),
    ],
)
def test_why_rows_are_no_examples(cli, write, text: str, says: str):
    items = "{type: array, items: {properties: {q: string, a: integer}}}"
    write("shots.yaml", f"sglspec: v1\ninputs: {{q: string, s: {items}}}\nsteps: ['{{{{ s }}}} {{{{ q }}}}']\n")
    write("rows.jsonl", lines({"q": "x"}))
    write("train.csv", text)
    few = ("--few-shot", "s=2", "--few-shot-from", "train.csv", "--backend", "scripted")
    done = cli("batch", "shots.yaml", "rows.jsonl", *few)
    assert done.code == 2 and "rows of `train.csv` can be one" in done.err
    assert says in done.err

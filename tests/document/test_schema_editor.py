"""The editor schema in the language service that editors use for YAML: messages, completions, hover.

`npm --prefix tests/editor ci` installs the service; without it these tests are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglspec.document.model import VERBS
from sglspec.document.schema import editor_schema

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "tests" / "editor"
NODE = shutil.which("node")
EXAMPLES = sorted((ROOT / "examples").glob("*.sglspec.*"))

if NODE is None:
    pytest.skip("node is not installed", allow_module_level=True)
if not (TABLES / "node_modules" / "yaml-language-server").is_dir():
    pytest.skip("run `npm --prefix tests/editor ci` first", allow_module_level=True)

Row = dict[str, Any]


def table(name: str) -> list[Row]:
    return yaml.safe_load((TABLES / name).read_text(encoding="utf-8"))


FAULTS, ACCEPTED, COMPLETIONS = table("faults.yaml"), table("accepted.yaml"), table("completions.yaml")


def row_name(row: Any) -> str:
    return row["name"] if isinstance(row, dict) else row.name


def drive(jobs: list[Row]) -> list[Any]:
    """One run of the service over all jobs; see tests/editor/driver.cjs."""
    request = json.dumps({"schema": editor_schema(), "jobs": jobs})
    command = [str(NODE), str(TABLES / "driver.cjs")]
    done = subprocess.run(command, input=request, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def at_mark(action: str, text: str) -> Row:
    """A job at the place of `|`."""
    before, _, after = text.partition("|")
    return {
        "do": action,
        "text": before + after,
        "line": before.count("\n"),
        "character": len(before.rpartition("\n")[2]),
    }


@pytest.fixture(scope="module")
def problems() -> dict[str, list[Row]]:
    """Document text → what the service says about it, for all documents of this file in one process."""
    texts = [row["text"] for row in FAULTS + ACCEPTED] + [path.read_text(encoding="utf-8") for path in EXAMPLES]
    results = drive([{"do": "validate", "text": text} for text in texts])
    return {text: result["problems"] for text, result in zip(texts, results, strict=True)}


@pytest.fixture(scope="module")
def completions() -> dict[str, list[Row]]:
    results = drive([at_mark("complete", row["text"]) for row in COMPLETIONS])
    return {row["name"]: result for row, result in zip(COMPLETIONS, results, strict=True)}


@pytest.mark.parametrize("path", EXAMPLES, ids=row_name)
def test_examples_show_nothing(path: Path, problems: dict[str, list[Row]]) -> None:
    assert problems[path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("row", ACCEPTED, ids=row_name)
def test_odd_but_right_documents_show_nothing(row: Row, problems: dict[str, list[Row]]) -> None:
    # an anchor that nothing uses, or the like, is not the schema's business: 4 is a hint, 3 an information
    assert [problem for problem in problems[row["text"]] if problem["severity"] < 3] == []


@pytest.mark.parametrize("row", FAULTS, ids=row_name)
def test_a_fault_shows_one_message_at_its_line(row: Row, problems: dict[str, list[Row]]) -> None:
    shown = problems[row["text"]]
    assert [problem["line"] + 1 for problem in shown] == [row["line"]]
    assert shown[0]["message"].startswith(row["message"])


@pytest.mark.parametrize("row", COMPLETIONS, ids=row_name)
def test_completions(row: Row, completions: dict[str, list[Row]]) -> None:
    labels = [item["label"] for item in completions[row["name"]] if not item["label"].endswith("…")]
    if "only" in row:
        assert sorted(labels) == sorted(expand(row["only"]))
    assert set(row.get("among", [])) <= set(labels)
    assert not set(row.get("never", [])) & set(labels)


def expand(words: list[Any]) -> list[str]:
    flat = [inner for word in words for inner in (word if isinstance(word, list) else [word])]
    return [name for name, verb in VERBS.items() if verb.ready] if flat == ["VERBS"] else flat


def test_a_snippet_is_a_whole_step(completions: dict[str, list[Row]]) -> None:
    items = {item["label"]: item["insert"] for item in completions["verbs at a new step"]}
    assert items["select …"] == VERBS["select"].snippet
    assert items["gen"] == "gen: "


def test_hover_explains_verbs_and_keys() -> None:
    verb = at_mark("hover", "sglspec: v1\nsteps:\n  - ge|n: answer\n")
    key = at_mark("hover", "sglspec: v1\nsteps:\n  - gen: answer\n    top|_p: 0.5\n")
    shown = drive([verb, key])
    assert VERBS["gen"].summary in shown[0]
    assert "```yaml\n- gen: answer\n```" in shown[0]
    assert "Sample only from the likeliest tokens that make up this share." in shown[1]

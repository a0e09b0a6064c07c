"""`upgrade`: what is certain is changed, everything else stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglspec.diagnostics import Report
from sglspec.document.load import load_document
from sglspec.document.read import source_from_text
from sglspec.document.upgrade import upgrade_source

WRONG = Path(__file__).parent.parent / "wrong"

OLD = """\
# an old program
sglspec: 1
inputs:
  a: str   # text
  b: {type: int, min: 3, required: false}
  c: list[string]
  d: string?
  e: {type: string, nullable: true}
output: [x]
Steps:
  - role: user
    content: "{{ a }} {{ b }} {{ c }} {{ d }} {{ e }}"
  - generate: x
    max_new_tokens: 4     # few
    "Temp": 0.5
  - human: hi
  - choose: y
    options: ["a", "b"]
"""
NEW = """\
# an old program
sglspec: v1
inputs:
  a: string   # text
  b: {type: integer, minimum: 3, optional: true}
  c: {type: array, items: string}
  d: {type: string, optional: true}
  e: {type: string, optional: true}
outputs: [x]
steps:
  - user: "{{ a }} {{ b }} {{ c }} {{ d }} {{ e }}"
  - gen: x
    max_tokens: 4     # few
    "temperature": 0.5
  - user: hi
  - select: y
    from: ["a", "b"]
"""


def upgrade(text: str, name: str = "t.yaml") -> str:
    report = Report()
    found = upgrade_source(source_from_text(text, name), report)
    assert found is not None, report.sorted()
    return found


def test_old_words():
    assert upgrade(OLD) == NEW
    assert upgrade(NEW) == NEW
    report = Report()
    assert load_document(source_from_text(NEW, "t.yaml"), report) is not None, report.sorted()


def test_json():
    old = '{"version_": 1, "inputs": {"a": "str", "b": "int[]"}, "steps": [{"generate": "x", "maxTokens": 3}]}'
    new = '{"sglspec": "v1", "inputs": {"a": "string", "b": {"type": "array", "items": "integer"}}, '
    new += '"steps": [{"gen": "x", "max_tokens": 3}]}'
    assert upgrade(old.replace('"version_": 1, ', ""), "t.json") == new
    assert upgrade(old.replace("version_", "sglspec"), "t.json") == new


@pytest.mark.parametrize(
    "step",
    [
        "repeat: 3",
        "text: hi",
        "error: no",
        "gen: x\n    stopp: x",
        "gen: x\n    stop: x\n    stop_sequences: y",
        "7: x",
    ],
)
def test_what_is_not_certain_stays(step: str):
    text = f"sglspec: v1\nsteps:\n  - {step}\n"
    assert upgrade(text) == text


def test_another_version_stays():
    text = "sglspec: v7\nsteps:\n  - gen: x\n"
    assert upgrade(text) == text


@pytest.mark.parametrize(
    "path", sorted(WRONG.glob("*.yaml")) + sorted(WRONG.glob("*.json")), ids=lambda path: path.name
)
def test_never_worse(path: Path):
    """No upgrade adds a mistake, and a second one changes nothing."""

    def errors(text: str) -> int:
        report = Report()
        load_document(source_from_text(text, path.name), report)
        return len(report.sorted())

    text = path.read_text("utf-8")
    found = upgrade_source(source_from_text(text, path.name), Report())
    if found is None or found == text:
        return
    assert errors(found) < errors(text)
    assert upgrade(found, path.name) == found

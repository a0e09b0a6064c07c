"""The editor schema under a plain JSON Schema validator, and its agreement with the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sglspec.diagnostics import Report
from sglspec.document.load import keys_of, load_document
from sglspec.document.model import VERBS, Spec
from sglspec.document.nodes import to_python
from sglspec.document.read import parse, read_source, source_from_text
from sglspec.document.schema import editor_schema, schema_text

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "tests" / "editor"
EXAMPLES = sorted((ROOT / "examples").glob("*.sglspec.*"))
FAULTS: list[dict[str, Any]] = yaml.safe_load((TABLES / "faults.yaml").read_text(encoding="utf-8"))
ACCEPTED: list[dict[str, Any]] = yaml.safe_load((TABLES / "accepted.yaml").read_text(encoding="utf-8"))

VALIDATOR = jsonschema.Draft7Validator(editor_schema())


def names(table: list[dict[str, Any]]) -> list[str]:
    return [str(row["name"]) for row in table]


def complaints(text: str) -> list[str]:
    """What the schema says about a document; the text itself must be sound YAML."""
    report = Report()
    root = parse(source_from_text(text, "document.yaml"), report)
    assert root is not None, report.sorted()
    return [error.message for error in VALIDATOR.iter_errors(to_python(root))]


def test_the_committed_schema_is_the_generated_one() -> None:
    committed = (ROOT / "schemas" / "sglspec-v1.schema.json").read_text(encoding="utf-8")
    assert committed == schema_text(), "run `make schema`"


def test_the_text_is_the_schema() -> None:
    assert json.loads(schema_text()) == editor_schema()


def test_the_schema_is_valid_draft_07() -> None:
    jsonschema.Draft7Validator.check_schema(editor_schema())


def test_the_schema_names_no_host_but_its_dialect() -> None:
    assert schema_text().count("://") == 1


def test_calls_share_nothing() -> None:
    first = editor_schema()
    first["definitions"]["gen-step"]["properties"].clear()
    assert "gen" in editor_schema()["definitions"]["gen-step"]["properties"]


@pytest.mark.parametrize("name", VERBS)
def test_a_step_has_the_keys_of_its_model(name: str) -> None:
    step = editor_schema()["definitions"][f"{name}-step"]
    assert sorted(step["properties"]) == sorted(keys_of(VERBS[name].model))
    assert step["additionalProperties"] is False


def test_the_top_level_has_the_keys_of_the_model() -> None:
    schema = editor_schema()
    assert sorted(schema["properties"]) == sorted(keys_of(Spec))
    assert all(value["markdownDescription"] for value in schema["properties"].values())


def test_no_field_is_called_like_a_verb() -> None:
    """Otherwise the chain of the schema could take a step for one of another verb."""
    for name, verb in VERBS.items():
        assert set(keys_of(verb.model)) & set(VERBS) == {name}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    report = Report()
    document = load_document(read_source(path), report)
    assert document is not None, report.sorted()
    assert [error.message for error in VALIDATOR.iter_errors(to_python(document.root))] == []


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.suffix == ".yaml"], ids=lambda path: path.name)
def test_examples_name_the_schema_first(path: Path) -> None:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    assert first == "# yaml-language-server: $schema=../schemas/sglspec-v1.schema.json"


@pytest.mark.parametrize("row", ACCEPTED, ids=names(ACCEPTED))
def test_odd_but_right_documents_pass(row: dict[str, Any]) -> None:
    report = Report()
    assert load_document(source_from_text(row["text"], "document.yaml"), report) is not None, report.sorted()
    assert complaints(row["text"]) == []


@pytest.mark.parametrize("row", FAULTS, ids=names(FAULTS))
def test_the_schema_finds_the_fault(row: dict[str, Any]) -> None:
    assert complaints(row["text"])


@pytest.mark.parametrize("row", FAULTS, ids=names(FAULTS))
def test_the_reader_finds_it_at_the_same_line(row: dict[str, Any]) -> None:
    report = Report()
    assert load_document(source_from_text(row["text"], "document.yaml"), report) is None
    lines = [item.range.start.line for item in report.sorted() if item.range]
    assert row.get("reader", row["line"]) in lines, report.sorted()

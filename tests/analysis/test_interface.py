"""The JSON Schemas of what programs take and give: what a run gives fits, whichever way it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sglspec.analysis import load_program
from sglspec.analysis.inputs import bind_inputs
from sglspec.analysis.interface import input_schema, output_schema
from sglspec.analysis.program import Program
from sglspec.backends.scripted import ScriptedBackend
from sglspec.diagnostics import Report
from sglspec.document.nodes import to_python
from sglspec.document.read import read_source, source_from_text
from sglspec.runtime.run import execute

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "examples").glob("*.sglspec.*"), *(ROOT / "specs").iterdir()])


def program(text: str) -> Program:
    report = Report("p")
    found = load_program(source_from_text(f"sglspec: v1\n{text}", "p", "yaml"), report)
    assert found is not None, report.sorted()
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
async def test_what_examples_take_and_give(file: Path) -> None:
    checked = load_program(read_source(file), Report(str(file)))
    assert checked is not None
    for schema in (input_schema(checked.inputs), output_schema(checked.outputs)):
        jsonschema.Draft202012Validator.check_schema(schema)
    for case in checked.spec.tests or ():
        inputs = {name: to_python(value.node) for name, value in (case.inputs or {}).items()}
        replies = {name: to_python(value.node) for name, value in (case.replies or {}).items()}
        jsonschema.validate(inputs, input_schema(checked.inputs))
        if replies and case.error is None:
            result = await execute(checked, inputs, ScriptedBackend(replies))
            assert result.status == "succeeded"
            jsonschema.validate(result.outputs, output_schema(checked.outputs))


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("steps: [{select: x, from: [a, b]}]", {"x": {"enum": ["a", "b"]}}),
        ("steps: [{select: x, from: [1, 2]}]", {"x": {"enum": [1, 2]}}),
        ("steps: [{gen: x}]", {"x": {"type": "string"}}),
        ("steps: [{gen: x, type: integer}]", {"x": {"type": "integer"}}),
        ("steps: [{set: {'x[]': 1}}]", {"x": {"type": "array", "items": {}}}),
        ("inputs: {a: integer}\noutputs: [a]\nsteps: [hi]", {"a": {"type": "integer"}}),
        ("outputs: {y: '{{ x | upper }}', n: '{{ len(x) }}', z: 'a {{ x }}'}\nsteps: [{gen: x}]",
         {"y": {"type": "string"}, "n": {"type": "integer"}, "z": {"type": "string"}}),
        # bound on some paths only: null on the others
        ("inputs: {a: boolean}\nsteps: [{if: a, then: [{set: {x: 1}}]}]", {"x": {}}),
        ("inputs: {a: boolean}\nsteps: [{gen: x}, {if: a, then: [{return: {}}]}]", {"x": {"type": ["string", "null"]}}),
        ("inputs: {a: boolean}\nsteps: [{if: a, then: [return]}, {gen: x}]", None),
        ("inputs: {a: boolean}\nsteps: [{gen: x}, {if: a, then: [{return: {x: 1}}]}]", {"x": {}}),
        ("steps: [{fork: 2, do: [{gen: x, type: number}]}]", {"x": {"type": "array", "items": {"type": "number"}}}),
    ],
)  # fmt: skip
def test_types_of_outputs(text: str, schema: dict[str, Any] | None) -> None:
    if schema is not None:
        assert output_schema(program(text).outputs)["properties"] == schema


@pytest.mark.parametrize(
    ("decl", "good", "bad"),
    [
        ("string", ["", "x"], [1, None, []]),
        ("{type: string, default: x}", ["y", None], [1]),
        ("{type: integer, optional: true, minimum: 2}", [2, None], [1, "2", 2.5]),
        ("{enum: [a, b], default: a}", ["b", None], ["c"]),
        ("{type: array, items: {type: string, minLength: 1}, maxItems: 1}", [[], ["x"]], [[""], ["x", "y"], "x"]),
        ("{properties: {k: {type: integer, default: 1}, m: integer}}", [{"m": 1}, {"k": 2, "m": 3}], [{"k": 1}, {"m": 1, "n": 1}]),
        ("messages", [[{"role": "user", "content": "x"}]], [[{"role": "tool", "content": "x"}], "x"]),
    ],
)  # fmt: skip
def test_what_fits_an_input_fits_its_schema(decl: str, good: list[Any], bad: list[Any]) -> None:
    checked = program(f"inputs: {{a: {decl}}}\nsteps: [hi]")
    validator = jsonschema.Draft202012Validator(input_schema(checked.inputs))
    for value, fits in [*((v, True) for v in good), *((v, False) for v in bad)]:
        assert validator.is_valid({"a": value}) == fits, value
        assert (not bind_inputs(checked.spec, {"a": value})[1]) == fits, value

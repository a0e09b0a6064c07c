"""Binding inputs: defaults, optional ones, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from sglspec.analysis.declarations import decl_schema
from sglspec.analysis.inputs import bind_inputs, check_input, coerce_text
from sglspec.diagnostics import Report
from sglspec.document.load import load_document
from sglspec.document.model import Decl, Spec
from sglspec.document.read import source_from_text


def spec_of(inputs: str) -> Spec:
    report = Report()
    document = load_document(source_from_text(f"sglspec: v1\ninputs:\n{inputs}\nsteps: [x]\n", "t.yaml"), report)
    assert document is not None, report.sorted()
    return document.spec


def decl_of(text: str) -> Decl:
    return spec_of(f"  a: {text}").inputs["a"]


def test_defaults_and_optional_inputs() -> None:
    spec = spec_of("  a: string\n  b: {type: integer, default: 3}\n  c: {type: array, optional: true}")
    assert bind_inputs(spec, {"a": "x"}) == ({"a": "x", "b": 3, "c": None}, [])
    assert bind_inputs(spec, {"a": "x", "b": None, "c": [1]})[0] == {"a": "x", "b": 3, "c": [1]}


def test_everything_wrong_is_said_at_once() -> None:
    spec = spec_of("  essay: string\n  count: integer\n  tags: {type: array, items: string}")
    _, problems = bind_inputs(spec, {"esay": "x", "count": "three", "tags": ["a", 1]})
    assert [(p.code, p.help) for p in problems] == [
        ("S403", "Did you mean `essay`?"),
        ("S402", "Give it with `--set essay=…`."),
        ("S401", None),
        ("S401", None),
    ]
    assert "expected a whole number" in problems[2].message
    assert "at [1]" in problems[3].message


def test_defaults_of_properties_are_filled_in() -> None:
    spec = spec_of("  a: {type: object, properties: {x: string, y: {type: integer, default: 2}, z: {optional: true}}}")
    assert bind_inputs(spec, {"a": {"x": "v"}}) == ({"a": {"x": "v", "y": 2}}, [])


@pytest.mark.parametrize(
    ("decl", "good", "bad"),
    [
        ("string", ["", "x"], [1, None, []]),
        ("integer", [1, -1], [1.5, True, "1"]),
        ("number", [1, 1.5], [True, "1"]),
        ("boolean", [True], [1, "true"]),
        ("array", [[], [1]], ["x", {}]),
        ("object", [{}, {"a": 1}], [[], "x"]),
        ("any", [None, 1, "x", []], []),
        ("messages", [[], [{"role": "user", "content": "x"}]], [[{"role": "x", "content": "y"}], ["x"], "x"]),
        ("{enum: [a, 1, true]}", ["a", 1, True], ["b", "1", False]),
        ("{type: string, minLength: 2, maxLength: 3}", ["ab", "abc"], ["a", "abcd"]),
        ("{type: string, pattern: '^a+$'}", ["aa"], ["ab"]),
        ("{type: string, pattern: '^(a+)+$'}", ["a" * 40], ["a" * 40 + "!"]),
        ("{type: string, format: date}", ["2024-02-29"], ["yesterday"]),
        ("{type: integer, minimum: 1, maximum: 3}", [1, 3], [0, 4]),
        ("{type: number, exclusiveMinimum: 0, exclusiveMaximum: 1}", [0.5], [0, 1]),
        ("{type: number, multipleOf: 0.1}", [0.3, 1], [0.25]),
        ("{type: array, items: string, minItems: 1, maxItems: 2}", [["a"]], [[], ["a", "b", "c"], [1]]),
        ("{type: object, properties: {a: string, b: {type: integer, optional: true}}}", [{"a": "x"}, {"a": "x", "b": None}], [{}, {"a": 1}, {"a": "x", "c": 1}]),
    ],
)  # fmt: skip
def test_check_input(decl: str, good: list[Any], bad: list[Any]) -> None:
    declaration = decl_of(decl)
    for value in good:
        assert check_input(declaration, value) is None
    for value in bad:
        message = check_input(declaration, value)
        assert message is not None and message != ""


@pytest.mark.parametrize(
    ("decl", "text", "value"),
    [
        ("string", "7", "7"),
        ("any", "7", "7"),
        ("integer", "7", 7),
        ("number", "1.5", 1.5),
        ("boolean", "true", True),
        ("array", '["a"]', ["a"]),
        ("object", '{"a": 1}', {"a": 1}),
        ("{enum: [a, 1]}", "a", "a"),
        ("{enum: [a, 1]}", "1", 1),
        ("{enum: [a, b]}", "c", "c"),
    ],
)
def test_coerce_text(decl: str, text: str, value: Any) -> None:
    coerced = coerce_text(decl_of(decl), text)
    assert coerced == value and type(coerced) is type(value)


@pytest.mark.parametrize(("decl", "text"), [("integer", "x"), ("boolean", "yes"), ("array", "a,b"), ("number", "NaN")])
def test_coerce_text_refuses(decl: str, text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        coerce_text(decl_of(decl), text)


def test_decl_schema() -> None:
    decl = decl_of("{type: object, properties: {a: {type: string, maxLength: 3}, b: {enum: [x], optional: true}}}")
    assert decl_schema(decl) == {
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"enum": ["x"]}},
        "required": ["a"],
        "additionalProperties": False,
    }

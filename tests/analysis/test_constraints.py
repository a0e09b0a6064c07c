"""Schemas, fields and types as constraints: what the grammar generates, what a reply may be, what is refused."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec.analysis import grammar
from sglspec.analysis.constraints import Constraint, ConstraintError, schema_constraint, type_constraint
from sglspec.analysis.grammar import matches
from sglspec.analysis.validate import parse_json

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age", "tags", "ok"],
    "additionalProperties": False,
}


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ["", "é\n😀"], [1, None]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "äöü"], ["a", "abcd"]),
        ({"type": "string", "pattern": "^a+$"}, ["aa"], ["ab", ""]),
        ({"type": "string", "pattern": "b"}, ["abc", "b"], ["ac"]),
        ({"type": "string", "pattern": "^a", "maxLength": 2}, ["ab"], ["abc", "ba"]),
        ({"type": "string", "format": "date"}, ["2024-02-29"], ["2024-13-01", "x"]),
        ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123"]),
        ({"type": "integer"}, [0, -12], [1.5, "1", True]),
        ({"type": "integer", "minimum": 3, "exclusiveMaximum": 6}, [3, 5], [2, 6]),
        ({"type": "integer", "multipleOf": 3}, [0, 9], [4]),
        ({"type": "number"}, [1, -0.5], ["1"]),
        ({"type": "boolean"}, [True], [0, "true"]),
        ({"type": "null"}, [None], [0]),
        ({"type": ["string", "null"]}, ["a", None], [1]),
        ({"enum": ["a", 1, None]}, ["a", 1, None], ["b", 2]),
        ({"const": {"a": 1}}, [{"a": 1}], [{"a": 2}]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False, "minItems": 1}, [[1]], [[], ["a"], [1, 2]]),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, [1, True], ["a"]),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], [None]),
        ({"allOf": [{"type": "integer", "minimum": 1}, {"type": "integer", "maximum": 2}]}, [1, 2], [0, 3]),
        ({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1}, [{"x": 1}], [{}, {"x": "y"}]),
        ({"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}, [{"ab": 1}], [{"b": 1}, {"ab": "c"}]),
        ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "required": ["v"], "additionalProperties": False}}}, [{"v": 1, "c": [{"v": 2}]}], [{"c": []}, {"v": 1, "c": [{}]}]),
        (PERSON, [{"name": "Bo", "age": 3, "tags": ["a"], "ok": True}], [{"name": "Bo"}, {"name": "B" * 9, "age": 3, "tags": [], "ok": True}]),
        ({"type": "object", "properties": {}, "title": "t", "description": "d", "x-mine": 1}, [{}], [1]),
        ({"not": {"type": "string"}}, [1, None, [], {}], ["a"]),
        ({"type": ["string", "null"], "not": {"enum": ["ab", "a", None]}}, ["", "b", "abc", "\n"], ["a", "ab", None]),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "not": {"required": ["a", "b"]}}, [{}, {"a": 1}, {"b": 1}], [{"a": 1, "b": 2}]),
        ({"type": "object", "properties": {"k": {"enum": ["x", "y"]}, "n": {"type": "integer"}}, "required": ["k"], "additionalProperties": False, "if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["n"]}, "else": {"properties": {"n": False}}}, [{"k": "x", "n": 1}, {"k": "y"}], [{"k": "x"}, {"k": "y", "n": 1}]),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}}, [{}, {"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
        ({"type": "object", "propertyNames": {"pattern": "^[a-c]+$"}, "additionalProperties": {"type": "integer"}}, [{"ab": 1}, {}], [{"x": 1}, {"a": "b"}]),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1, "additionalProperties": False}, [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}], [{}, {"c": 1}]),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": 1}, {"b": 1}], [{}, {"a": 1, "b": 1}]),
        ({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}, ["abcd"], ["abc", 1]),
        ({"type": "integer", "format": "int32"}, [2**31 - 1], [2**31, "a"]),
        ({"type": "string", "format": "date"}, ["2000-02-29", "2024-02-29"], ["1900-02-29", "2023-02-29", "2024-04-31"]),
        ({"type": "string", "format": "time"}, ["23:59:60Z", "01:02:03.5+01:00"], ["22:59:60Z", "24:00:00Z", "01:02:03"]),
        ({"type": "string", "format": "hostname"}, ["a.b-c.de", "x" * 63], ["-a", "a-", "a..b", "x" * 64, "ab--cd", "a." * 127 + "a"]),
        ({"type": "string", "format": "ipv6"}, ["::1", "1::", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1::2:3.4.5.6"], ["1:2:3:4:5:6:7", "1::2::3", ":1", "12345::", "::256.1.1.1"]),
        ({"type": "array", "items": {"enum": ["a", "b", None, "a"]}, "uniqueItems": True, "maxItems": 2}, [[], ["b"], ["b", "a"], [None, "b"]], [["a", "a"], ["a", "b", None], ["c"], [None, None]]),
        ({"items": {"$ref": "#/$defs/b"}, "uniqueItems": True, "minItems": 1, "$defs": {"b": {"type": "boolean"}}}, [[True], [False, True], "x"], [[], [True, True]]),
        ({"type": "array", "items": {"type": "integer"}, "contains": {"const": 7}, "maxItems": 3}, [[7], [1, 7], [1, 2, 7], [7, 7]], [[], [1, 2, 3], [1, 2, 3, 7], [7, "a"]]),
        ({"contains": {"type": "string"}, "minContains": 0}, [[], [1], "a"], []),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "contains": {"type": "string"}, "maxItems": 1, "minContains": 0}, [["a"], 1], [[], [1]]),
        ({"type": "string", "pattern": "^\\s$"}, ["\t", " ", "\u00a0", "\u2029", "\ufeff"], ["\x85", "\u200b", "x", ""]),
        ({"type": "string", "pattern": "^[^\\S\\n]\\S$"}, ["\ufeff\x85", "\tx"], ["\nx", "x\ufeff", "\x85x"]),
        ({"type": "string", "pattern": "^[].\\s]$"}, ["]", ".", "\ufeff"], ["x", "\x85"]),
        ({"type": "string", "pattern": "^a.b[.]$"}, ["a b.", "a\x85b."], ["a\rb.", "a\u2028b.", "a\nb.", "axbx"]),
        ({"type": "string", "pattern": "(?s)^a.b$"}, ["a\nb", "a\rb"], ["ab"]),
        ({"type": "object", "patternProperties": {"^\\s": {"type": "integer"}}, "additionalProperties": False}, [{"\ufeffx": 1}], [{"\x85": 1}, {" ": "a"}]),
        ({"$ref": "#/x-shared/a", "x-shared": {"a": {"type": "integer"}}}, [1], ["a"]),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3, "exclusiveMinimum": True}, [4], [3]),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}], "additionalItems": False, "type": "array"}, [[1], []], [["a"], [1, 2]]),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "maxLength": 1, "definitions": {"a": {"type": "string"}}}, ["ab"], [1]),
        ({"$schema": "http://json-schema.org/draft-06/schema#", "properties": {"a": {"$schema": "http://json-schema.org/draft-06/schema#", "format": "date", "type": "string"}}, "type": "object"}, [{"a": "2024-01-01"}], [{"a": "x"}]),
    ],
)  # fmt: skip
def test_grammar_and_replies_agree(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    constraint = schema_constraint(schema)
    for value in good:
        assert matches(constraint.grammar, compact(value)), value
        assert constraint.parse(compact(value)) == value
        constraint.accepts(value)
    for value in bad:
        assert not matches(constraint.grammar, compact(value)), value
        with pytest.raises(ValueError):
            constraint.parse(compact(value))
        with pytest.raises(ValueError):
            constraint.accepts(value)


REFUSED: list[tuple[dict[str, Any], str, tuple[str | int, ...]]] = [
    ({"type": "nope"}, "S503", ("type",)),
    ({"type": "object", "properties": {"foo": "bar"}}, "S503", ("properties", "foo")),
    ({"type": "object", "properties": []}, "S503", ("properties",)),
    ({"required": "a"}, "S503", ("required",)),
    ({"minLength": -1}, "S503", ("minLength",)),
    ({"enum": "a"}, "S503", ("enum",)),
    ({"items": [{"type": "string"}]}, "S503", ("items",)),
    ({"$schema": "https://example.com/mine"}, "S503", ("$schema",)),
    ({"$ref": "https://example.com/x"}, "S503", ("$ref",)),
    ({"$ref": "other.json"}, "S503", ("$ref",)),
    ({"$ref": "file:///etc/passwd"}, "S503", ("$ref",)),
    ({"$ref": "#/$defs/a"}, "S503", ("$ref",)),
    ({"$ref": "#"}, "S503", ("$ref",)),
    ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "S503", ("$defs", "a", "$ref")),
    ({"anyOf": [{"$ref": "#"}, {"type": "string"}]}, "S503", ("anyOf", 0, "$ref")),
    ({"type": "string", "maxLenght": 3}, "S504", ("maxLenght",)),
    ({"type": "array", "uniqueItems": True}, "S504", ("uniqueItems",)),
    ({"type": "array", "items": {"enum": list("abcdef")}, "uniqueItems": True}, "S504", ("uniqueItems",)),
    ({"type": "array", "items": {"enum": [1, 1.0]}, "uniqueItems": True}, "S504", ("uniqueItems",)),
    ({"type": "array", "contains": {}, "maxItems": 9}, "S504", ("contains",)),
    ({"type": "array", "contains": {}, "maxItems": 3, "maxContains": 1}, "S504", ("contains",)),
    ({"contains": {"contains": {}, "maxItems": 3}, "maxItems": 3}, "S504", ("contains",)),
    ({"not": {"pattern": "a"}}, "S504", ("not",)),
    ({"not": {"enum": [1]}}, "S504", ("not",)),
    ({"if": {"pattern": "a"}, "then": {}}, "S504", ("if",)),
    ({"type": "object", "properties": {"a": {"contains": {}}}}, "S504", ("properties", "a", "contains")),
    ({"type": "object", "propertyNames": {"format": "date"}}, "S504", ("propertyNames",)),
    ({"type": "object", "dependentRequired": {f"k{i}": ["b"] for i in range(20)}}, "S504", ("dependentRequired",)),
    ({"$ref": "#/x-shared/a", "x-shared": {"a": {"maxLenght": 3}}}, "S504", ("x-shared", "a", "maxLenght")),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "contentEncoding": "base64"}, "S504", ("contentEncoding",)),
    ({"unevaluatedProperties": False}, "S504", ("unevaluatedProperties",)),
    ({"$dynamicRef": "#a"}, "S504", ("$dynamicRef",)),
    ({"type": "string", "nullable": True}, "S504", ("nullable",)),
    ({"x-guidance": {"lenient": True}}, "S504", ("x-guidance",)),
    ({"properties": {"a": {"$id": "b", "items": {"$ref": "#"}}}}, "S504", ("properties", "a", "$id")),
    ({"type": "string", "format": "uri-template"}, "S504", ("format",)),
    ({"type": "string", "format": "unknown"}, "S504", ("format",)),
    ({"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1}, "S504", ("maxProperties",)),
    ({"items": {"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}}, "S504", ("items", "oneOf")),
    ({"type": "string", "pattern": "(a"}, "S501", ("pattern",)),
    ({"type": "string", "pattern": "(?=a)"}, "S502", ("pattern",)),
    ({"patternProperties": {"(?=a)": {}}}, "S502", ("patternProperties", "(?=a)")),
    ({"enum": []}, "S505", ()),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "S505", ()),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, "S505", ()),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}}, "S505", ()),
    ({"type": "string", "maxLength": 10**9}, "S505", ("maxLength",)),
    ({"items": {"properties": {f"p{i}": {} for i in range(401)}}}, "S505", ("items", "properties")),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "code", "pointer"), REFUSED, ids=[json.dumps(row[0])[:50] for row in REFUSED])
def test_refused_schemas_have_a_place(schema: dict[str, Any], code: str, pointer: tuple[str | int, ...]) -> None:
    with pytest.raises(ConstraintError) as caught:
        schema_constraint(schema)
    assert (caught.value.code, caught.value.pointer) == (code, pointer), caught.value.message


def nested(depth: int, wrap: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = wrap(schema)
    return schema


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "schema",
    [
        nested(200, lambda s: {"type": "object", "properties": {"a": s}, "required": ["a"]}),
        nested(14, lambda s: {"oneOf": [s, {"type": "object", "properties": {"a": s}, "required": ["a"]}]}),
        nested(9, lambda s: {"anyOf": [s, {"type": "array", "items": s}]}),
        nested(12, lambda s: {"allOf": [s, s]}),
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(5000)}},
        {"enum": [f"word {i}" for i in range(20_000)]},
        {"type": "string", "maxLength": 100_000},
        {"type": "array", "items": {"type": "string", "pattern": "^([ab]*a[ab]{13})+$"}, "maxItems": 100_000},
        {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(150)} | {"d150": {"type": "string"}}, "$ref": "#/$defs/d0"},
        {"type": "string", "pattern": "^(a+)+$"},
    ],
    ids=range(10),
)  # fmt: skip
def test_hostile_schemas_end_quickly(schema: dict[str, Any]) -> None:
    try:
        constraint = schema_constraint(schema)
        with pytest.raises(ValueError):
            constraint.parse(json.dumps("a" * 40 + "!") if "pattern" in schema else "[1")
    except ConstraintError as error:
        assert error.code in ("S504", "S505")


def test_a_pattern_is_compiled_once_for_all_texts_of_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys times patterns: a value of two hundred keys and fifty patterns took a quarter of a minute."""
    patterns = {f"^a{i}b+$": {"type": "string", "pattern": "^x+$"} for i in range(20)}
    constraint = schema_constraint({"type": "object", "patternProperties": patterns, "additionalProperties": False})
    value = {f"a{i % 20}{'b' * (i // 20 + 1)}": "xx" for i in range(100)}
    compiled: list[str] = []

    def counted(text: str) -> Any:
        compiled.append(text)
        return matcher(text)

    matcher = grammar._matcher
    monkeypatch.setattr(grammar, "_matcher", counted)
    assert constraint.parse(json.dumps(value)) == value
    assert len(compiled) == 21
    with pytest.raises(ValueError, match="a21b"):
        constraint.parse(json.dumps({**value, "a21b": "xx"}))


def test_texts_of_one_value_do_not_use_up_what_their_pattern_may_cost() -> None:
    """Copies of a matcher share its limit of work; texts that visit new states all the time come to it together."""
    source = random.Random(1)
    texts = ["".join(source.choices("ab", k=199)) + "a" + "b" * 40 for _ in range(120)]
    constraint = schema_constraint({"type": "array", "items": {"type": "string", "pattern": "^[ab]*a[ab]{40}$"}})
    assert constraint.parse(json.dumps(texts)) == texts
    texts[-1] += "c"
    with pytest.raises(ValueError, match="does not match"):
        constraint.parse(json.dumps(texts))


@given(
    st.fixed_dictionaries(
        {
            "name": st.text(max_size=8),
            "age": st.integers(0, 150),
            "tags": st.lists(st.sampled_from(["a", "b"]), max_size=3),
            "ok": st.booleans(),
        }
    )
)
@settings(max_examples=60, deadline=None)
def test_every_valid_instance_can_be_generated(value: dict[str, Any]) -> None:
    constraint = schema_constraint(PERSON)
    in_order = {key: value[key] for key in PERSON["properties"]}
    # llguidance wants DEL escaped, which JSON does not ask for
    for text in (compact(in_order), json.dumps(in_order, ensure_ascii=False)):
        assert matches(constraint.grammar, text.replace("\x7f", "\\u007f"))
        assert constraint.parse(text) == value


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(alphabet="ab", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "age", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(JSON_VALUES)
@settings(max_examples=100, deadline=None)
def test_grammar_and_validator_refuse_the_same(value: Any) -> None:
    constraint = schema_constraint(PERSON)
    try:
        constraint.accepts(value)
        valid = True
    except ValueError:
        valid = False
    if isinstance(value, dict) and valid:
        value = {key: value[key] for key in PERSON["properties"]}
    assert matches(constraint.grammar, compact(value)) == valid


def test_white_space_is_bounded() -> None:
    tight, pretty = schema_constraint(PERSON), schema_constraint(PERSON, pretty=True)
    value = {"name": "Bo", "age": 3, "tags": ["a", "b"], "ok": True}
    for constraint, text, fits in [
        (tight, compact(value), True),
        (tight, json.dumps(value), True),
        (tight, json.dumps(value, indent=1), False),
        (tight, compact(value).replace(":", ":  "), False),
        (tight, " " + compact(value), False),
        (pretty, json.dumps(value, indent=2), True),
        (pretty, compact(value), True),
        (pretty, json.dumps(value, indent=2).replace("\n", "\n\n"), False),
        (pretty, compact(value).replace(",", "," + " " * 70), False),
    ]:
        assert matches(constraint.grammar, text) is fits, text


def test_lenient_checks_afterwards_what_it_cannot_enforce() -> None:
    constraint = schema_constraint({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, lenient=True)
    assert matches(constraint.grammar, "[1,1]")
    assert constraint.parse("[1,2]") == [1, 2]
    with pytest.raises(ValueError, match="non-unique"):
        constraint.parse("[1,1]")


def test_lenient_still_refuses_typos() -> None:
    with pytest.raises(ConstraintError) as caught:
        schema_constraint({"type": "string", "maxLenght": 3}, lenient=True)
    assert (caught.value.code, caught.value.help) == ("S504", "Did you mean `maxLength`?")


@pytest.mark.parametrize(
    ("word", "good", "bad"),
    [
        ("integer", {"7": 7, "-12": -12, "0": 0}, ["", "007", "1.0", "1e3", " 7", "seven", "NaN"]),
        ("number", {"7": 7, "-1.5": -1.5, "2e3": 2000.0}, ["", ".5", "1.", "1e999", "Infinity"]),
        ("boolean", {"true": True, "false": False}, ["True", "yes", "1"]),
        ("json", {'{"a":[1,null]}': {"a": [1, None]}, '"x"': "x"}, ["", "{", '{"a":1,"a":2}', "NaN", "1 2"]),
        ("quoted", {'"a \\"b\\""': 'a "b"', '""': ""}, ["a", "1", '"a', "null"]),
    ],
)
def test_types(word: str, good: dict[str, Any], bad: list[str]) -> None:
    constraint = type_constraint(word)
    for text, value in good.items():
        assert matches(constraint.grammar, text), text
        parsed = constraint.parse(text)
        assert parsed == value and type(parsed) is type(value)
        constraint.accepts(value)
    for text in bad:
        with pytest.raises(ValueError):
            constraint.parse(text)


@pytest.mark.parametrize(
    ("constraint", "value"),
    [
        (type_constraint("integer"), True),
        (type_constraint("integer"), 1.5),
        (type_constraint("number"), "1"),
        (type_constraint("boolean"), 1),
        (type_constraint("quoted"), 1),
    ],
)
def test_values_of_the_wrong_type(constraint: Constraint, value: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        constraint.accepts(value)


def test_references_are_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    for reference in ("http://127.0.0.1:1/x", "file:///etc/hostname", "//host/x"):
        with pytest.raises(ConstraintError):
            schema_constraint({"type": "object", "properties": {"a": {"$ref": reference}}}, lenient=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": "b', "the text that begins at character 7 is never closed"),
        ('{"a": ', "it ends too early"),
        ('{"a": 1', "it ends too early"),
        ('{"a" 1}', "a colon is missing at character 6"),
        ("{a: 1}", "a key in double quotes is missing at character 2"),
        ('{"a": 1 "b": 2}', "a comma or a closing bracket is missing at character 9"),
        ("1 2", "something stands behind the end of the value, at character 3"),
        ('"a\nb"', "a line break or control character stands inside a text, at character 3"),
        ("[1, x]", "a value is missing at character 5"),
    ],
)
def test_broken_json_in_our_words(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="this is not valid JSON") as caught:
        parse_json(text)
    assert str(caught.value) == f"this is not valid JSON: {message}"

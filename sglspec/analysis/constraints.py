"""Constraints of generated text: one grammar text for the engine, and the way back from text to a typed value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sglspec.analysis.declarations import fields_schema
from sglspec.analysis.grammar import STUCK, ConstraintError, json_grammar, matches, regex_grammar, verdict
from sglspec.analysis.lark import lark_grammar
from sglspec.analysis.regexes import escape, normalise
from sglspec.analysis.schemas import check_schema
from sglspec.analysis.validate import parse_json, validate
from sglspec.document.model import Decl

Kind = Literal["regex", "grammar", "schema", "type"]

_WORDS: dict[str, tuple[str, str]] = {
    "integer": ("-?(0|[1-9][0-9]*)", "a whole number such as 7 or -12"),
    # two digits of exponent: what fits never overflows
    "number": (r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]{1,2})?", "a number such as 7, -1.5 or 2e3"),
    "boolean": ("true|false", "true or false"),
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """What generated text must look like.

    `grammar` is one llguidance Lark grammar; `type` the type of the value (`string integer number boolean object
    array null any`); `quoted` says that the text is a JSON string and the value what it holds.
    """

    kind: Kind
    grammar: str
    schema: dict[str, Any] | None = field(default=None, compare=False)
    type: str | None = None
    quoted: bool = False
    source: str = ""
    """The constraint in the author's words, for messages."""

    @property
    def json(self) -> bool:
        """Whether the text is a JSON value. Only a number can be complete and yet go on."""
        return self.kind in ("schema", "type")

    def parse(self, text: str) -> Any:
        """The typed value of a whole generated text. ValueError with a readable message when it does not fit."""
        if self.kind in ("regex", "grammar"):
            if not matches(self.grammar, text):
                raise ValueError(f"{_shown(text)} does not match {self.source}")
            return text
        if self.kind == "type" and self.type in _WORDS:
            if not matches(self.grammar, text):
                raise ValueError(f"{_shown(text)} is not {self.source}")
            return parse_json(text)
        value = parse_json(text)
        if self.quoted and not isinstance(value, str):
            raise ValueError(f"{_shown(text)} is not a JSON string in quotes")
        if self.schema is not None:
            validate(self.schema, value)
        return value

    def accepts(self, value: Any) -> None:
        """For a reply that is already a value. ValueError with a readable message when it does not fit."""
        if self.kind in ("regex", "grammar") or self.quoted:
            if not isinstance(value, str):
                raise ValueError(f"expected a text, found {_kind(value)}")
            if not self.quoted:
                self.parse(value)
        elif self.type == "boolean" and self.kind == "type":
            if not isinstance(value, bool):
                raise ValueError(f"expected true or false, found {_kind(value)}")
        elif self.type in ("integer", "number") and self.kind == "type":
            if isinstance(value, bool) or not isinstance(value, int if self.type == "integer" else (int, float)):
                raise ValueError(f"expected {self.source}, found {_kind(value)}")
        elif self.schema is not None:
            validate(self.schema, value)


def regex_constraint(pattern: str) -> Constraint:
    """The whole text matches `pattern`. ConstraintError (S501, S502, S505) with offsets into it."""
    grammar = regex_grammar(normalise(pattern))
    reason = verdict(grammar)
    if reason == STUCK:
        raise ConstraintError("S505", "no text matches this pattern", start=0, end=len(pattern))
    if reason is not None:
        message = f"the pattern cannot be compiled: {reason}"
        raise ConstraintError("S501", message, start=0, end=len(pattern))
    return Constraint("regex", grammar, type="string", source=f"the pattern {pattern}")


def grammar_constraint(text: str) -> Constraint:
    """The whole text is one that a Lark grammar describes. ConstraintError (S501 to S505, S508) with offsets."""
    return Constraint("grammar", lark_grammar(text), type="string", source="the grammar")


def schema_constraint(schema: dict[str, Any], *, pretty: bool = False, lenient: bool = False) -> Constraint:
    """JSON under a JSON Schema. ConstraintError (S501 to S505) with a pointer into the schema."""
    enforced = check_schema(schema, lenient=lenient)
    return _json_constraint(schema, enforced, pretty=pretty, lenient=lenient)


def fields_constraint(fields: Mapping[str, Decl], *, pretty: bool = False, lenient: bool = False) -> Constraint:
    """A JSON object with exactly these fields. ConstraintError with a pointer into the equivalent schema, whose
    shape is that of the declarations."""
    schema = fields_schema(fields)
    enforced = check_schema(schema, lenient=lenient, generated=True)
    return _json_constraint(schema, enforced, pretty=pretty, lenient=lenient)


def type_constraint(word: str, *, pretty: bool = False) -> Constraint:
    """`integer number boolean json quoted`. KeyError for any other word."""
    if word == "json":
        return Constraint("type", json_grammar({}, pretty=pretty), type="any", source="JSON")
    if word == "quoted":
        return Constraint("type", json_grammar({"type": "string"}), type="string", quoted=True, source="a JSON string")
    pattern, meaning = _WORDS[word]
    return Constraint("type", regex_grammar(normalise(pattern)), type=word, source=meaning)


def _json_constraint(schema: dict[str, Any], enforced: dict[str, Any], *, pretty: bool, lenient: bool) -> Constraint:
    kind = schema.get("type")
    grammar = json_grammar(enforced, pretty=pretty, lenient=lenient)
    return Constraint(
        "schema", grammar, schema, kind if isinstance(kind, str) else _type_of(schema), source="the schema"
    )


def _type_of(schema: dict[str, Any]) -> str:
    values: list[Any] = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return "string" if values and all(isinstance(v, str) for v in values) else "any"


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= 80 else text[:80] + "…", ensure_ascii=False)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "a mapping"


__all__ = [
    "Constraint",
    "ConstraintError",
    "escape",
    "fields_constraint",
    "grammar_constraint",
    "regex_constraint",
    "schema_constraint",
    "type_constraint",
]

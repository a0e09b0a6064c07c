"""Field types → JSON Schema fragments for editors.

The fragments come from the same annotations that validate documents: the `Editor` marks of fields.py, and the shapes
`ListOf`, `MapOf` and `StepList`. Models become references to named definitions, so that recursion stays in three
places only (`steps`, `declaration`, `declaration-mapping`): an editor's cost grows with recursion.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from sglspec.document.fields import NAME, TEMPLATE_MARK, Editor, one_or_many
from sglspec.document.model import (
    Case,
    Decl,
    Defs,
    Fork,
    Gen,
    Limits,
    Model,
    Retry,
    Return,
    Sampling,
    StepsDef,
    TextDef,
    Use,
)
from sglspec.document.reasoning import PARSERS

Schema = dict[str, Any]

DEFINITION_OF: dict[type[Model], str] = {
    Decl: "declaration",
    Sampling: "sampling",
    Limits: "limits",
    Retry: "retry",
    Case: "test",
    Use: "use",
    Defs: "defs",
    StepsDef: "step-list",
    TextDef: "text",
}
"""Models that fields hold → the names of their definitions."""

NAME_PATTERN = f"^{NAME.pattern.removesuffix(chr(92) + 'Z')}$"
LATER = "Part of the language, but not of this build yet."


def _special(model: type[Model], name: str) -> Schema | None:
    """The fields whose models read more forms than their type says."""
    if model is Fork and name == "spec":
        return {
            "type": ["string", "integer", "object"],
            "pattern": f"{NAME_PATTERN}|{TEMPLATE_MARK.pattern}",
            "patternErrorMessage": "Expected a variable, a count, or a mapping of named branches.",
            "errorMessage": "Expected a variable, a count, or a mapping of named branches.",
            "minimum": 0,
            "propertyNames": name_keys("branch name"),
            "additionalProperties": ref("steps"),
        }
    if model is Gen and name == "reasoning":
        text = {"type": "string"}
        return {
            "type": ["string", "object", "null"],
            "pattern": f"^({'|'.join(PARSERS)})$",
            "patternErrorMessage": f"Expected one of {', '.join(PARSERS)}.",
            "examples": list(PARSERS),
            "properties": {
                "parser": {"enum": list(PARSERS)},
                "open": text,
                "close": text,
                "budget": {"type": "integer"},
            },
            "additionalProperties": False,
            "errorMessage": "Expected the name of a parser, or a mapping with `open` and `close`.",
        }
    if model is Return and name == "values":
        return {
            "type": ["object", "null"],
            "additionalProperties": {},
            "errorMessage": "Expected a mapping from outputs to values, or nothing.",
        }
    return None


def ref(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def name_keys(what: str) -> Schema:
    """For mappings whose keys are names of the language."""
    message = f"Not a valid {what}: letters, digits and _, not starting with a digit."
    return {"pattern": NAME_PATTERN, "patternErrorMessage": message}


def field_schemas(model: type[Model]) -> dict[str, Schema]:
    """Key as authors write it → fragment with its description, in the order of the model."""
    hints = get_type_hints(model, include_extras=True)
    schemas: dict[str, Schema] = {}
    for name, field in model.model_fields.items():
        schema = _special(model, name) or fragment(hints[name])
        schemas[field.alias or name] = _described(schema, field)
    return schemas


def required_keys(model: type[Model]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items() if field.is_required()]


def _described(schema: Schema, field: FieldInfo) -> Schema:
    """The fragment with the field's description. Beside a `$ref` editors read it and validators ignore it."""
    return {**schema, "description": field.description} if field.description else schema


def fragment(annotation: Any) -> Schema:
    """The JSON Schema of one annotated type."""
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        kinds = [kind for kind in arguments if kind is not NoneType]
        if len(kinds) == 1:
            # `X | None` says that the key may be absent; whether null may be written is up to X
            return fragment(kinds[0])
    elif origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    elif isinstance(annotation, type) and issubclass(annotation, Model):
        return ref(DEFINITION_OF[annotation])
    raise TypeError(f"no editor schema for the field type {annotation!r}")


def _annotated(inner: Any, marks: tuple[Any, ...]) -> Schema:
    for mark in marks:
        editor = mark if isinstance(mark, Editor) else getattr(mark, "editor", None)
        if isinstance(editor, Editor):
            return _with_message(editor.schema)
        if isinstance(mark, BeforeValidator) and mark.func is one_or_many:
            return ref("steps")
    arguments = get_args(inner)
    origin = get_origin(inner)
    if origin is list:
        return {"type": "array", "items": fragment(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": fragment(arguments[1])}
    return fragment(inner)


def _with_message(schema: Schema) -> Schema:
    """A copy with `errorMessage`: what a pattern says about a wrong text is right for a wrong type, too."""
    copy = dict(schema)
    if "errorMessage" not in copy:
        if "patternErrorMessage" in copy:
            copy["errorMessage"] = copy["patternErrorMessage"]
        elif "enum" in copy:
            copy["errorMessage"] = "Expected one of " + ", ".join(str(word) for word in copy["enum"]) + "."
    return copy

"""The two ends of a program as JSON Schema: what it takes, and what it gives as far as the analysis knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglspec.analysis.declarations import decl_schema
from sglspec.analysis.types import Type
from sglspec.document.model import Decl
from sglspec.document.nodes import to_python

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def type_schema(type: Type) -> dict[str, Any]:
    """A type as JSON Schema."""
    if type.kind == "any":
        return {}
    if type.choices is not None:
        choices = list(type.choices)
        return {"enum": [*choices, None] if type.nullable and None not in choices else choices}
    schema: dict[str, Any] = {"type": [type.kind, "null"] if type.nullable and type.kind != "null" else type.kind}
    if type.items is not None:
        schema["items"] = type_schema(type.items)
    if type.fields is not None:
        schema["properties"] = {name: type_schema(field) for name, field in type.fields.items()}
        schema["required"] = [name for name, field in type.fields.items() if not field.nullable]
    return schema


def input_schema(inputs: Mapping[str, Decl]) -> dict[str, Any]:
    """The inputs of a program as JSON Schema."""
    return {"$schema": _DIALECT, "type": "object", **_object(inputs)}


def output_schema(types: Mapping[str, Type]) -> dict[str, Any]:
    """The outputs of a run that succeeded as JSON Schema."""
    return {"$schema": _DIALECT, **type_schema(Type("object", fields=types)), "required": list(types)}


def _object(decls: Mapping[str, Decl]) -> dict[str, Any]:
    return {
        "properties": {name: _input(decl) for name, decl in decls.items()},
        "required": [name for name, decl in decls.items() if not decl.optional and decl.default is None],
        "additionalProperties": False,
    }


def _input(decl: Decl) -> dict[str, Any]:
    """A declaration, with what a caller may leave out of it: optional parts, and those that have a default."""
    schema = decl_schema(decl)
    if decl.properties is not None:
        schema |= _object(decl.properties)
    if decl.items is not None:
        schema["items"] = _input(decl.items)
    if decl.default is not None:
        schema["default"] = to_python(decl.default.node)
    if decl.secret:
        schema["writeOnly"] = True
    if decl.optional or decl.default is not None:
        return _or_null(schema)
    return schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Null means the same as not given."""
    if "enum" in schema:
        schema = {**schema, "enum": [*schema["enum"], *([] if None in schema["enum"] else [None])]}
    if isinstance(schema.get("type"), str):
        schema = {**schema, "type": [schema["type"], "null"]}
    return schema


__all__ = ["input_schema", "output_schema", "type_schema"]

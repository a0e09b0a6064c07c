"""The API's description (OpenAPI 3.1): of the whole server, and of one program with the types of its two ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from sglspec.analysis.interface import input_schema, output_schema
from sglspec.document.files import MAX_FILES
from sglspec.server.endpoints import Endpoint
from sglspec.server.programs import Checked
from sglspec.server.storage.runs import STATES

Schema = dict[str, Any]

_PARAMETERS: Mapping[str, tuple[str, Schema]] = {
    "reference": (
        "The name of a program, or `NAME@VERSION` with a number, a digest or an alias",
        {"type": "string", "maxLength": 135},
    ),
    "version": ("A number, a digest or an alias", {"type": "string", "maxLength": 71}),
    "alias": ("The name of an alias", {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,62}$"}),
    "run": ("The id of a run", {"type": "string", "pattern": "^run_[0-9a-f]{28}$"}),
    "batch": ("The id of a batch", {"type": "string", "pattern": "^batch_[0-9a-f]{28}$"}),
}
_OBJECT: Schema = {"type": "object"}
_INTEGER: Schema = {"type": "integer", "minimum": 0}
_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_SEED: Schema = {
    "description": "A whole number below 2^64; from 2^53 on as a text",
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
        {"type": "string", "pattern": "^[0-9]{1,19}$"},
        {"type": "null"},
    ],
}

_SPEC: Schema = {"type": ["string", "object"], "description": "A YAML or JSON document, or the program itself"}
_FILES: Schema = {
    "type": ["object", "null"],
    "description": "Texts of the files that the program uses, by their paths from it",
    "additionalProperties": {"type": "string"},
    "maxProperties": MAX_FILES,
}

SCHEMAS: Mapping[str, Schema] = {
    "Problem": {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "code": {"type": "string"},
            "detail": {"type": "string"},
            "errors": {"type": "array", "items": {"$ref": "#/components/schemas/Diagnostic"}},
            "errors_omitted": _INTEGER,
        },
        "required": ["type", "title", "status", "code"],
    },
    "Diagnostic": {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "severity": {"enum": ["error", "warning"]},
            "message": {"type": "string"},
            "file": {"type": "string"},
            "range": _OBJECT,
            "pointer": {"type": "string"},
            "help": {"type": "string"},
        },
        "required": ["code", "severity", "message"],
    },
    "Usage": {"type": "object", "additionalProperties": _INTEGER},
    "Result": {
        "type": "object",
        "properties": {
            "run_id": {"type": "string"},
            "status": {"enum": [state for state in STATES if state not in ("queued", "running")]},
            "outputs": _OBJECT,
            "variables": _OBJECT,
            "text": {"type": "string"},
            "messages": {"type": "array", "items": _OBJECT},
            "meta": _OBJECT,
            "usage": {"$ref": "#/components/schemas/Usage"},
            "seed": _INTEGER,
            "error": {"anyOf": [{"$ref": "#/components/schemas/Diagnostic"}, {"type": "null"}]},
        },
        "required": ["run_id", "status", "outputs", "error"],
    },
    "Run": {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "status": {"enum": list(STATES)},
            "program": _OBJECT,
            "mode": {"enum": ["sync", "stream", "async", "batch"]},
            "created_at": _TIME,
            "started_at": _TIME,
            "ended_at": _TIME,
            "deadline": _TIME,
            "error": {"anyOf": [{"$ref": "#/components/schemas/Diagnostic"}, {"type": "null"}]},
        },
        "required": ["id", "status", "program", "mode", "created_at"],
    },
    "Settings": {
        "type": "object",
        "properties": {
            "inputs": _OBJECT,
            "seed": _SEED,
            "trace": {"type": ["boolean", "null"], "description": "Keep the tokens of the run"},
            "detach": {"type": ["boolean", "null"], "description": "Go on when the client leaves"},
        },
        "additionalProperties": False,
    },
    "Bundle": {
        "type": "object",
        "properties": {"spec": _SPEC, "files": _FILES},
        "required": ["spec"],
        "additionalProperties": False,
    },
    "Posted": {
        "type": "object",
        "properties": {
            "spec": _SPEC,
            "files": _FILES,
            "inputs": _OBJECT,
            "seed": _SEED,
            "trace": {"type": ["boolean", "null"]},
            "detach": {"type": ["boolean", "null"]},
        },
        "required": ["spec"],
        "additionalProperties": False,
    },
    "Rows": {
        "type": "object",
        "properties": {
            "program": {"type": "string"},
            "rows": {"type": "array", "items": _OBJECT, "minItems": 1},
            "seed": _SEED,
        },
        "required": ["program", "rows"],
        "additionalProperties": False,
    },
    "AliasTarget": {
        "type": "object",
        "properties": {
            "version": {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": 999_999_999},
                    {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
                ]
            }
        },
        "required": ["version"],
        "additionalProperties": False,
    },
}

RUN_HEADERS: tuple[Schema, ...] = (
    {"name": "Prefer", "in": "header", "schema": {"enum": ["respond-async", "wait=1"]}},
    {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"}},
    {"name": "Cancel-After", "in": "header", "schema": {"type": "string", "pattern": "^[0-9]{1,4}(ms|s|m|h)?$"}},
    {"name": "Run-Deadline", "in": "header", "schema": {"type": "string", "pattern": "^[0-9]{1,4}$"}},
)


PAGE: tuple[Schema, ...] = (
    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 100}},
    {"name": "after", "in": "query", "schema": {"type": "string"}, "description": "What `next` said before"},
)


def query(name: str, schema: Schema, required: bool = False) -> Schema:
    """A parameter in the query."""
    return {"name": name, "in": "query", "required": required, "schema": schema}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def content(*types: str, schema: Schema | None = None) -> Schema:
    return {kind: {"schema": _OBJECT if schema is None else schema} for kind in types}


def service_document(endpoints: Iterable[Endpoint]) -> Schema:
    """The description of the whole server."""
    paths: dict[str, Schema] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return _document("sglspec", "Programs of language models, stored and run.", paths, dict(SCHEMAS))


def program_document(checked: Checked) -> Schema:
    """The description of one version of a stored program."""
    program = checked.program
    inputs, outputs = schemas_of(checked)
    settings = SCHEMAS["Settings"]
    body: Schema = {**settings, "properties": settings["properties"] | {"inputs": ref("Inputs")}}
    result: Schema = {**SCHEMAS["Result"], "properties": SCHEMAS["Result"]["properties"] | {"outputs": ref("Outputs")}}
    if inputs.get("required"):
        body["required"] = ["inputs"]
    schemas = dict(SCHEMAS) | {"Inputs": inputs, "Outputs": outputs, "Settings": body, "Result": result}
    # of a run that did not succeed the outputs are what there was
    schemas["Result"]["properties"]["outputs"] = {"anyOf": [ref("Outputs"), _OBJECT]}
    path = f"/v1/programs/{checked.name}@{checked.version}/runs"
    operation = {
        "operationId": f"run_{(checked.name or '').replace('-', '_')}",
        "summary": str(program.spec.description or f"Run {checked.name}"),
        "parameters": list(RUN_HEADERS),
        "requestBody": {
            "required": bool(inputs.get("required")),
            "content": content("application/json", schema=ref("Settings")),
        },
        "responses": _responses("200", "202"),
    }
    title = f"{checked.name} {checked.version}"
    return _document(title, str(program.spec.description or ""), {path: {"post": operation}}, schemas)


def schemas_of(checked: Checked) -> tuple[Schema, Schema]:
    """JSON Schemas of a program's inputs and outputs."""
    program = checked.program
    inputs = {"title": f"Inputs of {program.name}", **input_schema(program.inputs)}
    return inputs, {"title": f"Outputs of {program.name}", **output_schema(program.outputs)}


def _document(title: str, description: str, paths: Schema, schemas: Mapping[str, Schema]) -> Schema:
    info = {"title": title, "version": version("sglspec"), "description": description}
    components = {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def _operation(endpoint: Endpoint) -> Schema:
    names = re.findall(r"\{(\w+)(?::\w+)?\}", endpoint.path)
    parameters: list[Schema] = []
    for name in names:
        description, schema = _PARAMETERS.get(name, ("", {"type": "string"}))
        parameters.append({"name": name, "in": "path", "required": True, "description": description, "schema": schema})
    more = dict(endpoint.operation or {})
    parameters += more.pop("parameters", ())
    words = re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path.removeprefix('/v1')}").strip("_")
    out: Schema = {"operationId": words, "summary": endpoint.summary, "x-scope": endpoint.scope}
    if endpoint.scope != "public":
        out["security"] = [{"key": []}, {}]  # none on a server without keys
    if parameters:
        out["parameters"] = parameters
    return out | {"responses": _responses("200")} | more


def _responses(*codes: str) -> Schema:
    """Success, and everything else as a problem."""
    known: Schema = {
        "200": {
            "description": "The result, or what happens as it happens",
            "content": content("application/json", schema=ref("Result"))
            | content("text/event-stream", schema={"type": "string"}),
        },
        "202": {"description": "The run goes on", "content": content("application/json", schema=ref("Run"))},
    }
    if codes == ("200",):
        known["200"] = {"description": "The answer", "content": content("application/json", schema={})}
    return {code: known[code] for code in codes} | {"default": problem()}


def problem() -> Schema:
    return {"description": "What is wrong", "content": content("application/problem+json", schema=ref("Problem"))}


def run_operation(body: Schema, *, required: bool) -> Schema:
    """The rest of an operation that runs something."""
    request = {"required": required, "content": body}
    return {"parameters": list(RUN_HEADERS), "requestBody": request, "responses": _responses("200", "202")}


def answers(code: str, description: str, *types: str) -> Schema:
    """The responses of an operation with another success than JSON with status 200."""
    face: Schema = {"description": description}
    if types:
        face["content"] = content(*types, schema={})
    return {code: face, "default": problem()}


__all__ = [
    "PAGE",
    "answers",
    "content",
    "problem",
    "program_document",
    "query",
    "ref",
    "run_operation",
    "schemas_of",
    "service_document",
]

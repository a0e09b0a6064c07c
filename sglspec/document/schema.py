"""The registry of verbs → the JSON Schema that editors use.

This is not what validates documents (the models do): it is shaped for what editors make of it. A step is a chain of
if/then/else on the verb that is present, so an editor speaks about one kind of step only; pydantic's own schema,
a union of all kinds, would blame the wrong one. Properties that must not occur together are `false` inside a
conditional schema of their own, whose `errorMessage` then stands at the key. Dialect: draft-07, which all editors know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from sglspec.document.fields import TEMPLATE_MARK, TEXT_SCHEMA
from sglspec.document.model import (
    CONSTRAINTS,
    LANGUAGE_VERSION,
    SLUG,
    TYPE_WORD,
    VERBS,
    Case,
    Decl,
    Defs,
    Fork,
    Gen,
    Limits,
    Model,
    Retry,
    Sampling,
    Spec,
    Step,
    StepsDef,
    TextDef,
    Use,
    Verb,
)
from sglspec.document.schema_fields import (
    LATER,
    NAME_PATTERN,
    Schema,
    field_schemas,
    name_keys,
    ref,
    required_keys,
)

SCHEMA_ID = f"urn:sglspec:schema:{LANGUAGE_VERSION}"
WIDTH = 110

EXAMPLES: dict[str, list[Any]] = {
    "name": ["essay-judge"],
    "inputs": [{"essay": "string", "count": {"type": "integer", "default": 3}}],
    "outputs": [["answer"], {"words": "{{ answer | split }}"}],
    "defaults": [{"temperature": 0.7, "max_tokens": 64}],
    "limits": [{"tokens": 2000, "seconds": 60}],
    "tests": [[{"name": "yes", "inputs": {"text": "…"}, "replies": {"answer": "yes"}, "expect": ['answer == "yes"']}]],
}
"""Shown on hover, and offered as values."""


def editor_schema() -> Schema:
    """The schema as plain data; every call returns a fresh one (editors' services write into theirs)."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": SCHEMA_ID,
        "title": f"sglspec {LANGUAGE_VERSION}",
        "description": "A language-model program. It reads from top to bottom like the conversation it produces.",
        "type": "object",
        "required": required_keys(Spec),
        "properties": _top_level(),
        "patternProperties": {"^x-": {"description": "For your own use; no effect."}},
        "additionalProperties": False,
        "definitions": {
            "steps": _steps(),
            "step": _step(),
            **_chain(),
            **{f"{verb.name}-step": _kind(verb) for verb in VERBS.values()},
            "declaration": _declaration(),
            "declaration-mapping": _closed(Decl),
            "sampling": _closed(Sampling),
            "limits": _closed(Limits),
            "retry": _closed(Retry),
            "test": _closed(Case),
            "use": _use(),
            "use-mapping": _closed(Use),
            "defs": _defs(),
            "text": _text(),
            "text-mapping": _file_text(),
            "step-list": _step_list(),
            "step-list-mapping": _closed(StepsDef),
        },
    }


def schema_text() -> str:
    """The schema as `schemas/sglspec-v1.schema.json` holds it."""
    return _layout(editor_schema()) + "\n"


# ------------------------------------------------------------------ top level


def _top_level() -> dict[str, Schema]:
    properties = field_schemas(Spec)
    properties["sglspec"] |= {"enum": [LANGUAGE_VERSION], "errorMessage": f"Write `sglspec: {LANGUAGE_VERSION}`."}
    slug = f"^{SLUG.pattern.removesuffix(chr(92) + 'Z')}$"
    properties["name"] |= {
        "type": "string",
        "pattern": slug,
        "patternErrorMessage": "Use a-z, 0-9 and -, starting with a letter.",
    }
    properties["inputs"]["propertyNames"] = name_keys("input name")
    properties["outputs"] |= {
        "items": {"type": "string", "pattern": NAME_PATTERN, "errorMessage": "Expected the name of a variable."},
        "propertyNames": name_keys("output name"),
        "errorMessage": "Expected a list of names, or a mapping from names to values.",
    }
    properties["use"]["propertyNames"] = name_keys("alias")
    for key, schema in properties.items():
        schema["markdownDescription"] = schema["description"]
        if key in EXAMPLES:
            schema["examples"] = EXAMPLES[key]
    return properties


def _closed(model: type[Model]) -> Schema:
    """A mapping with exactly the model's keys."""
    schema: Schema = {"type": "object", "properties": field_schemas(model), "additionalProperties": False}
    required = required_keys(model)
    if required:
        schema["required"] = required
    return schema


def _declaration() -> Schema:
    """A type word or a mapping. The words stand in `examples` too: editors offer values from there, not from `else`."""
    offered = TYPE_WORD.offered
    words = ", ".join(offered)
    return {
        "examples": offered,
        "if": {"type": "object"},
        "then": ref("declaration-mapping"),
        "else": {"enum": offered, "errorMessage": f"Expected a declaration or a type word: {words}."},
    }


def _use() -> Schema:
    """A path, or a mapping."""
    message = "Expected a path such as ./judge.sglspec.yaml, or a mapping with `path` and `with`."
    return {
        "if": {"type": "object"},
        "then": ref("use-mapping"),
        "else": {"type": "string", "errorMessage": message},
    }


def _defs() -> Schema:
    schema = _closed(Defs)
    for name in ("schemas", "regexes", "texts", "steps"):
        schema["properties"][name]["propertyNames"] = name_keys("name")
    message = "Expected a JSON Schema, or the path of one."
    schema["properties"]["schemas"]["additionalProperties"] = {"type": ["object", "string"], "errorMessage": message}
    return schema


def _text() -> Schema:
    """A text, or that of a file."""
    return {"if": {"type": "object"}, "then": ref("text-mapping"), "else": TEXT_SCHEMA}


def _file_text() -> Schema:
    """The one key is missing when it is misspelt: one message is enough."""
    schema = _closed(TextDef)
    del schema["required"]
    return {**schema, "minProperties": 1}


def _step_list() -> Schema:
    """A list of steps, or a mapping with `params`."""
    return {
        "if": {"type": "object"},
        "then": ref("step-list-mapping"),
        "else": {
            "type": "array",
            "minItems": 1,
            "items": ref("step"),
            "errorMessage": "Expected a list of steps, or a mapping with `params` and `steps`.",
        },
    }


# ---------------------------------------------------------------------- steps


def _steps() -> Schema:
    """One step or a list of steps."""
    return {"if": {"type": "array"}, "then": {"minItems": 1, "items": ref("step")}, "else": ref("step")}


def _step() -> Schema:
    """A text, or a mapping. Texts leave the chain here: a bare string would satisfy every `required`. Their types
    stand in `else`, where editors do not look for values to offer (`true` and `false` as steps)."""
    return {
        "if": {"type": "object"},
        "then": ref(f"when-{next(iter(VERBS))}"),
        "else": {
            "type": ["string", "number", "boolean"],
            "errorMessage": "Expected a step: a text, or a mapping that starts with a verb.",
        },
    }


def _chain() -> dict[str, Schema]:
    """One link per verb: its kind when the verb is there, else the next link."""
    names = list(VERBS)
    following = [*(f"when-{name}" for name in names[1:]), "no-known-verb"]
    links = {
        f"when-{name}": {"if": {"required": [name]}, "then": ref(f"{name}-step"), "else": ref(after)}
        for name, after in zip(names, following, strict=True)
    }
    return {**links, "no-known-verb": _no_known_verb()}


def _no_known_verb() -> Schema:
    """The end of the chain. Verbs are offered here only, so never inside a step that has one."""
    fields = sorted({key for verb in VERBS.values() for key in field_schemas(verb.model)} - set(VERBS))
    ready = [verb for verb in VERBS.values() if verb.ready]
    words = ", ".join(verb.name for verb in ready)
    return {
        "type": "object",
        "properties": {verb.name: _offer(verb) for verb in ready},
        "defaultSnippets": [
            {"label": f"{verb.name} …", "description": verb.summary, "body": verb.snippet}
            for verb in ready
            if "\n" in verb.snippet
        ],
        "if": {"propertyNames": {"enum": fields}},
        # one name is enough to raise the message; no step of this branch has it
        "then": {"required": ["gen"], "errorMessage": f"This step has no verb. Add one of: {words}."},
        "else": {
            "properties": dict.fromkeys(fields, True),
            "additionalProperties": False,
            "errorMessage": f"Unknown step. A step starts with one of: {words}.",
        },
    }


def _offer(verb: Verb) -> Schema:
    """A verb in the list of completions. It validates nothing: the verb is not there yet. The type makes editors
    insert `verb: ` with the cursor behind it; the empty snippet does that for verbs that take no value."""
    value: Schema = {"defaultSnippets": [{"body": ""}]} if verb.snippet.endswith(":") else {"type": "string"}
    return {"description": verb.summary, "markdownDescription": _help(verb), **value}


def _kind(verb: Verb) -> Schema:
    """The steps of one verb: closed, the verb's key first, `id` and `note` last."""
    fields = field_schemas(verb.model)
    keys = sorted(fields, key=lambda key: (key != verb.name, key in Step.model_fields, key in Sampling.model_fields))
    properties = {key: fields[key] for key in keys}
    properties[verb.name]["markdownDescription"] = _help(verb)
    others = "|".join(name for name in VERBS if name != verb.name)
    schema: Schema = {
        "title": f"{verb.name} step",
        "type": "object",
        "required": [verb.name, *(key for key in required_keys(verb.model) if key != verb.name)],
        "properties": properties,
        # other verbs pass `additionalProperties` here, to be answered once, by the better message
        "patternProperties": {f"^(?:{others})$": {}},
        "additionalProperties": False,
        "propertyNames": {
            "pattern": f"^(?!(?:{others})$)",
            "patternErrorMessage": f"One step, one verb: this is a `{verb.name}` step. Start a new line with `- `.",
        },
    }
    _finish(verb.model, schema)
    return schema


def _finish(model: type[Step], schema: Schema) -> None:
    """What the field types alone do not say."""
    if model is Gen:
        schema["allOf"] = [_one_constraint(CONSTRAINTS)]
    elif model is Fork:
        schema["allOf"] = _fork_forms()


def _help(verb: Verb) -> str:
    """Hover text: what the verb does, its value, and an example made from the snippet."""
    value = verb.model.model_fields[_field_name(verb)].description or ""
    example = re.sub(r"\$\{\d+:([^}]*)\}", r"\1", verb.snippet)
    note = "" if verb.ready else f"{LATER}\n\n"
    lines = "\n  ".join(example.splitlines())
    return f"{verb.summary}\n\n`{verb.name}`: {value}\n\n{note}```yaml\n- {lines}\n```"


def _field_name(verb: Verb) -> str:
    fields = verb.model.model_fields
    return next(name for name, field in fields.items() if (field.alias or name) == verb.name)


def _never(keys: list[str], message: str) -> Schema:
    """Keys that must not be there; the message stands at the key."""
    return {"properties": dict.fromkeys(keys, False), "errorMessage": message}


def _one_constraint(keys: Sequence[str]) -> Schema:
    """The first constraint that is there forbids all that follow in the list, so each of those is reported once."""
    first, *rest = keys
    message = f"`{first}` is here already, and constraints exclude each other: one per gen."
    schema: Schema = {"if": {"required": [first]}, "then": _never(rest, message)}
    if len(rest) > 1:
        schema["else"] = _one_constraint(rest)
    return schema


def _fork_forms() -> list[Schema]:
    """The three forms of fork, and `fallback`."""

    def when(fork: Schema, then: Schema) -> Schema:
        return {"if": {"required": ["fork"], "properties": {"fork": fork}}, "then": then}

    name = {"type": "string", "pattern": NAME_PATTERN}
    count = {"type": ["integer", "string"], "pattern": TEMPLATE_MARK.pattern}
    text = {"type": ["integer", "string"]}
    return [
        when({"type": "object"}, _never(["do", "in"], "A fork with named branches holds its steps itself.")),
        when(text, {"required": ["do"], "errorMessage": "This fork needs `do`: the steps of its branches."}),
        when(
            name, {"required": ["in"], "errorMessage": "This fork needs `in`: the list whose items the branches get."}
        ),
        when(count, _never(["in"], "`in` needs a variable: write `fork: item`.")),
        {
            "if": {"required": ["join"], "properties": {"join": {"enum": ["concat_kv"]}}},
            "else": _never(["fallback"], "`fallback` only goes with `join: concat_kv`."),
        },
    ]


# --------------------------------------------------------------------- layout


def _layout(value: Any, indent: str = "", used: int = 0) -> str:
    """JSON that reads and diffs well: what fits on a line stands on one, the rest is one entry per line.

    `used` is the room that the key before the value and the comma after it take.
    """
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + used + len(flat) <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value).items()
        names = ((json.dumps(key, ensure_ascii=False), item) for key, item in entries)
        lines = [f"{inner}{name}: {_layout(item, inner, len(name) + 3)}" for name, item in names]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    lines = [f"{inner}{_layout(item, inner, 1)}" for item in cast("list[Any]", value)]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"

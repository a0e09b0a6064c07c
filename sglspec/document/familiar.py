"""Words that authors bring from elsewhere, and near misses: what was probably meant by a word that is not known."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sglspec.diagnostics.suggest import nearest
from sglspec.document.model import VERBS, Decl, Model

FAMILIAR = {
    "generate": "gen", "prompt": "user", "message": "user", "human": "user", "ai": "assistant", "bot": "assistant",
    "text": "raw", "choose": "select", "choices": "from", "options": "from", "repeat": "while", "loop": "for",
    "foreach": "for", "each": "for", "parallel": "fork", "branch": "fork", "switch": "match", "case": "cases",
    "let": "set", "assign": "set", "var": "set", "assert": "check", "error": "fail", "raise": "fail", "exit": "return",
    "elif": "else", "default": "else", "otherwise": "else", "steps": "do", "body": "do", "max_iterations": "max",
    "json": "fields",
    "json_schema": "schema", "pattern": "regex", "max_new_tokens": "max_tokens", "stop_sequences": "stop",
    "temp": "temperature", "output": "outputs", "input": "inputs", "params": "inputs", "parameters": "inputs",
    "program": "steps", "version": "sglspec", "choices_method": "method", "str": "string", "int": "integer",
    "float": "number", "double": "number", "bool": "boolean", "list": "array", "dict": "object", "map": "object",
}  # fmt: skip
"""Words of other tools → ours, for "did you mean". Only words of the same meaning: never an opposite."""

DECLARATION = {
    "choices": "enum", "options": "enum", "values": "enum", "one_of": "enum", "oneof": "enum", "allowed": "enum",
    "literal": "enum", "of": "items", "item": "items", "elements": "items", "desc": "description", "doc": "description",
    "help": "description", "comment": "description", "regex": "pattern", "regexp": "pattern", "fields": "properties",
    "props": "properties", "keys": "properties", "example": "examples", "min_length": "minLength",
    "minlen": "minLength", "min_len": "minLength", "max_length": "maxLength", "maxlen": "maxLength",
    "max_len": "maxLength", "minlength": "minLength", "maxlength": "maxLength", "min_items": "minItems",
    "max_items": "maxItems", "minitems": "minItems", "maxitems": "maxItems", "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum", "ge": "minimum", "gte": "minimum", "le": "maximum", "lte": "maximum",
    "min_value": "minimum", "max_value": "maximum", "kind": "type", "label": "title", "multiple_of": "multipleOf",
    "step": "multipleOf",
}  # fmt: skip
"""The same for the keys of a declaration, in lower case. `min` and `max` depend on the type, see `bound`."""

ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
    "ai": "assistant", "bot": "assistant", "model": "assistant",
}  # fmt: skip

_CERTAIN = frozenset({
    "generate", "choose", "choices", "options", "foreach", "parallel", "switch", "let", "assign", "assert", "raise",
    "human", "ai", "bot", "json_schema", "pattern", "max_new_tokens", "stop_sequences", "temp", "output", "input",
    "params", "parameters", "choices_method", "str", "int", "float", "double", "bool", "list", "dict",
})  # fmt: skip
"""Those of FAMILIAR that always mean the same as our word, so that it can be put in their place."""

READY = tuple(verb.name for verb in VERBS.values() if verb.ready)
"""The verbs that this build runs; no message offers another one."""

_NOT_YET = frozenset(("fallback",))


def keys_of(model: type[Model]) -> list[str]:
    """The keys that authors write for a model's fields."""
    return [field.alias or name for name, field in model.model_fields.items()]


def offered(model: type[Model]) -> list[str]:
    """The keys of a model that this build runs."""
    return [key for key in keys_of(model) if key not in _NOT_YET]


def guess(word: str, candidates: Sequence[str]) -> str | None:
    """The candidate that an author meant with a word."""
    if (familiar := FAMILIAR.get(word)) in candidates:
        return familiar
    lowered = word.lower().replace("-", "_")
    return lowered if lowered in candidates else nearest(lowered, candidates)


def guess_key(word: str, model: type[Model], kind: str = "") -> str | None:
    """The key of a model that an author meant; `kind` is the type that a declaration names."""
    if model is Decl:
        lowered = word.lower().replace("-", "_")
        if lowered in ("min", "max"):
            return bound(lowered, kind)
        if lowered in DECLARATION:
            return DECLARATION[lowered]
    return guess(word, offered(model))


def certain(word: str, candidates: Sequence[str]) -> str | None:
    """The candidate that a word is without any doubt: the same meaning elsewhere, or the same word but for case,
    `-` and `_`, or a plural."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower().replace("-", "_")
    if snake in _CERTAIN and FAMILIAR[snake] in candidates:
        return FAMILIAR[snake]
    return next((name for name in (snake, snake + "s", snake.removesuffix("s")) if name in candidates), None)


def certain_key(word: str, model: type[Model], kind: str = "") -> str | None:
    """The key of a model that a word is without any doubt; `kind` as for `guess_key`."""
    if model is Decl:
        lowered = word.lower().replace("-", "_")
        if lowered in ("min", "max"):
            return bound(lowered, kind) if kind else None
        if lowered in DECLARATION:
            return DECLARATION[lowered]
    return certain(word, offered(model))


def bound(word: str, kind: str) -> str:
    """`min` and `max` in the words of JSON Schema."""
    if FAMILIAR.get(kind, kind) == "string":
        return f"{word}Length"
    if FAMILIAR.get(kind, kind) in ("array", "messages"):
        return f"{word}Items"
    return f"{word}imum"


def users_of(key: str) -> list[str]:
    """The verbs that take a key."""
    return [verb for verb in READY if key in keys_of(VERBS[verb].model)]


def step_keys() -> set[str]:
    """Every key of a step that is not a verb."""
    return {key for verb in VERBS.values() for key in keys_of(verb.model)} - set(VERBS)


def verbs_help() -> str:
    return "A step starts with one of: " + ", ".join(READY) + "."

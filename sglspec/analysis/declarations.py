"""Declarations (the notation of `inputs` and `fields`): to JSON Schema, and checks of values against them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from heapq import nlargest
from typing import Any, cast

from sglspec.analysis.validate import parse_json, text_matches
from sglspec.diagnostics.suggest import common_prefix
from sglspec.document.model import Decl
from sglspec.document.nodes import to_python

BOUNDS = (
    "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems",
    "maxItems",
)  # fmt: skip
ROLES = ("system", "user", "assistant")
_MESSAGE = {
    "type": "object",
    "properties": {"role": {"enum": [*ROLES]}, "content": {"type": "string"}},
    "required": ["role", "content"],
    "additionalProperties": False,
}
_WANTED = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "a mapping", "messages": "a list of messages", "image": "an image",
    "video": "a video",
}  # fmt: skip


def type_of(decl: Decl) -> str:
    """The declared type, or what the other keys say; `any` when nothing does."""
    if decl.type is not None:
        return decl.type
    if decl.properties is not None:
        return "object"
    if decl.items is not None:
        return "array"
    if decl.enum is not None:
        values: Any = to_python(decl.enum.node)
        if isinstance(values, list) and values and all(isinstance(v, str) for v in cast("list[Any]", values)):
            return "string"
    return "any"


def decl_schema(decl: Decl) -> dict[str, Any]:
    """A declaration as JSON Schema. Keys keep their names, so that a place in one is a place in the other."""
    kind = type_of(decl)
    schema: dict[str, Any] = {}
    if kind == "messages":
        schema = {"type": "array", "items": _MESSAGE}
    elif kind != "any" and not (decl.type is None and decl.enum is not None):
        schema["type"] = "string" if kind in ("image", "video") else kind
    if decl.description is not None:
        schema["description"] = decl.description
    if decl.enum is not None:
        schema["enum"] = to_python(decl.enum.node)
    if kind == "object" and decl.properties is not None:
        schema |= fields_schema(decl.properties)
    if decl.items is not None:
        schema["items"] = decl_schema(decl.items)
    for name in BOUNDS:
        param = getattr(decl, name)
        if param is not None and param.value is not None:
            schema[name] = param.value
    if decl.pattern is not None:
        schema["pattern"] = decl.pattern
    if decl.format is not None:
        schema["format"] = decl.format
    return schema


def fields_schema(fields: Mapping[str, Decl]) -> dict[str, Any]:
    """An object with exactly these fields: closed, and all required that are not `optional`."""
    return {
        "type": "object",
        "properties": {name: decl_schema(decl) for name, decl in fields.items()},
        "required": [name for name, decl in fields.items() if not decl.optional],
        "additionalProperties": False,
    }


def check_input(decl: Decl, value: Any) -> str | None:
    """What is wrong with a value for this declaration, in words; None when nothing is."""
    return _check(decl, value, "")


def coerce_text(decl: Decl, text: str) -> Any:
    """A value from the command line (`--set name=text`), by the declared type. ValueError with a readable message."""
    kind = type_of(decl)
    if kind in ("string", "image", "video"):
        return text
    if kind == "any" and decl.enum is None:
        return text
    if kind == "any" and text in cast("list[Any]", to_python(cast("Any", decl.enum).node)):
        return text
    try:
        value = parse_json(text.strip())
    except ValueError:
        if kind in ("array", "object", "messages"):
            raise ValueError(f"expected {_WANTED[kind]} as JSON, found {_shown(text)}") from None
        raise ValueError(f"expected {_WANTED.get(kind, 'JSON')}, found {_shown(text)}") from None
    return value


MANY = 200
"""More names than this are not all compared letter by letter."""


def _alike(name: str, names: list[str]) -> list[str]:
    """The names that share most with this one at their beginning and end; too many names are not worth a look."""
    if len(names) > 20 * MANY:
        return []
    backwards = name[::-1]
    ranked = ((common_prefix(name, n) + common_prefix(backwards, n[::-1]), n) for n in names)
    return [n for _, n in nlargest(MANY, ranked, key=lambda pair: pair[0])]


def nearest(name: str, names: list[str]) -> str | None:
    """The known name that was probably meant."""
    if len(names) > MANY:
        names = _alike(name, names)
    lowered = {n.lower(): n for n in reversed(names)}
    close = get_close_matches(name.lower(), list(lowered), 1, 0.6)
    return lowered[close[0]] if close else None


def _check(decl: Decl, value: Any, place: str) -> str | None:
    kind = type_of(decl)
    where = f"at {place.removeprefix('.')}: " if place else ""
    if value is None and decl.optional:
        return None
    if not _fits(kind, value):
        return f"{where}expected {_WANTED[kind]}, found {_found(value)}"
    problem = _check_enum(decl, value) or _check_bounds(decl, value) or _check_text(decl, value)
    if problem is not None:
        return where + problem
    if isinstance(value, list) and decl.items is not None:
        for index, item in enumerate(cast("list[Any]", value)):
            if found := _check(decl.items, item, f"{place}[{index}]"):
                return found
    if isinstance(value, dict) and decl.properties is not None:
        return _check_properties(decl.properties, cast("dict[str, Any]", value), place)
    if kind == "messages" and (problem := check_messages(value)) is not None:
        return where + problem
    return None


def _fits(kind: str, value: Any) -> bool:
    match kind:
        case "string" | "image" | "video":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "array" | "messages":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case _:
            return True


def _same(a: Any, b: Any) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _check_enum(decl: Decl, value: Any) -> str | None:
    allowed = None if decl.enum is None else to_python(decl.enum.node)
    # what is no list was said where it is declared
    if not isinstance(allowed, list) or any(_same(value, choice) for choice in cast("list[Any]", allowed)):
        return None
    allowed = cast("list[Any]", allowed)
    shown = ", ".join(json.dumps(a, ensure_ascii=False) for a in allowed[:12])
    return f"expected one of {shown}{', …' if len(allowed) > 12 else ''}, found {_found(value)}"


def _check_bounds(decl: Decl, value: Any) -> str | None:
    limits: dict[str, Any] = {n: p.value for n in BOUNDS if (p := getattr(decl, n)) is not None and p.value is not None}
    if not limits:
        return None
    if isinstance(value, str):
        return _range(len(value), limits.get("minLength"), limits.get("maxLength"), "character")
    if isinstance(value, list):
        return _range(len(cast("list[Any]", value)), limits.get("minItems"), limits.get("maxItems"), "item")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if (low := limits.get("minimum")) is not None and value < low:
        return f"{value} is less than {low:g}"
    if (high := limits.get("maximum")) is not None and value > high:
        return f"{value} is more than {high:g}"
    if (low := limits.get("exclusiveMinimum")) is not None and value <= low:
        return f"{value} is not above {low:g}"
    if (high := limits.get("exclusiveMaximum")) is not None and value >= high:
        return f"{value} is not below {high:g}"
    if (step := limits.get("multipleOf")) is not None and not _multiple(value, step):
        return f"{value} is not a multiple of {step:g}"
    return None


def _range(count: int, low: int | None, high: int | None, what: str) -> str | None:
    noun = what if count == 1 else what + "s"
    if low is not None and count < low:
        return f"{count} {noun}, at least {low} are needed"
    if high is not None and count > high:
        return f"{count} {noun}, at most {high} are allowed"
    return None


def _multiple(value: float, step: float) -> bool:
    """Decimal fractions as an author means them: 0.3 is a multiple of 0.1."""
    from decimal import Decimal, InvalidOperation

    try:
        return Decimal(repr(value)) % Decimal(repr(step)) == 0
    except InvalidOperation:
        return False


def _check_text(decl: Decl, value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    if decl.pattern is not None and not text_matches(value, pattern=decl.pattern):
        return f"{_shown(value)} does not match the pattern {decl.pattern}"
    if decl.format is not None and not text_matches(value, format=decl.format):
        return f"{_shown(value)} is not a {decl.format}"
    return None


def _check_properties(properties: Mapping[str, Decl], value: dict[str, Any], place: str) -> str | None:
    where = f"at {place.removeprefix('.')}: " if place else ""
    for name, decl in properties.items():
        if name not in value:
            if decl.optional or decl.default is not None:
                continue
            return f"{where}the key `{name}` is missing"
        if found := _check(decl, value[name], f"{place}.{name}"):
            return found
    for name in value:
        if name not in properties:
            close = nearest(name, list(properties))
            return f"{where}the key `{name}` is not declared" + (f"; did you mean `{close}`?" if close else "")
    return None


def check_messages(value: Any) -> str | None:
    """What is wrong with a value as a list of messages; None when nothing is."""
    if not isinstance(value, list):
        return f"expected a list of messages, found {_found(value)}"
    for index, item in enumerate(cast("list[Any]", value), 1):
        message = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        role, content = message.get("role"), message.get("content")
        if "role" not in message or not isinstance(content, str):
            return f"item {index} is not a message like {{role: user, content: text}}"
        if role not in ROLES:
            shown = role if isinstance(role, str) else _found(role)
            return f"item {index} has the role {_shown(shown)}; roles are {', '.join(ROLES)}"
        if others := [key for key in message if key not in ("role", "content")]:
            return f"item {index} has the key {_shown(others[0])}; a message has a `role` and a `content`, nothing else"
    return None


def _found(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {_shown(value)}"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= 60 else text[:60] + "…", ensure_ascii=False)

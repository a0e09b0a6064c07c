"""Where the parts of a JSON Schema are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from sglspec.analysis.grammar import Step

Schema = dict[str, Any]
Pointer = tuple[Step, ...]

ONE = ("additionalProperties", "additionalItems", "items", "not", "if", "then", "else", "contains", "propertyNames")
"""Keywords with one schema below them. `items` may also be a list of them."""
MANY = ("anyOf", "allOf", "oneOf", "prefixItems")
"""Keywords with a list of schemas."""
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
"""Keywords with a mapping of names to schemas."""


def walk(schema: Schema) -> Iterator[tuple[Pointer, Schema]]:
    """Every sub-schema that is a mapping, with its pointer, parents first. What only a reference makes a schema comes
    last."""
    seen: set[int] = set()
    references: list[str] = []
    waiting: list[tuple[Pointer, Any]] = [((), schema)]
    while waiting or references:
        if not waiting:
            waiting = _referred(schema, references.pop(), seen)
            continue
        pointer, current = waiting.pop()
        if not isinstance(current, dict):
            continue
        found = cast("Schema", current)
        seen.add(id(found))
        yield pointer, found
        if isinstance(found.get("$ref"), str):
            references.append(found["$ref"])
        waiting.extend(reversed(list(_children(pointer, found))))


def _children(pointer: Pointer, schema: Schema) -> Iterator[tuple[Pointer, Any]]:
    for key, value in schema.items():
        if isinstance(value, list) and (key in MANY or key == "items"):
            yield from (((*pointer, key, i), sub) for i, sub in enumerate(cast("list[Any]", value)))
        elif isinstance(value, dict) and key in NAMED:
            yield from (((*pointer, key, name), sub) for name, sub in cast("Schema", value).items())
        elif key in ONE:
            yield (*pointer, key), value


def _referred(root: Schema, reference: str, seen: set[int]) -> list[tuple[Pointer, Any]]:
    try:
        pointer, target = follow(root, reference)
    except KeyError:
        return []
    return [] if id(target) in seen else [(pointer, target)]


def resolve(root: Schema, reference: str) -> Any:
    """What a local reference points at. KeyError when there is nothing."""
    return follow(root, reference)[1]


def follow(root: Schema, reference: str) -> tuple[Pointer, Any]:
    """Where a local reference leads, and what is there. KeyError when it leaves the schema or there is nothing."""
    from urllib.parse import unquote

    if reference != "#" and not reference.startswith("#/"):
        raise KeyError(reference)
    current: Any = root
    pointer: Pointer = ()
    for raw in reference.split("/")[1:]:
        part = unquote(raw).replace("~1", "/").replace("~0", "~")
        if isinstance(current, list):
            items = cast("list[Any]", current)
            if not part.isdigit() or int(part) >= len(items):
                raise KeyError(reference)
            current, pointer = items[int(part)], (*pointer, int(part))
        elif isinstance(current, dict) and part in current:
            current, pointer = cast("Schema", current)[part], (*pointer, part)
        else:
            raise KeyError(reference)
    return pointer, current


def anonymous(schema: Schema) -> Schema:
    """A copy in which nothing says by what name or version a part goes: jsonschema would switch to that version's
    validator, or resolve references against that name."""
    places = {id(part) for _, part in walk(schema)}

    def copy(value: Any) -> Any:
        if isinstance(value, list):
            return [copy(item) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        found = cast("Schema", value)
        dropped = ("$schema", "$id", "id") if id(found) in places else ()
        return {k: copy(v) for k, v in found.items() if k not in dropped}

    return copy(schema)


__all__ = ["MANY", "NAMED", "ONE", "Pointer", "Schema", "anonymous", "follow", "resolve", "walk"]

"""Checking JSON values against a schema, safely: no network, no backtracking regular expressions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

from sglspec.analysis import ecma
from sglspec.analysis.drafts import LATEST, draft_of, validator_class
from sglspec.analysis.formats import NUMBER_FORMATS, format_schema
from sglspec.analysis.grammar import Matcher, json_grammar, matches
from sglspec.analysis.subschemas import anonymous


def parse_json(text: str) -> Any:
    """Strict RFC 8259: no NaN, no duplicate keys, no numbers beyond what can be represented.

    Raises ValueError with a readable message.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_float, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not valid JSON: {_reason(error)}") from None
    except RecursionError:
        raise ValueError("this JSON is nested too deeply") from None


_REASONS = (
    ("Unterminated string", "the text that begins at character {at} is never closed"),
    ("Expecting value", "a value is missing at character {at}"),
    ("Expecting ',' delimiter", "a comma or a closing bracket is missing at character {at}"),
    ("Expecting ':' delimiter", "a colon is missing at character {at}"),
    ("Expecting property name", "a key in double quotes is missing at character {at}"),
    ("Extra data", "something stands behind the end of the value, at character {at}"),
    ("Invalid control character", "a line break or control character stands inside a text, at character {at}"),
    ("Invalid \\", "a backslash at character {at} begins no known escape"),
    ("Illegal trailing comma", "there is a comma too many at character {at}"),
)
"""What Python's reader says → what we say."""


def _reason(error: json.JSONDecodeError) -> str:
    at = error.pos + 1
    if error.pos >= len(error.doc.rstrip()) and not error.msg.startswith("Unterminated"):
        return "it ends too early"
    found = next((ours for theirs, ours in _REASONS if error.msg.startswith(theirs)), "it breaks off at character {at}")
    return found.format(at=at)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not valid JSON")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f"the key {json.dumps(key, ensure_ascii=False)} is there twice")
        out[key] = value
    return out


def validate(schema: dict[str, Any], value: Any) -> None:
    """Raises ValueError with the place and what is wrong. The schema has passed schemas.check_schema."""
    try:
        error = next(iter(_validator(schema).iter_errors(value)), None)
    except RecursionError:
        raise ValueError("this value is nested too deeply") from None
    if error is not None:
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
        where = f"at {place.removeprefix('.')}: " if place else ""
        message = str(error.message)
        raise ValueError(where + (message if len(message) <= 300 else message[:300] + "…"))


def text_matches(text: str, *, pattern: str | None = None, format: str | None = None) -> bool:
    """Whether a text holds a match of `pattern` and has the `format`, by the engine that generates under them."""
    return matches(_text_grammar(pattern, format), json.dumps(text, ensure_ascii=False))


def _text_grammar(pattern: str | None, format: str | None) -> str:
    schema: dict[str, Any] = {"type": "string"}
    if pattern is not None:
        schema["pattern"] = ecma.plain(pattern)
    if format is not None:
        schema["allOf"] = [format_schema(format)]
    return json_grammar(schema)


def _validator(schema: dict[str, Any]) -> Any:
    from jsonschema import Draft7Validator, ValidationError, validators
    from referencing import Registry

    @cache  # a value may have a thousand texts and keys, each for as many patterns
    def matcher(pattern: str | None, format: str | None) -> Matcher:
        return Matcher(_text_grammar(pattern, format))

    def fits(text: str, *, pattern: str | None = None, format: str | None = None) -> bool:
        return matcher(pattern, format).matches(json.dumps(text, ensure_ascii=False))

    def pattern(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not fits(instance, pattern=wanted):
            yield ValidationError(f"{json.dumps(instance, ensure_ascii=False)} does not match the pattern {wanted}")

    def format(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[Any]:
        if wanted in NUMBER_FORMATS:
            yield from validator.descend(instance, format_schema(wanted))
        elif isinstance(instance, str) and not fits(instance, format=wanted):
            yield ValidationError(f"{json.dumps(instance, ensure_ascii=False)} is not a {wanted}")

    def pattern_properties(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        for key, value in cast("dict[str, Any]", instance).items():
            for regex, subschema in wanted.items():
                if fits(key, pattern=regex):
                    yield from validator.descend(value, subschema, path=key, schema_path=regex)

    def additional(validator: Any, wanted: Any, instance: Any, parent: Any) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        declared = parent.get("properties", {})
        for key, value in cast("dict[str, Any]", instance).items():
            if key in declared or any(fits(key, pattern=p) for p in parent.get("patternProperties", {})):
                continue
            if wanted is False:
                yield ValidationError(f"the key {json.dumps(key, ensure_ascii=False)} is not allowed")
            else:
                yield from validator.descend(value, wanted, path=key)

    safe: dict[str, Any] = {
        "pattern": pattern, "format": format, "patternProperties": pattern_properties,
        "additionalProperties": additional,
        # later drafts split it in two, and we take it in all
        "dependencies": Draft7Validator.VALIDATORS["dependencies"],
    }  # fmt: skip
    base = validator_class(draft_of(schema) or LATEST)
    extend: Any = validators.extend  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    registry: Any = Registry  # pyright: ignore[reportUnknownVariableType]
    local = anonymous(schema)
    # an empty registry: without it jsonschema fetches references from the network and from disk
    return extend(base, safe)(local, registry=registry())


__all__ = ["parse_json", "text_matches", "validate"]

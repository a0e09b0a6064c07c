"""The versions of JSON Schema, and in what they differ for us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Draft:
    """A version. validator: its class in jsonschema. ref_alone: what stands beside `$ref` counts for nothing.
    boolean_bounds: `exclusiveMinimum: true` goes with `minimum`. contents: `contentEncoding` and `contentMediaType` are
    more than remarks."""

    validator: str
    ref_alone: bool = False
    boolean_bounds: bool = False
    contents: bool = False


LATEST = Draft("Draft202012Validator")
_DRAFTS = {
    "json-schema.org/draft-04/schema": Draft("Draft4Validator", ref_alone=True, boolean_bounds=True),
    "json-schema.org/draft-06/schema": Draft("Draft6Validator", ref_alone=True),
    "json-schema.org/draft-07/schema": Draft("Draft7Validator", ref_alone=True, contents=True),
    "json-schema.org/draft/2019-09/schema": Draft("Draft201909Validator"),
    "json-schema.org/draft/2020-12/schema": LATEST,
}
NAMES = "draft 4, 6, 7, 2019-09 and 2020-12"


def draft_of(schema: dict[str, Any]) -> Draft | None:
    """The version that a schema names, 2020-12 when it names none, None for one that we do not know."""
    named = schema.get("$schema")
    if named is None:
        return LATEST
    return _DRAFTS.get(str(named).rstrip("#").removeprefix("https://").removeprefix("http://"))


def validator_class(draft: Draft) -> Any:
    """jsonschema's validator for it."""
    import jsonschema

    return getattr(jsonschema, draft.validator)


__all__ = ["LATEST", "NAMES", "Draft", "draft_of", "validator_class"]

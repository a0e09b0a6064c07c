"""Lists whose items depend on each other, said in keywords that llguidance enforces: as the few lists that there are,
or by the place of the item that has to be there."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any, cast

MOST_LISTS = 70
"""Lists that are written out for `uniqueItems`."""
MOST_PLACES = 8
"""Places where an item of `contains` may stand."""
_REMARKS = frozenset({"title", "description", "default", "examples", "$comment"})
_WORDS: dict[str, list[Any]] = {"boolean": [True, False], "null": [None]}


def few_values(schema: Any) -> list[Any] | None:
    """The values of a schema that lists them, without repetition; None where it does not."""
    if not isinstance(schema, dict):
        return None
    keys = {key: value for key, value in cast("dict[str, Any]", schema).items() if key not in _REMARKS}
    values: Any = None
    if set(keys) <= {"type", "enum"} and "enum" in keys:
        values = keys["enum"]
    elif set(keys) <= {"type", "const"} and "const" in keys:
        values = [keys["const"]]
    elif set(keys) == {"type"} and isinstance(keys["type"], str):
        values = _WORDS.get(keys["type"])
    if values is None:
        return None
    found = {json.dumps(value, sort_keys=True): value for value in values}
    # 1 and 1.0 are one value, and so are lists of them: those are left alone
    return list(found.values()) if all(value is None or isinstance(value, (str, bool)) for value in values) else None


def without_repetition(values: list[Any], least: int, most: int) -> list[list[Any]] | None:
    """All lists of `least` to `most` different values, in every order; None if there are too many."""
    most = min(most, len(values))
    count, ways = 0, 1
    for length in range(most + 1):
        count += ways if length >= least else 0
        ways *= len(values) - length
        if count > MOST_LISTS:
            return None
    return [list(one) for length in range(least, most + 1) for one in permutations(values, length)]


def with_one(item: Any, most: int) -> list[dict[str, Any]] | None:
    """Lists of up to `most` items one of which fits `item`, by its place; None if there are too many."""
    if most > MOST_PLACES:
        return None
    return [{"type": "array", "prefixItems": [*[True] * i, item], "minItems": i + 1} for i in range(most)]

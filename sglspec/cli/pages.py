"""Lists of a server, which come in pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sglspec.cli.refusal import mapping
from sglspec.cli.remote import Remote

_PAGE = 100


def entries(
    place: Remote, address: str, query: Mapping[str, str | None], most: int | None = None
) -> list[dict[str, Any]]:
    """The entries, `most` of them at most, all without it. Raises Refused."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while most is None or len(found) < most:
        limit = _PAGE if most is None else min(_PAGE, most - len(found))
        page = place.json("GET", address, {**query, "limit": str(limit), "after": after})
        data = page.get("data")
        found += [mapping(face) for face in cast("list[Any]", data)] if isinstance(data, list) else []
        next = page.get("next")
        if not isinstance(next, str) or next == after or not data:
            break
        after = next
    return found[:most]

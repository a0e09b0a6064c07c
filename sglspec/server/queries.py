"""Values in the query of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from sglspec.server.problems import Problem, clip

MOST = 100
"""Entries of a page."""


def whole(request: Request, name: str, least: int, most: int, default: int | None = None) -> int:
    """A whole number; the default, or the least, where it is missing. Raises Problem (400)."""
    text = request.query_params.get(name)
    if text is None:
        return least if default is None else default
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 16 and least <= int(text) <= most:
        return int(text)
    raise Problem(400, "invalid-request", f"`{name}` is a whole number from {least} to {most}.")


def check_query(request: Request, operation: Mapping[str, Any]) -> None:
    """Every key of the query is one that the operation describes, and lists alone come more than once. What stands
    beside a body is described there if anywhere. Raises Problem (400)."""
    described = [one for one in operation.get("parameters", ()) if one["in"] == "query"]
    lists = {one["name"]: one["schema"].get("type") == "array" for one in described}
    keys = [key for key, _ in request.query_params.multi_items()]
    for key in keys:
        if key not in lists and (described or request.method != "POST"):
            raise Problem(400, "invalid-request", f"This address takes no `{clip(key, 40)}` in its query.")
        if keys.count(key) > 1 and not lists.get(key, False):
            raise Problem(400, "invalid-request", f"`{clip(key, 40)}` is in the query more than once.")


def cursor(request: Request, default: str, form: re.Pattern[str]) -> tuple[int, str]:
    """`limit` and `after` of a page; `after` has this form. Raises Problem (400)."""
    after = request.query_params.get("after", default)
    if after != default and not form.fullmatch(after):
        raise Problem(400, "invalid-request", "`after` is what `next` said on the page before.")
    return whole(request, "limit", 1, MOST, 20), after


def flag(request: Request, name: str) -> bool:
    """Raises Problem (400)."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise Problem(400, "invalid-request", f"`{name}` is true or false.")
    return text == "true"


__all__ = ["MOST", "check_query", "cursor", "flag", "whole"]

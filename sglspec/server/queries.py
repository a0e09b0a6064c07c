"""Values in the query of a request."""

from __future__ import annotations

from starlette.requests import Request

from sglspec.server.problems import Problem

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


def cursor(request: Request, default: str) -> tuple[int, str]:
    """`limit` and `after` of a page. Raises Problem (400)."""
    after = request.query_params.get("after", default)
    if len(after) > 80 or not after.isascii() or not after.isprintable():
        raise Problem(400, "invalid-request", "`after` is what `next` said on the page before.")
    return whole(request, "limit", 1, MOST, 20), after


def flag(request: Request, name: str) -> bool:
    """Raises Problem (400)."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise Problem(400, "invalid-request", f"`{name}` is true or false.")
    return text == "true"


__all__ = ["MOST", "cursor", "flag", "whole"]

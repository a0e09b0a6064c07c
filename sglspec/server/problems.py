"""Errors as `application/problem+json` (RFC 9457): small, with diagnostics, never with the input in them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from starlette.responses import Response

from sglspec.diagnostics import Diagnostic
from sglspec.server.logs import request_id

MAX_ERRORS = 20
MAX_ERROR_BYTES = 15_000
"""What the list of errors may take, so that a whole problem stays under 16 KB."""

_MAX_TEXT = 400
_MAX_RELATED = 3

TITLES = {
    "invalid-request": "The request cannot be read",
    "invalid-program": "The program has errors",
    "invalid-inputs": "The inputs do not fit the program",
    "unauthorized": "This needs a key",
    "forbidden": "The key may not do this",
    "rate-limited": "Too many requests",
    "too-many-runs": "Too many runs of this key at once",
    "forbidden-origin": "Pages of other sites may not post here",
    "not-found": "There is nothing at this address",
    "method-not-allowed": "This address does not take this method",
    "timeout": "The request took too long to come",
    "too-large": "The request is too large",
    "unsupported-media-type": "The body is neither JSON nor YAML",
    "misdirected": "This server does not answer to this name",
    "too-many-headers": "The request has too many headers, or too large ones",
    "internal": "A fault in sglspec",
    "backend-unavailable": "The model cannot be used",
    "backend-loading": "The model is not loaded yet",
    "engine-ended": "The engine has ended",
    "engine-stalled": "The engine is stuck",
    "busy": "Too many runs at once",
    "stopping": "The server is stopping",
    "archived": "The program is archived and takes no more runs",
    "changed": "It was changed meanwhile",
    "idempotency-mismatch": "This Idempotency-Key came with another request before",
    "no-name": "The program has no name to be stored under",
    "no-trace": "The tokens of this run were not kept",
    "not-ended": "The run has not ended yet",
    "storage-unavailable": "The store cannot be used",
}


class Problem(Exception):
    """An answer that is an error. `code` is a key of TITLES; `errors` are the diagnostics behind it."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str | None = None,
        errors: Iterable[Diagnostic] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail or TITLES[code])
        self.status = status
        self.code = code
        self.errors = tuple(errors)
        self.detail = detail if detail is not None else _summary(self.errors)
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The answer on the wire."""
        body: dict[str, Any] = {
            "type": f"urn:sglspec:problem:{self.code}",
            "title": TITLES[self.code],
            "status": self.status,
            "code": self.code,
        }
        if id := request_id.get():
            body["request_id"] = id
        if self.detail is not None:
            body["detail"] = clip(self.detail)
        if self.errors:
            body["errors"], omitted = faces(self.errors, MAX_ERRORS, MAX_ERROR_BYTES)
            if omitted:
                body["errors_omitted"] = omitted
        headers = {"Cache-Control": "no-store", **self.headers}
        return Response(to_json(body), self.status, headers, media_type="application/problem+json")


def faces(diagnostics: Iterable[Diagnostic], most: int, most_bytes: int) -> tuple[list[dict[str, Any]], int]:
    """The first diagnostics as JSON objects with their texts cut to a sane length, and how many were left out."""
    items = list(diagnostics)
    out: list[dict[str, Any]] = []
    size = 0
    for item in items[:most]:
        face = _short(item).as_dict()
        size += len(to_json(face)) + 1
        if size > most_bytes:
            break
        out.append(face)
    return out, len(items) - len(out)


def clip(text: str, most: int = _MAX_TEXT) -> str:
    """At most `most` characters: a key or a value of the input may be quoted in a message, a megabyte of it not."""
    return text if len(text) <= most else text[: most - 1] + "…"


def to_json(value: Any) -> bytes:
    """JSON that every reader takes: UTF-8, half surrogates as escapes, numbers that JSON lacks as null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return to_json(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _short(item: Diagnostic) -> Diagnostic:
    return replace(
        item,
        message=clip(item.message),
        help=None if item.help is None else clip(item.help),
        pointer=clip(item.pointer),
        related=tuple(replace(r, message=clip(r.message)) for r in item.related[:_MAX_RELATED]),
    )


def _summary(errors: tuple[Diagnostic, ...]) -> str | None:
    if not errors:
        return None
    first = errors[0]
    place = "" if first.range is None else f"line {first.range.start.line}, column {first.range.start.column}: "
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return clip(place + first.message, _MAX_TEXT - len(more)) + more


__all__ = ["MAX_ERRORS", "TITLES", "Problem", "clip", "faces", "to_json"]

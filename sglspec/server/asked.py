"""What the headers of a request ask for: how to answer, by when, and whether it came before."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from starlette.requests import Request

from sglspec.server.body import Raw
from sglspec.server.problems import Problem
from sglspec.server.storage.runs import Once

View = Literal["sync", "stream", "async"]
MAX_WAIT = 300.0
"""Seconds. What is asked beyond that is answered as if this were asked."""
_FAR = 2.0**33
"""A moment that every calendar can write."""
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
_KEY = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,254}")


@dataclass(frozen=True, slots=True)
class Asked:
    """view: of the run; wait: seconds that an answer may take before it is 202, None for as long as it takes; deadline:
    seconds since 1970; once: where an `Idempotency-Key` came."""

    view: View
    wait: float | None
    deadline: float | None
    once: Once | None


def asked(request: Request, raw: Raw) -> Asked:
    """Raises Problem (400) for headers that cannot be read."""
    preferences = _preferences(request)
    wait = None if "wait" not in preferences else _seconds(preferences["wait"] or "", "Prefer: wait")
    if "respond-async" in preferences:
        wait = wait or 0.0
    view: View = "sync" if wait is None else "async"
    if wants_events(request.headers.get("accept", "")):
        view = "stream"
    return Asked(view, None if wait is None else min(wait, MAX_WAIT), _deadline(request), _once(request, raw))


def waits(request: Request) -> float:
    """Seconds that an answer about a run may wait for its end."""
    preferences = _preferences(request)
    return min(_seconds(preferences["wait"] or "", "Prefer: wait"), MAX_WAIT) if "wait" in preferences else 0.0


def wants_events(accept: str) -> bool:
    """Whether `text/event-stream` is preferred to JSON: the higher q, or the one named first."""
    ranks: dict[str, float] = {}
    for item in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in item.split(";"))
        quality = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        ranks.setdefault(kind, float(quality) if _is_number(quality) else 0.0)
    json_rank = max(ranks.get("application/json", 0.0), ranks.get("*/*", 0.0) if len(ranks) == 1 else 0.0)
    kinds = list(ranks)
    events_rank = ranks.get("text/event-stream", 0.0)
    if events_rank == json_rank and events_rank > 0:
        return kinds.index("text/event-stream") < kinds.index("application/json")
    return events_rank > json_rank


def principal(request: Request) -> str:
    """Who asks: the id of the key, empty while there are no keys."""
    return str(getattr(request.state, "principal", ""))


def _preferences(request: Request) -> dict[str, str | None]:
    """`Prefer` (RFC 7240): names with their values."""
    found: dict[str, str | None] = {}
    for header in request.headers.getlist("prefer"):
        for item in header.split(","):
            name, equals, value = item.partition(";")[0].partition("=")
            found.setdefault(name.strip().lower(), value.strip().strip('"') if equals else None)
    return found


def _deadline(request: Request) -> float | None:
    """The earlier one of `Run-Deadline` (a time, or seconds from now) and `Cancel-After` (seconds, or `30s`, `5m`)."""
    found: list[float] = []
    if (text := request.headers.get("run-deadline")) is not None:
        found.append(_moment(text))
    if (text := request.headers.get("cancel-after")) is not None:
        found.append(time.time() + _seconds(text, "Cancel-After"))
    return min(max(min(found), 0.0), _FAR) if found else None


def _moment(text: str) -> float:
    if _DURATION.fullmatch(text):
        return time.time() + _seconds(text, "Run-Deadline")
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.timestamp()
    except (ValueError, OverflowError):
        pass
    detail = "`Run-Deadline` is a time with its zone, like 2030-01-31T12:00:00Z, or seconds from now."
    raise Problem(400, "invalid-request", detail)


def _seconds(text: str, header: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise Problem(400, "invalid-request", f"`{header}` takes seconds, or a time like 30s, 5m or 1h.")
    return float(match[1]) * _UNITS[match[2]]


def _once(request: Request, raw: Raw) -> Once | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise Problem(400, "invalid-request", "`Idempotency-Key` is 1 to 255 printable ASCII characters.")
    scope = hashlib.sha256(f"{principal(request)}\n{request.method} {request.url.path}".encode()).hexdigest()
    query = "\n".join(f"{name}={value}" for name, value in sorted(raw.query.items()))
    fingerprint = hashlib.sha256(raw.kind.encode() + b"\n" + query.encode() + b"\n" + raw.data).hexdigest()
    return Once(scope, key, fingerprint)


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


__all__ = ["MAX_WAIT", "Asked", "View", "asked", "principal", "waits", "wants_events"]

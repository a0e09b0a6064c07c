"""The server's log on standard error, as text or JSON. No bodies, no addresses as clients wrote them, no keys."""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
from contextvars import ContextVar
from typing import Any, Literal

Format = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]

request_id: ContextVar[str] = ContextVar("sglspec_request_id", default="")
"""Of the request that is answered, or that began what is going on."""

_GIVEN_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_KEY = re.compile(r"(sgs_[0-9a-f]{12}_)[0-9a-f]+")
_LOGGERS = ("sglspec", "uvicorn")


def configure(format: Format, level: Level) -> None:
    """Send what the server has to say to standard error, as it is now."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())


def request_id_for(given: str | None) -> str:
    """The client's own, where it is one that can stand in a log; else a new one."""
    return given if given is not None and _GIVEN_ID.fullmatch(given) else f"req_{secrets.token_hex(8)}"


def without_keys(text: str) -> str:
    """A text with its keys cut down to their ids."""
    return _KEY.sub(r"\1***", text)


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        face: dict[str, Any] = {
            "time": _moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            face["exception"] = self.formatException(record.exc_info)
        return without_keys(json.dumps(face, ensure_ascii=True, default=str))


class TextLines(logging.Formatter):
    """One line for one entry, the fields at its end, and below it where an exception came from."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = f"{_moment(record.created)} {record.levelname} {record.name}: {record.getMessage()}{fields}"
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return without_keys(line)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = dict(getattr(record, "fields", {}))
    if (id := request_id.get()) and "request_id" not in found:
        found["request_id"] = id
    return found


def _moment(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


__all__ = ["Format", "JsonLines", "Level", "TextLines", "configure", "request_id", "request_id_for", "without_keys"]

"""What a server answers when it refuses, as diagnostics and an exit code. Nothing in it is trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from sglspec.cli.complain import Refused
from sglspec.cli.exits import LIMIT, NO, UNAVAILABLE, USAGE
from sglspec.cli.streams import note, printable
from sglspec.diagnostics import MAX_REPORTED, Diagnostic, Position, Range, Related

_HELP = {
    401: "Name a file with the key with `--api-key-file`, or set SGLSPEC_API_KEY.",
    403: "Ask for a key with the scope that this needs: see `sglspec keys create`.",
    421: "The server has to be started with `--allow-host` and this name.",
}


def refusal(status: int, body: bytes, location: str | None = None, names: Mapping[str, str] | None = None) -> Refused:
    """names: of the files that were sent, as for `diagnostics`."""
    if 300 <= status < 400:
        place = f" ({printable(location)[:200]})" if location else ""
        message = f"The server answers {status}: what was asked for is elsewhere{place}. Redirects are not followed."
        return refused(USAGE, message, "Give the server's own address with `--server`.")
    face = mapping(read_json(body))
    title = face.get("title")
    if not isinstance(title, str):
        return refused(_exit(status, ""), f"The server answers {status}, and not as a server of sglspec does.")
    code = _exit(status, str(face.get("code")))
    if errors := diagnostics(face.get("errors"), names):
        if isinstance(more := face.get("errors_omitted"), int):
            note(f"sglspec: the server does not list {more} more")
        return Refused(code, errors)
    detail = face.get("detail")
    message = f"{title}." if not isinstance(detail, str) else f"{title}. {detail}"
    request = face.get("request_id")
    log = f"The server's log has it as request {request}." if status >= 500 and isinstance(request, str) else None
    return refused(code, f"The server answers {status}. {message}", _HELP.get(status, log))


def refused(code: int, message: str, help: str | None = None) -> Refused:
    return Refused(code, [Diagnostic("S614", message, help=help)])


def diagnostics(faces: Any, names: Mapping[str, str] | None) -> list[Diagnostic]:
    """Diagnostics as a server writes them. names: what the files that were sent are called here, by what the server
    calls them; the program itself is `spec`."""
    items = cast("list[Any]", faces)[:MAX_REPORTED] if isinstance(faces, list) else []
    return [_diagnostic(cast("dict[str, Any]", face), names or {}) for face in items if isinstance(face, dict)]


def read_json(body: bytes) -> Any:
    """None for what is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def mapping(value: Any) -> dict[str, Any]:
    """An empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _exit(status: int, code: str) -> int:
    if code == "invalid-program":
        return NO
    if status == 429:
        return LIMIT
    return UNAVAILABLE if status >= 500 or status == 408 else USAGE


def _diagnostic(face: dict[str, Any], names: Mapping[str, str]) -> Diagnostic:
    code = _text(face.get("code"))
    return Diagnostic(
        code if re.fullmatch("[SW][0-9]{3}", code) else "S614",
        _text(face.get("message")),
        "warning" if face.get("severity") == "warning" else "error",
        _file(face.get("file"), names),
        _range(face.get("range")),
        _text(face.get("pointer")),
        _text(face.get("help")) or None,
        tuple(_related(face.get("related"), names)),
        _text(face.get("cause")) or None,
    )


def _related(faces: Any, names: Mapping[str, str]) -> list[Related]:
    found: list[Related] = []
    for item in cast("list[Any]", faces) if isinstance(faces, list) else []:
        face = mapping(item)
        if (place := _range(face.get("range"))) is not None:
            name = _file(face["file"], names) if "file" in face else None
            found.append(Related(_text(face.get("message")), place, name))
    return found


def _file(name: Any, names: Mapping[str, str]) -> str | None:
    """One that was sent, or what the server calls it."""
    return names.get("spec") if name is None else names.get(_text(name), _text(name))


def _range(face: Any) -> Range | None:
    start, end = (_position(mapping(face).get(side)) for side in ("start", "end"))
    return None if start is None or end is None else Range(start, end)


def _position(face: Any) -> Position | None:
    line, column = (mapping(face).get(name) for name in ("line", "column"))
    if type(line) is int and type(column) is int and 0 < line < 10**9 and 0 < column < 10**9:
        return Position(line, column)
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

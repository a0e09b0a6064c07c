"""From a request to a program's source and its inputs. Nothing here trusts the sender."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from starlette.requests import Request

from sglspec.diagnostics import Diagnostic, Report, sentence
from sglspec.document.bounds import MAX_BYTES
from sglspec.document.json import read_json
from sglspec.document.nodes import Mapping, Node, Scalar, Source, to_python
from sglspec.document.read import source_from_text
from sglspec.server.problems import Problem

MAX_BODY = 2 * MAX_BYTES
"""A program of full size, and as much again for its inputs and what JSON's escapes add."""

_MAX_DISCARDED = 8 * MAX_BODY
"""So much of a body that is too large is still taken in: a client that is cut off while it sends sees no answer."""

QUERY = ("inputs", "seed")
"""What a YAML body, which is all program, takes from the address instead."""

JSON_TYPES = ("application/json",)
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
KEYS = ("spec", "inputs", "seed")


@dataclass(frozen=True, slots=True)
class Posted:
    """What a client sent: `source` is the program, unread; `seed` is None for a random one."""

    source: Source
    inputs: dict[str, Any]
    seed: int | None


@dataclass(frozen=True, slots=True)
class Raw:
    """A whole body, not looked at yet."""

    data: bytes
    kind: str
    query: MappingABC[str, str]


async def receive_body(request: Request) -> Raw:
    """Take the body in. Raises Problem: 415 for a wrong type, 413 for one that is too large."""
    kind = _media_type(request)
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > _MAX_DISCARDED:
        raise _too_large()
    data, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_BODY:
            data += chunk
        elif size > _MAX_DISCARDED:
            break
    if size > MAX_BODY:
        raise _too_large()
    return Raw(bytes(data), kind, request.query_params)


def read_posted(raw: Raw) -> Posted:
    """Read a body. Raises Problem (400) for one that is not as described, SpecError for an unreadable program."""
    _check_query(raw)
    if raw.kind in YAML_TYPES:
        inputs = _inputs_text(raw.query.get("inputs"))
        seed = raw.query.get("seed")
        return Posted(source_from_text(raw.data, "spec", "yaml"), inputs, None if seed is None else _seed(seed, None))
    source = _text(raw.data)
    root = _json(source)
    if not isinstance(root, Mapping):
        raise _wrong(source, root, "the body is an object with `spec`, and maybe `inputs` and `seed`")
    _check_keys(source, root)
    spec, inputs, seed = root.get("spec"), root.get("inputs"), root.get("seed")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise _wrong(source, inputs, "`inputs` is an object of input names and values", "/inputs")
    return Posted(
        _program(source, spec),
        {} if inputs is None else to_python(inputs),
        None if seed is None or _is_null(seed) else _seed(seed.text if isinstance(seed, Scalar) else "", source, seed),
    )


def _media_type(request: Request) -> str:
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    charset = parameters.lower().replace(" ", "").replace('"', "").partition("charset=")[2].partition(";")[0]
    if kind not in JSON_TYPES + YAML_TYPES or charset not in ("", "utf-8", "utf8"):
        raise Problem(415, "unsupported-media-type", "Send `application/json` or `application/yaml`, in UTF-8.")
    return kind


def _text(data: bytes) -> Source:
    try:
        return Source("body", data.decode("utf-8-sig"), "json")
    except UnicodeDecodeError as error:
        detail = f"The body is not UTF-8: byte {error.start} cannot stand there."
        raise Problem(400, "invalid-request", detail) from None


def _json(source: Source) -> Node:
    """Strict JSON with places: no NaN, no duplicate keys, no half surrogates, no numbers that do not fit."""
    report = Report()
    root = read_json(source, report)
    if root is None:
        raise Problem(400, "invalid-request", errors=report.sorted())
    return root


def _check_query(raw: Raw) -> None:
    if raw.kind in JSON_TYPES and raw.query:
        raise Problem(400, "invalid-request", "With a JSON body the query is empty: the body holds everything.")
    if any(key not in QUERY for key in raw.query):
        raise Problem(400, "invalid-request", "With a YAML body the query may hold `inputs` (JSON) and `seed`.")


def _check_keys(source: Source, root: Mapping) -> None:
    for entry in root.entries:
        key = entry.key.text
        if key not in KEYS:
            close = get_close_matches(key, KEYS, 1)
            help = f"Did you mean `{close[0]}`?" if close else "Known here: spec, inputs, seed."
            if key == "sglspec":
                help = 'Put the program under `spec`: {"spec": {"sglspec": …}, "inputs": {…}}.'
            raise _wrong(source, entry.key, f"the body has no key `{key}`", help=help, code="S201")
    if root.get("spec") is None:
        raise _wrong(source, root, "`spec` is missing", help="It holds the program: a text or an object.", code="S202")


def _program(body: Source, spec: Node | None) -> Source:
    """The program's source. An object is taken as it stands in the body, padded so that lines and columns are the
    body's; only where padding would make it too large do they count from the object itself (file `spec`)."""
    if isinstance(spec, Scalar) and isinstance(spec.value, str):
        return source_from_text(spec.value, "spec", "json" if _is_json(spec.value) else "yaml")
    if not isinstance(spec, Mapping):
        raise _wrong(body, spec, "`spec` is a program: a text with a YAML document, or an object", "/spec")
    start = spec.range.start
    text = body.text[body.offset(start) : body.offset(spec.range.end)]
    padding = "\n" * (start.line - 1) + " " * (start.column - 1)
    if len(padding) + len(text.encode()) > MAX_BYTES:
        return source_from_text(text, "spec", "json")
    return source_from_text(padding + text, body.name, "json")


def _is_json(text: str) -> bool:
    """Whether a text is a whole JSON document. YAML readers do not take all of JSON (pairs of surrogate escapes)."""
    return text.lstrip(" \t\r\n").startswith("{") and read_json(Source("spec", text, "json"), Report()) is not None


def _inputs_text(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    source = Source("inputs", text, "json")
    root = _json(source)
    if not isinstance(root, Mapping):
        raise _wrong(source, root, "`inputs` is a JSON object of input names and values")
    return to_python(root)


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _seed(text: str, source: Source | None, node: Node | None = None) -> int:
    """A seed; a text of digits is one too, because 64 bits do not fit into every reader's numbers."""
    if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 2**64:
        return int(text)
    message = "`seed` is a whole number from 0 to 2^64 - 1"
    help = "From 2^53 on, write it as a text."
    if source is None:
        raise Problem(400, "invalid-request", f"{message}.")
    raise _wrong(source, node, message, "/seed", help=help)


def _wrong(
    source: Source, node: Node | None, message: str, pointer: str = "", help: str | None = None, code: str = "S203"
) -> Problem:
    place = None if node is None else node.range
    fault = Diagnostic(code, sentence(message), file=source.name, range=place, pointer=pointer, help=help)
    return Problem(400, "invalid-request", errors=[fault])


def _too_large() -> Problem:
    # the rest of the body may not have been read, so the connection cannot be used again
    return Problem(413, "too-large", f"The limit is {MAX_BODY:,} bytes.", headers={"Connection": "close"})


__all__ = ["MAX_BODY", "Posted", "Raw", "read_posted", "receive_body"]

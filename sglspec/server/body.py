"""From a request to a program's source and its inputs. Nothing here trusts the sender."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from starlette.requests import Request

from sglspec.diagnostics import Diagnostic, Report, sentence
from sglspec.document.bounds import MAX_BYTES
from sglspec.document.files import MAX_FILES, PathFault, check_key
from sglspec.document.json import read_json
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence, Source, to_python
from sglspec.document.read import source_from_text
from sglspec.server.problems import Problem
from sglspec.server.storage.programs import DIGEST, Document

MAX_BODY = 2 * MAX_BYTES
"""A program of full size, and as much again for its inputs and what JSON's escapes add."""

_MAX_DISCARDED = 8 * MAX_BODY
"""So much of a body that is too large is still taken in: a client that is cut off while it sends sees no answer."""

QUERY = ("inputs", "seed", "trace", "detach")
"""What a YAML body, which is all program, takes from the address instead."""

JSON_TYPES = ("application/json",)
JSONL_TYPES = ("application/jsonl", "application/x-ndjson", "application/x-jsonlines")
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
BUNDLE = ("spec", "files")
KEYS = (*BUNDLE, *QUERY)
_NAMED = ("application/json", "application/yaml", "application/jsonl")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is started with. seed: None for a random one; trace: whether its tokens are kept; detach: whether it
    goes on when its client leaves, None where the request does not say."""

    inputs: dict[str, Any]
    seed: int | None = None
    trace: bool = False
    detach: bool | None = None


@dataclass(frozen=True, slots=True)
class Posted:
    """What a client sent: `source` is the program, unread; files: texts by path from its folder."""

    source: Source
    settings: Settings
    files: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """rows: None where they come as lines."""

    program: str
    seed: int | None
    rows: list[dict[str, Any]] | None


@dataclass(frozen=True, slots=True)
class Raw:
    """A whole body, not looked at yet. kind: its media type, empty for a request without body."""

    data: bytes
    kind: str
    query: MappingABC[str, str]


async def receive_body(
    request: Request, types: tuple[str, ...] = JSON_TYPES + YAML_TYPES, most: int = MAX_BODY, *, optional: bool = False
) -> Raw:
    """Take the body in. optional: there may be none, and then no type either.

    Raises Problem: 415 for a wrong type or a body that is packed, 413 for one that is too large.
    """
    kind = "" if optional and not request.headers.get("content-type") else _media_type(request, types)
    announced = request.headers.get("content-length", "")
    discarded = max(_MAX_DISCARDED, most)
    if announced.isdigit() and int(announced) > discarded:
        raise _too_large(most)
    data, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            data += chunk
        elif size > discarded:
            break
    if size > most:
        raise _too_large(most)
    if data and request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        detail = "Send the body as it is, without `Content-Encoding`."
        raise Problem(415, "unsupported-media-type", detail, headers={"Accept-Encoding": "identity"})
    if data and not kind:
        _media_type(request, types)
    return Raw(bytes(data), kind, request.query_params)


def read_posted(raw: Raw) -> Posted:
    """A program with what it is run with. Raises Problem (400) for a body that is not as described, SpecError for an
    unreadable program."""
    if raw.kind in YAML_TYPES:
        settings = _from_query(raw.query)
        return Posted(source_from_text(raw.data, "spec", "yaml"), settings)
    source, root = _object(raw, KEYS)
    if root.get("spec") is None:
        raise _wrong(source, root, "`spec` is missing", help="It holds the program: a text or an object.", code="S202")
    return Posted(_program(source, root.get("spec")), _settings(source, root), _files(source, root))


def read_settings(raw: Raw) -> Settings:
    """What a stored program is run with. Raises Problem (400)."""
    if not raw.data:
        return _from_query(raw.query)
    return _settings(*_object(raw, QUERY))


def read_program(raw: Raw) -> tuple[Source, Document]:
    """A program to store, unread: the body itself, or as JSON an object of the program and its files.

    Raises Problem (400) for such an object that is not as described, SpecError for an unreadable program."""
    if raw.kind in YAML_TYPES:
        return source_from_text(raw.data, "spec", "yaml"), Document.of(raw.data, "yaml")
    body = _bundle(raw.data)
    if body is None:
        return source_from_text(raw.data, "spec", "json"), Document.of(raw.data, "json")
    _check_keys(*body, BUNDLE)
    spec = body[1].get("spec")
    program = _program(body[0], spec)
    text = spec.value if isinstance(spec, Scalar) and isinstance(spec.value, str) else program.text.lstrip()
    return program, Document.of(text.encode("utf-8", "surrogatepass"), program.format, _files(*body))


def _bundle(data: bytes) -> tuple[Source, Mapping] | None:
    """A body that is an object with `spec`, and so no program."""
    try:
        source = Source("body", data.decode("utf-8-sig"), "json")
    except UnicodeDecodeError:
        return None
    root = read_json(source, Report())
    return (source, root) if isinstance(root, Mapping) and root.entry("spec") and not root.entry("sglspec") else None


def read_alias(raw: Raw) -> str:
    """The version that an alias shall mean: a number, or a digest. Raises Problem (400)."""
    source, root = _object(raw, ("version",))
    version = root.get("version")
    text = version.text if isinstance(version, Scalar) else ""
    if isinstance(version, Scalar) and isinstance(version.value, int) and 0 < len(text) <= 9 and text.isdigit():
        return text
    if isinstance(version, Scalar) and isinstance(version.value, str) and DIGEST.fullmatch(text):
        return text
    raise _wrong(source, version or root, "`version` is the number or the digest of a version", "/version")


def read_batch(raw: Raw) -> BatchSettings:
    """A batch as one JSON object. Raises Problem (400)."""
    source, root = _object(raw, ("program", "rows", "seed"))
    program, rows, seed = root.get("program"), root.get("rows"), root.get("seed")
    if not isinstance(program, Scalar) or not isinstance(program.value, str):
        raise _wrong(source, program or root, "`program` is the name of a stored program", "/program")
    if not isinstance(rows, Sequence) or not all(isinstance(item, Mapping) for item in rows.items):
        raise _wrong(source, rows or root, "`rows` is a list of objects: inputs by name", "/rows")
    number = (
        None if seed is None or _is_null(seed) else _seed(seed.text if isinstance(seed, Scalar) else "", source, seed)
    )
    return BatchSettings(program.value, number, to_python(rows))


def read_batch_query(raw: Raw) -> BatchSettings:
    """What stands beside rows that come as lines. Raises Problem (400)."""
    if any(key not in ("program", "seed") for key in raw.query) or "program" not in raw.query:
        raise Problem(400, "invalid-request", "The query holds `program`, and may hold `seed`.")
    seed = raw.query.get("seed")
    return BatchSettings(raw.query["program"], None if seed is None else _seed(seed, None), None)


def _object(raw: Raw, keys: tuple[str, ...]) -> tuple[Source, Mapping]:
    """The body as an object with some of these keys."""
    if raw.query:
        raise Problem(400, "invalid-request", "With a JSON body the query is empty: the body holds everything.")
    source = _text(raw.data)
    root = _json(source)
    if not isinstance(root, Mapping):
        known = ", ".join(f"`{key}`" for key in keys)
        raise _wrong(source, root, f"the body is an object with {known}")
    _check_keys(source, root, keys)
    return source, root


def _settings(source: Source, root: Mapping) -> Settings:
    inputs, seed = root.get("inputs"), root.get("seed")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise _wrong(source, inputs, "`inputs` is an object of input names and values", "/inputs")
    return Settings(
        {} if inputs is None else to_python(inputs),
        None if seed is None or _is_null(seed) else _seed(seed.text if isinstance(seed, Scalar) else "", source, seed),
        _flag(source, root, "trace") or False,
        _flag(source, root, "detach"),
    )


def _files(source: Source, root: Mapping) -> dict[str, str]:
    """The files that a program brings with it."""
    node = root.get("files")
    if node is None or _is_null(node):
        return {}
    if not isinstance(node, Mapping):
        raise _wrong(source, node, "`files` is an object of texts by path", "/files")
    if len(node.entries) > MAX_FILES:
        raise _wrong(source, node, f"a program may have {MAX_FILES} files", "/files", code="S109")
    files: dict[str, str] = {}
    for entry in node.entries:
        text = entry.value
        if not isinstance(text, Scalar) or not isinstance(text.value, str):
            raise _wrong(source, text, "a file is a text", "/files")
        try:
            path = check_key(entry.key.text)
        except PathFault as fault:
            raise _wrong(source, entry.key, fault.message, "/files", fault.help, fault.code) from None
        if path in files:
            raise _wrong(source, entry.key, "this file is there twice", "/files", code="S120")
        files[path] = text.value
    return files


def _flag(source: Source, root: Mapping, key: str) -> bool | None:
    node = root.get(key)
    if node is None or _is_null(node):
        return None
    if not isinstance(node, Scalar) or not isinstance(node.value, bool):
        raise _wrong(source, node, f"`{key}` is true or false", f"/{key}")
    return node.value


def _from_query(query: MappingABC[str, str]) -> Settings:
    if any(key not in QUERY for key in query):
        known = "`inputs` (JSON), `seed`, `trace` and `detach`"
        raise Problem(400, "invalid-request", f"The query may hold {known}.")
    seed = query.get("seed")
    flags: dict[str, bool | None] = {}
    for key in ("trace", "detach"):
        text = query.get(key)
        if text not in (None, "true", "false"):
            raise Problem(400, "invalid-request", f"`{key}` is true or false.")
        flags[key] = None if text is None else text == "true"
    number = None if seed is None else _seed(seed, None)
    return Settings(_inputs_text(query.get("inputs")), number, flags["trace"] or False, flags["detach"])


def _media_type(request: Request, types: tuple[str, ...]) -> str:
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    charset = parameters.lower().replace(" ", "").replace('"', "").partition("charset=")[2].partition(";")[0]
    if kind not in types or charset not in ("", "utf-8", "utf8"):
        wanted = " or ".join(f"`{name}`" for name in types if name in _NAMED)
        raise Problem(415, "unsupported-media-type", f"Send {wanted}, in UTF-8.")
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


def _check_keys(source: Source, root: Mapping, keys: tuple[str, ...]) -> None:
    for entry in root.entries:
        key = entry.key.text
        if key not in keys:
            close = get_close_matches(key, keys, 1)
            help = f"Did you mean `{close[0]}`?" if close else f"Known here: {', '.join(keys)}."
            if key == "sglspec":
                help = 'Put the program under `spec`: {"spec": {"sglspec": …}, "inputs": {…}}.'
            raise _wrong(source, entry.key, f"the body has no key `{key}`", help=help, code="S201")


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


def _too_large(most: int) -> Problem:
    # the rest of the body may not have been read, so the connection cannot be used again
    return Problem(413, "too-large", f"The limit is {most:,} bytes.", headers={"Connection": "close"})


__all__ = [
    "JSONL_TYPES",
    "JSON_TYPES",
    "MAX_BODY",
    "YAML_TYPES",
    "BatchSettings",
    "Posted",
    "Raw",
    "Settings",
    "read_alias",
    "read_batch",
    "read_batch_query",
    "read_posted",
    "read_program",
    "read_settings",
    "receive_body",
]

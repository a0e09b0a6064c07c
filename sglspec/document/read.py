"""From a file or a text to nodes: decoding, the size limit, and the choice between YAML and JSON."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

from sglspec.diagnostics import Diagnostic, Range, Report, SpecError
from sglspec.document.bounds import MAX_BYTES, too_big
from sglspec.document.nodes import Node, Source
from sglspec.document.positions import locate, locate_range

__all__ = ["locate", "locate_range", "parse", "read_source", "source_from_text"]

Format = Literal["yaml", "json"]
_LONE_CR = re.compile("\r(?!\n)")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_source(path: str | Path, name: str | None = None) -> Source:
    """Reads a document from disk; `.json` files are JSON, all others YAML. `name`: as messages call it.

    Raises SpecError: S100 if the file cannot be read, S109 if it is too big, S113 if it is not UTF-8 text.
    """
    name = name or str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 4)  # a byte order mark does not count
    except FileNotFoundError:
        raise SpecError(Diagnostic("S100", f"There is no file `{name}`.", file=name)) from None
    except IsADirectoryError:
        raise SpecError(Diagnostic("S100", f"`{name}` is a folder, not a file.", file=name)) from None
    except PermissionError:
        raise SpecError(Diagnostic("S100", f"You may not read `{name}`.", file=name)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SpecError(Diagnostic("S100", f"`{name}` cannot be read: {reason}.", file=name)) from None
    return replace(source_from_text(data, name), path=Path(path))


def source_from_text(text: str | bytes, name: str, format: Format | None = None) -> Source:
    """A document that is already in memory. Without `format` the name's extension decides.

    Raises SpecError: S109 if it is too big, S113 if it is not UTF-8 text or holds a NUL character.
    """
    if isinstance(text, bytes):
        text = _decode(text, name)
    text = _lines(text)
    if _size(text) > MAX_BYTES:
        raise SpecError(too_big(name))
    source = Source(name, text, format or ("json" if name.lower().endswith(".json") else "yaml"))
    nul = text.find("\0")
    if nul >= 0:
        raise SpecError(
            Diagnostic(
                "S113",
                "This file holds a NUL character, so it is not a text file.",
                file=name,
                range=source.span(nul, nul + 1),
                help="Check that the file is a YAML or JSON document, saved as UTF-8.",
            )
        )
    return source


def parse(source: Source, report: Report) -> Node | None:
    """The document's tree, or None if it cannot be read. What is wrong with it is added to `report`.

    Lints (W1xx) are added as warnings and do not stop the tree. Only the reader that is needed is loaded.
    """
    if _size(source.text) > MAX_BYTES:
        report.add(too_big(source.name))
        return None
    if source.format == "json":
        from sglspec.document.json import read_json

        return read_json(source, report)
    from sglspec.document.yaml import read_yaml

    return read_yaml(source, report)


def _size(text: str) -> int:
    """Bytes in UTF-8. Long texts are not encoded just to be refused."""
    if len(text) > MAX_BYTES or text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))


def _lines(text: str) -> str:
    """Without a byte order mark, and with line feeds for the line breaks of old, so that everything has the line that
    editors show."""
    return _LONE_CR.sub("\n", text.removeprefix("\ufeff"))


def _decode(data: bytes, name: str) -> str:
    if data.startswith(_UTF16):
        start = Range.at(1, 1, 0)
        message = "This file is saved as UTF-16."
        raise SpecError(Diagnostic("S113", message, file=name, range=start, help="Save it again as UTF-8."))
    if len(data) > MAX_BYTES + len("\ufeff".encode()):
        raise SpecError(too_big(name))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = Source(name, _lines(data[: error.start].decode("utf-8")), "yaml")
        place = before.position(len(before.text))
        raise SpecError(
            Diagnostic(
                "S113",
                f"This file is not UTF-8: the byte 0x{data[error.start]:02X} cannot stand here.",
                file=name,
                range=Range.at(place.line, place.column),
                help="Save the file again as UTF-8.",
            )
        ) from None

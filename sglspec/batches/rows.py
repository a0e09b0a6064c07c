"""Rows from JSON Lines, CSV and Parquet files, one at a time, and from rows to inputs."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from pydantic_core import to_jsonable_python

from sglspec.analysis.inputs import coerce_text
from sglspec.diagnostics import Diagnostic, SpecError, sentence
from sglspec.document.model import Decl

MAX_LINE = 16 * 2**20
"""Bytes of a line. A file without line ends must not fill the memory."""
MAX_COUNTED = 2**28
"""Bytes of a file whose rows are counted beforehand."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """Values by column; None when the row cannot be read, and `problem` says why. `texts`: the values are texts that
    have to be read by the declared types (CSV). `source`: what could not be read, to know it again."""

    values: Mapping[str, Any] | None
    problem: Diagnostic | None = None
    texts: bool = False
    source: bytes = b""


def read_rows(path: Path) -> Iterator[RawRow]:
    """The rows of a file: CSV and Parquet by its name's end, otherwise JSON Lines.

    A row that cannot be read is one with a problem (S411). SpecError: S100 for a file that cannot be read, S607 for
    Parquet without pyarrow.
    """
    match path.suffix.lower():
        case ".csv":
            return _csv(path)
        case ".parquet":
            return _parquet(path)
        case _:
            return _json_lines(path)


def head_of(path: Path) -> tuple[str, ...] | None:
    """The columns of a file that names them all at once: CSV and Parquet; else None. Errors as `read_rows`."""
    match path.suffix.lower():
        case ".csv":
            with _reading(path), path.open(encoding="utf-8-sig", newline="") as file:
                return tuple(next(csv.reader(file, strict=True), ())) or None
        case ".parquet":
            parquet = _pyarrow()
            with _reading(path):
                return tuple(parquet.read_schema(path).names)
        case _:
            return None


def count_rows(path: Path) -> int | None:
    """How many rows a file has; None where that cannot be told quickly."""
    try:
        if path.suffix.lower() == ".parquet":
            return int(_pyarrow().read_metadata(path).num_rows)
        if not path.is_file() or path.stat().st_size > MAX_COUNTED:
            return None
        if path.suffix.lower() == ".csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                return max(sum(bool(cells) for cells in csv.reader(file, strict=True)) - 1, 0)
        with path.open("rb") as file:
            return sum(bool(line.strip()) for line in file)
    except (OSError, ValueError, csv.Error, SpecError):  # reading them will say so
        return None


def json_lines(file: IO[bytes], name: str) -> Iterator[RawRow]:
    """The objects of JSON Lines. Blank lines are no rows."""
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise SpecError(Diagnostic("S411", f"Line {number} is longer than {MAX_LINE:,} bytes.", file=name))
        if line.strip():
            yield _json_row(line, f"{name}:{number}")


def given_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[RawRow]:
    """Rows that are in memory already."""
    return (RawRow(row) for row in rows)


def _json_row(line: bytes, place: str) -> RawRow:
    try:
        value: Any = json.loads(line.decode("utf-8-sig"), parse_constant=_no_constant, object_pairs_hook=_object)
        if b"\\u" in line:
            _no_half_characters(value)
    except RecursionError:
        return _bad("the line is nested too deeply", place, line)
    except UnicodeDecodeError as error:
        return _bad(f"the line is not UTF-8: {error.reason} at byte {error.start + 1}", place, line)
    except ValueError as error:
        return _bad(f"the line is not JSON: {error}", place, line)
    if not isinstance(value, dict):
        return _bad("the line is not a JSON object", place, line)
    return RawRow(cast("dict[str, Any]", value))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key `{next(name for name in names if names.count(name) > 1)}` is written twice")
    return made


def _no_half_characters(value: Any) -> None:
    """Surrogates without their other half are no text, and no tokenizer takes them."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half of a character") from None


def _json_lines(path: Path) -> Iterator[RawRow]:
    with _reading(path), path.open("rb") as file:
        yield from json_lines(file, str(path))


def _csv(path: Path) -> Iterator[RawRow]:
    """A head with the names of the columns, and cells that are texts."""
    with _reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        head = next(reader, None)
        if head is not None and (twice := [name for name in head if name and head.count(name) > 1]):
            raise SpecError(Diagnostic("S411", f"Two columns have the name `{twice[0]}`.", file=f"{path}:1"))
        while head is not None:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                # The reader's own words name a bound that is its own, too.
                long = "limit" in str(error)
                reason = f"a cell is longer than {csv.field_size_limit():,} characters" if long else str(error)
                yield _bad(f"the row is not CSV: {reason}", f"{path}:{reader.line_num}", str(reader.line_num).encode())
                continue
            if len(cells) > len(head):
                message = f"the row has {len(cells)} cells, and there are {len(head)} columns"
                yield _bad(message, f"{path}:{reader.line_num}", repr(cells).encode())
            elif cells:
                yield RawRow(dict(zip(head, cells, strict=False)), texts=True)


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        message = "Reading Parquet needs the package `pyarrow`, which is not installed."
        raise SpecError(Diagnostic("S607", message, help="Run `pip install pyarrow`.")) from None


def _parquet(path: Path) -> Iterator[RawRow]:
    parquet = _pyarrow()
    with _reading(path):
        file = parquet.ParquetFile(path)
        for batch in file.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                # dates, decimals and bytes as JSON has them
                yield RawRow(to_jsonable_python(row, bytes_mode="base64", fallback=str))


@contextmanager
def _reading(path: Path) -> Generator[None, None, None]:
    """What can go wrong with a file, as SpecError."""
    try:
        yield
    except (OSError, ValueError, csv.Error) as error:  # pyarrow's errors and wrong UTF-8 are ValueErrors
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(Diagnostic("S100", sentence(f"`{path}` cannot be read: {reason}"))) from None


def _bad(message: str, place: str, source: bytes) -> RawRow:
    return RawRow(None, Diagnostic("S411", sentence(message), file=place), source=source)


def typed(name: str, decl: Decl, text: str) -> Any:
    """A cell by the declared type. An empty one that is not a text is null."""
    try:
        return coerce_text(decl, text) if text or decl.type == "string" else None
    except ValueError as error:
        raise SpecError(Diagnostic("S401", sentence(f"input `{name}`: {error}"))) from None

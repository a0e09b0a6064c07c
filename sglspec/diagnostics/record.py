"""The one diagnostic record. Every complaint about a document, an input or a run is one of these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Severity = Literal["error", "warning"]

MAX_REPORTED = 50
"""A document with more errors than this gets the first ones and a count of the rest."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text: 1-based line and 1-based column, counted in code points."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """From `start` up to, not including, `end`."""

    start: Position
    end: Position

    @staticmethod
    def at(line: int, column: int, length: int = 1) -> Range:
        """A range of `length` code points on one line."""
        return Range(Position(line, column), Position(line, column + length))


@dataclass(frozen=True, slots=True)
class Related:
    """A second place that explains the first one ("first defined here")."""

    message: str
    range: Range
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message: stable code, place, text in the author's words, and help.

    `range` is None only where there is no document (a bad command-line input); `pointer` is the JSON
    pointer of the node in the document ("" is the root). `cause` is the underlying code of a failure that
    data caused at run time (language.md § 11), e.g. S707 caused by S406.
    """

    code: str
    message: str
    severity: Severity = "error"
    file: str | None = None
    range: Range | None = None
    pointer: str = ""
    help: str | None = None
    related: tuple[Related, ...] = ()
    cause: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON face of the record; keys that say nothing are left out."""
        out: dict[str, Any] = {"code": self.code, "severity": self.severity, "message": self.message}
        if self.file is not None:
            out["file"] = self.file
        if self.range is not None:
            out["range"] = _range_dict(self.range)
        out["pointer"] = self.pointer
        if self.help is not None:
            out["help"] = self.help
        if self.related:
            out["related"] = [
                {"message": r.message, "range": _range_dict(r.range), **({"file": r.file} if r.file else {})}
                for r in self.related
            ]
        if self.cause is not None:
            out["cause"] = self.cause
        return out


def _range_dict(r: Range) -> dict[str, Any]:
    return {
        "start": {"line": r.start.line, "column": r.start.column},
        "end": {"line": r.end.line, "column": r.end.column},
    }


def sentence(text: str) -> str:
    """A message as a sentence: a capital first (unless a name comes first) and a full stop."""
    text = text[:1].upper() + text[1:]
    return text if text[-1:] in ".!?" else f"{text}."


class SpecError(Exception):
    """A document, input or run that cannot go on. Carries every diagnostic found so far."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in diagnostics))
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics


@dataclass(slots=True)
class Report:
    """Collects diagnostics: deduplicated by (code, place), sorted by position, capped when read. `texts`: what they
    point into, of other files than the one that the report is about."""

    file: str | None = None
    texts: dict[str, str] = field(default_factory=dict[str, str])
    _items: dict[tuple[str, str | None, Range | None, str], Diagnostic] = field(
        default_factory=dict[tuple[str, str | None, Range | None, str], Diagnostic]
    )

    def add(self, diagnostic: Diagnostic) -> None:
        if diagnostic.file is None and self.file is not None:
            diagnostic = replace(diagnostic, file=self.file)
        key = (diagnostic.code, diagnostic.file, diagnostic.range, "" if diagnostic.range else diagnostic.message)
        self._items.setdefault(key, diagnostic)

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        for diagnostic in diagnostics:
            self.add(diagnostic)

    @property
    def count(self) -> int:
        """How many there are so far."""
        return len(self._items)

    @property
    def has_errors(self) -> bool:
        return any(d.severity == "error" for d in self._items.values())

    def sorted(self) -> list[Diagnostic]:
        """Errors and warnings in document order; those without a place come first, those of other files last."""
        none = Position(0, 0)

        def place(d: Diagnostic) -> tuple[str, Position, str, str]:
            file = "" if d.file == self.file else d.file or ""
            return file, d.range.start if d.range else none, d.severity, d.code

        return sorted(self._items.values(), key=place)

    def raise_errors(self) -> None:
        if self.has_errors:
            raise SpecError(*self.sorted())

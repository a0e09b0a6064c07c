"""The limits of language.md § 8 for documents, and the messages that say one was passed."""

from __future__ import annotations

from sglspec.diagnostics import Diagnostic, Range

MAX_BYTES = 1_048_576
"""Size of a document in UTF-8 bytes."""

MAX_DEPTH = 64
"""Mappings and lists inside one another, the outermost included."""

MAX_NODES = 50_000
"""Values and keys, where each use of an alias counts everything that it stands for."""

MAX_ALIASES = 100
"""Uses of `*name` in one YAML document."""

MAX_INTEGER = 2**53
"""Larger whole numbers are not the same number in every program that reads JSON."""


def too_big(file: str) -> Diagnostic:
    """The document has too many bytes."""
    return Diagnostic(
        "S109",
        "This document is larger than 1 MB.",
        file=file,
        range=Range.at(1, 1, 0),
        help="Move long texts and data out of the document, and give them to the program as inputs.",
    )


def too_deep(file: str, place: Range) -> Diagnostic:
    """Too many levels."""
    return Diagnostic(
        "S109",
        f"Lists and mappings are nested more than {MAX_DEPTH} levels deep here.",
        file=file,
        range=place,
        help="Move the inner part into `defs`, or into a document of its own.",
    )


def too_many(file: str, place: Range) -> Diagnostic:
    """Too many nodes."""
    return Diagnostic(
        "S109",
        f"This document has more than {MAX_NODES:,} values, counting what aliases stand for.",
        file=file,
        range=place,
        help="Move long lists out of the document, and give them to the program as inputs.",
    )


def too_many_aliases(file: str, place: Range) -> Diagnostic:
    """Too many aliases."""
    return Diagnostic(
        "S109",
        f"This document uses aliases (`*name`) more than {MAX_ALIASES} times.",
        file=file,
        range=place,
        help="Put what is repeated into `defs` and refer to it by name.",
    )

"""Exit codes, and which diagnostic leads to which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglspec.diagnostics import Diagnostic

OK = 0
NO = 1
"""A verdict of "no": the document has errors."""
USAGE = 2
"""Wrong usage, unreadable or unknown input."""
FAILED = 3
"""The run started and failed."""
LIMIT = 4
"""A limit stopped the run."""
UNAVAILABLE = 5
"""The model or backend is not available."""
FAULT = 70
"""A fault in sglspec."""
INTERRUPTED = 130
TERMINATED = 143

_OPTIONS = frozenset({"S610", "S613"})
_LIMITS = frozenset({"S705", "S706", "S712"})


def document_code(diagnostics: Iterable[Diagnostic]) -> int:
    """For a document that was read and checked: a file that is not there is wrong usage, an error in it a "no"."""
    codes = [d.code for d in diagnostics if d.severity == "error"]
    if not codes:
        return OK
    return USAGE if "S100" in codes else NO


def backend_code(diagnostics: Iterable[Diagnostic]) -> int:
    """For a model or backend that could not be opened; what is not S6xx is about a file that an option named, and some
    are about an option."""
    return UNAVAILABLE if any(d.code.startswith("S6") and d.code not in _OPTIONS for d in diagnostics) else USAGE


def run_code(status: str, error: Diagnostic | None) -> int:
    """For a run that was started."""
    if status == "succeeded":
        return OK
    if status == "cancelled":
        return INTERRUPTED
    if error is None:
        return FAILED
    if error.code == "S799":
        return FAULT
    if error.code.startswith("S6"):
        return UNAVAILABLE
    return LIMIT if error.code in _LIMITS else FAILED

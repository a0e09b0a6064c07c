"""Diagnostics: the record, the table of codes, and the renderers."""

from sglspec.diagnostics.record import (
    MAX_REPORTED,
    Diagnostic,
    Position,
    Range,
    Related,
    Report,
    Severity,
    SpecError,
    sentence,
)

__all__ = [
    "MAX_REPORTED",
    "Diagnostic",
    "Position",
    "Range",
    "Related",
    "Report",
    "Severity",
    "SpecError",
    "sentence",
]

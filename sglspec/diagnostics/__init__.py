"""Diagnostics: the record, the table of codes, and the renderers."""

from sglspec.diagnostics.record import Diagnostic, Position, Range, Related, Report, Severity, SpecError

__all__ = ["Diagnostic", "Position", "Range", "Related", "Report", "Severity", "SpecError"]

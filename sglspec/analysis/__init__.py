"""Static checks: from a document to a program with everything parsed, named and compiled, or to diagnostics."""

from sglspec.analysis.check import check
from sglspec.analysis.loading import load_program
from sglspec.analysis.program import Program

__all__ = ["Program", "check", "load_program"]

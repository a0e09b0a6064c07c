"""What happens when sglspec itself fails: one line for the user, a file for whoever repairs it."""

from __future__ import annotations

import os
import platform
import tempfile
import traceback

from sglspec.cli.exits import FAULT
from sglspec.cli.streams import note


def report_fault(error: BaseException) -> int:
    """Write a report of an unexpected exception, name it on standard error, and return the exit code."""
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    where = _write(error)
    place = f"The details are in {where}" if where else "No report could be written"
    note(f"sglspec: internal error S799: {what}. {place}.")
    return FAULT


def _write(error: BaseException) -> str | None:
    """The report's path. It holds no arguments and no values of variables, which may be private."""
    from sglspec import __version__

    lines = [
        f"sglspec {__version__}",
        f"Python {platform.python_version()} on {platform.platform()}",
        "",
        *(line.rstrip("\n") for line in traceback.format_exception(error)),
    ]
    try:
        handle, path = tempfile.mkstemp(prefix="sglspec-fault-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(lines) + "\n")
    except OSError:
        return None
    return path

"""The command line. `main` is the entry point; each command has a module of its own.

Commands import what they need when they run: `--help` loads typer only, and `check` loads no engine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sglspec.cli.exits import INTERRUPTED, OK, USAGE
from sglspec.cli.streams import OutputLost, discard_output, note, secure_streams


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (the table is in `exits`). Never raises, never shows a traceback."""
    try:
        secure_streams()
        return _run(arguments)
    except OutputLost as lost:
        discard_output()
        if lost.closed:  # `sglspec … | head` is no error
            return OK
        note(f"sglspec: standard output cannot be written: {lost}")
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        from sglspec.cli.fault import report_fault

        return report_fault(error)


def _run(arguments: Sequence[str] | None) -> int:
    # Looking for pydantic plugins reads the metadata of every installed package, and we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from sglspec.cli.app import app

    try:
        app(None if arguments is None else list(arguments), prog_name="sglspec")
    except SystemExit as leaving:
        code = leaving.code
    else:
        code = OK
    sys.stdout.flush()
    return code if isinstance(code, int) else OK if code is None else USAGE

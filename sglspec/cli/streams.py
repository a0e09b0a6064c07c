"""Standard output and error: always UTF-8, quiet about closed pipes, coloured only where somebody looks."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import select
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

# Whole sequences first (OSC, DCS and their like up to their end; CSI), then what is left of control characters, and
# the bidirectional overrides, which show a line in another order. Tabs and line ends stay.
_ESCAPES = re.compile(
    "(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


class OutputLost(BaseException):
    """Standard output cannot be written any more. No Exception, so that nothing on the way out takes it for a
    failure of its own."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.closed = isinstance(error, BrokenPipeError) or error.errno == errno.EPIPE


class _Output(io.TextIOWrapper):
    """Text output that raises OutputLost instead of OSError."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputLost(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputLost(error) from None


def secure_streams() -> None:
    """Make the process's standard streams UTF-8, whatever the locale says.

    Characters that UTF-8 cannot hold (lone surrogates) are written as `\\udXXX`, which is also how JSON escapes them.
    Streams that somebody else has put in place (a test's capture) are left alone.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the descriptor was closed before we started
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - stays open
    out = cast(Any, sys.stdout)
    if out is sys.__stdout__ and isinstance(out, io.TextIOWrapper):
        line_buffering = out.line_buffering
        out.flush()
        wrapped = _Output(cast(Any, out).detach(), encoding="utf-8", errors="backslashreplace", newline="\n")
        wrapped.reconfigure(line_buffering=line_buffering)
        sys.stdout = wrapped
    error = cast(Any, sys.stderr)
    if error is sys.__stderr__ and isinstance(error, io.TextIOWrapper):
        error.reconfigure(encoding="utf-8", errors="backslashreplace")


class _Aside(io.TextIOBase):
    """Stands for standard output where code of others runs: what that prints goes to standard error."""

    def __init__(self, results: IO[str]) -> None:
        self.results = results

    @property
    def buffer(self) -> Any:
        return sys.stderr.buffer

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return sys.stderr.isatty()

    def fileno(self) -> int:
        return sys.stderr.fileno()

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


@contextmanager
def results_only() -> Generator[None]:
    """While entered, only `output` leads to standard output."""
    before = sys.stdout
    sys.stdout = _Aside(before)
    try:
        yield
    finally:
        sys.stdout = before


def output() -> IO[str]:
    """Where results go: standard output."""
    return sys.stdout.results if isinstance(sys.stdout, _Aside) else sys.stdout


def require_reader(stream: IO[str]) -> None:
    """Raise OutputLost when the reader of a pipe has gone. A write would find out, but there may be none for long."""
    if not hasattr(select, "poll"):
        return
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)  # errors are always told
    except (OSError, ValueError):  # not a file of the system
        return
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise OutputLost(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))


def discard_output() -> None:
    """Point standard output to nowhere, so that the interpreter's last flush has no one to complain about."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    except OSError:
        return


def wants_color(stream: IO[str]) -> bool:
    """Colours and cursor movements: on a terminal, unless NO_COLOR or TERM=dumb say otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width_of(stream: IO[str]) -> int | None:
    """Columns of the terminal; None where there is none."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def printable(text: str) -> str:
    """Text without anything that a terminal would obey instead of showing it."""
    return _ESCAPES.sub("", text)


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON as RFC 8259 has it: a number that is not finite becomes null."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in cast("list[Any]", value)]
    return value


def outputs_text(outputs: dict[str, Any]) -> str:
    """One text as it is; anything else is a JSON object."""
    values = list(outputs.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return to_json(outputs)


def put(text: str) -> None:
    """Write a result to standard output, a line end after it if it has none, and flush."""
    out = output()
    out.write(text if text.endswith("\n") else text + "\n")
    out.flush()


def note(text: str, end: str = "\n") -> None:
    """Write about what is going on to standard error. That nobody can read it must not change what happens."""
    with suppress(OSError):
        print(text, file=sys.stderr, end=end, flush=True)

"""Standard input, which can be read once."""

from __future__ import annotations

import sys
from io import BytesIO
from typing import IO

from sglspec.cli.options import wrong

MAX_BYTES = 100_000_000
"""A run writes no more characters than this; what never ends must not fill the memory."""


class StandardInput:
    """Hands standard input to the first that asks; a second one is wrong usage."""

    NAME = "<stdin>"

    def __init__(self) -> None:
        self._user: str | None = None

    def read(self, user: str) -> bytes:
        """All of it. `user` is the argument that wants it, as the message shall name it."""
        data = self.open(user).read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise wrong(f"Standard input is longer than {MAX_BYTES:,} bytes.", user)
        return data

    def open(self, user: str) -> IO[bytes]:
        """The stream itself."""
        if self._user is not None:
            raise wrong(f"Standard input is read by {self._user} already.", user)
        self._user = user
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - it is None when closed
            return BytesIO()
        return sys.stdin.buffer

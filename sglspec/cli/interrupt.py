"""Ctrl-C and SIGTERM: the first one cancels the run, which then prints what it has; the second one ends at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn

from sglspec.cli.streams import note, output

GRACE = 10.0
"""Seconds that a cancelled run has to stop."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Handles both signals while it is entered.

    Handlers of the process, not of the event loop: the second Ctrl-C must also work while something that should not
    blocks the loop, and while there is no loop yet (a model being loaded).
    """

    def __init__(self) -> None:
        self.code: int | None = None
        """The exit code of the signal that came, None as long as none did."""
        self.last_words: Callable[[], None] | None = None
        """Called before the process is ended at once."""
        self._cancel: Callable[[], Any] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def cancelling(self, cancel: Callable[[], None]) -> Generator[None, None, None]:
        """While entered, the first signal calls `cancel` on the running loop instead of ending the process."""
        loop = asyncio.get_running_loop()

        def begin() -> None:
            cancel()
            loop.call_later(GRACE, self._give_up)

        self._cancel = lambda: loop.call_soon_threadsafe(begin)
        try:
            yield
        finally:
            self._cancel = None

    @contextmanager
    def raising(self) -> Generator[None, None, None]:
        """While entered, the first signal raises KeyboardInterrupt instead of ending the process."""

        def interrupt() -> NoReturn:
            raise KeyboardInterrupt

        self._cancel = interrupt
        try:
            yield
        finally:
            self._cancel = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        repeated = self.code is not None
        self.code = self.code or 128 + number
        if repeated or self._cancel is None:
            self._leave(self.code)
        self._cancel()

    def _give_up(self) -> None:
        if self._cancel is None:  # it stopped; what is left is closing the backend
            return
        note(f"sglspec: the run did not stop within {GRACE:g} seconds")
        self._leave(self.code or 128 + signal.SIGINT)

    def _leave(self, code: int) -> NoReturn:
        """End now, whatever threads are doing. A write that the signal interrupted may forbid the flush."""
        with suppress(BaseException):
            output().flush()
        with suppress(BaseException):
            if self.last_words is not None:
                self.last_words()
        os._exit(code)

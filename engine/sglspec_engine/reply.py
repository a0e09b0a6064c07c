"""The way back from the engine's thread to whoever asked."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Generic, TypeVar

from sglspec_engine.types import Delta, EngineError

T = TypeVar("T")


class Cancelled(EngineError):
    """The terminal outcome of a request that its caller cancelled, or that its session ended by going on."""

    def __init__(self) -> None:
        super().__init__("internal", "the request was cancelled")


def as_engine_error(error: BaseException) -> EngineError:
    """Any exception as the error that a caller sees."""
    return error if isinstance(error, EngineError) else EngineError("internal", f"{type(error).__name__}: {error}")


class Reply(Generic[T]):
    """One request's outcome: exactly one of `finish` and `fail` counts, the first. Written by the engine's thread,
    awaited on any event loop."""

    def __init__(self) -> None:
        self._future: Future[T] = Future()

    @property
    def done(self) -> bool:
        """Whether the terminal outcome is there."""
        return self._future.done()

    def finish(self, value: T) -> None:
        """Succeed, unless there is an outcome already."""
        if not self._future.done():
            self._future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Fail, unless there is an outcome already."""
        if not self._future.done():
            self._future.set_exception(error)

    def value(self) -> T | None:
        """The outcome if it is there and good."""
        return self._future.result() if self._future.done() and self._future.exception() is None else None

    async def wait(self) -> T:
        """The outcome. Cancelling the waiter does not change it."""
        outcome = asyncio.wrap_future(self._future)
        # A cancelled waiter never looks: without this an outcome that is an error would be reported as forgotten.
        outcome.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return await asyncio.shield(outcome)

    async def settled(self) -> None:
        """Return once there is an outcome, whichever."""
        try:
            await self.wait()
        except EngineError:
            return


class Stream(Reply[None]):
    """A reply with deltas before its outcome, for the event loop that made it."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Delta | BaseException] = asyncio.Queue()

    def put(self, delta: Delta) -> None:
        """Pass a delta on. Raises Cancelled where nobody can hear it any more."""
        self._post(delta)

    def fail(self, error: BaseException) -> None:
        """See `Reply`; the reader of the deltas gets the error too."""
        if not self.done:
            super().fail(error)
            try:
                self._post(error)
            except Cancelled:
                return

    async def get(self) -> Delta:
        """The next delta; raises the error that ended the stream."""
        item = await self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def _post(self, item: Delta | BaseException) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:  # the event loop is closed
            raise Cancelled from None

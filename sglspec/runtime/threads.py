"""Threads for the plain functions among a run's tools."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

MOST = 8
"""Plain functions of one run that are called at the same time."""


@dataclass(slots=True)
class ToolThreads:
    """Where the plain functions of one run are called, a few at a time.

    The threads are daemons: one that never returns keeps its place, but neither the run nor the process.
    """

    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST))

    async def run(self, function: Callable[[], Any]) -> Any:
        await self.places.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def settle(result: Any, error: BaseException | None) -> None:
            self.places.release()
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def work() -> None:
            result, error = None, None
            try:
                result = context.run(function)
            except StopIteration as problem:  # a future cannot carry it
                error = RuntimeError(f"StopIteration: {problem}")
            except BaseException as problem:
                error = problem if isinstance(problem, Exception) else RuntimeError(type(problem).__name__)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, result, error)

        Thread(target=work, name="sglspec-tool", daemon=True).start()
        return await future


__all__ = ["MOST", "ToolThreads"]

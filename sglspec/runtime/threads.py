"""Calls the functions of a run's tools: plain ones in threads, async ones as tasks that can be left behind."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from sglspec.tools import Tool, ToolError, error_text, result_value

MOST = 8
"""Plain functions of one run that are called at the same time."""
GRACE = 1.0
"""Seconds that an async function has to end once it was cancelled."""


class TookTooLong(Exception):
    """A tool did not end in its time."""


@dataclass(slots=True)
class ToolThreads:
    """Calls the tools of one run, a few plain functions at a time.

    Neither the run nor the process waits for what does not end: the threads are daemons, and one that never returns
    keeps its place; an async function that goes on when it was cancelled is left to itself.
    """

    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST))

    async def call(self, tool: Tool, arguments: dict[str, Any], seconds: float | None, grace: float = GRACE) -> Any:
        """What the tool gives, as a value. Raises what it raises, and ToolError for what is no Exception; TookTooLong;
        CancelledError when the caller or the function is cancelled."""
        task = asyncio.create_task(self._call(tool, arguments))
        try:
            await asyncio.wait({task}, timeout=seconds)
            if not task.done():
                raise TookTooLong
        finally:
            await _end(task, grace)
        return task.result()

    async def _call(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        if not tool.is_async:
            return await self._in_thread(lambda: result_value(tool.function(**arguments)))
        try:
            return result_value(await tool.function(**arguments))
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as problem:  # it would end the event loop
            raise ToolError(error_text(problem)) from None

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        await self.places.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def settle(result: Any, error: Exception | None) -> None:
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
                error = ToolError(error_text(problem))
            except Exception as problem:
                error = problem
            except BaseException as problem:  # it would end the event loop
                error = ToolError(error_text(problem))
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, result, error)

        Thread(target=work, name="sglspec-tool", daemon=True).start()
        return await future


async def _end(task: asyncio.Task[Any], grace: float) -> None:
    """Cancel a call that goes on. One that takes no notice is forgotten, so that nobody waits for it at the end."""
    if task.done():
        return
    task.cancel()
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody asks for it any more
    try:
        await asyncio.wait({task}, timeout=grace)
    finally:
        if not task.done():
            asyncio.tasks._unregister_task(task)  # pyright: ignore[reportPrivateUsage] - documented for this


__all__ = ["MOST", "TookTooLong", "ToolThreads"]

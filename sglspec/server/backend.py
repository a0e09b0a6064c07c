"""The server's one backend: opened once, in the background, and again after a failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sglspec.backends import DEFAULT_MODEL, Backend
from sglspec.backends.base import EngineError
from sglspec.diagnostics import Diagnostic, SpecError, sentence
from sglspec.runtime.frame import ENGINE_CODES
from sglspec.server.problems import Problem

Opener = Callable[[str | None, str | None], Awaitable[Backend]]

log = logging.getLogger("sglspec.server")


class BackendSlot:
    """Opening starts with `begin` or with the first `get`; everyone who waits shares one opening."""

    def __init__(self, opener: Opener, reference: str | None, model: str | None) -> None:
        self._opener = opener
        self._reference = reference
        self._model = model
        self._task: asyncio.Task[Backend] | None = None

    @property
    def name(self) -> str:
        """The model's name, also while it is not open."""
        return self.ready.model_name if self.ready is not None else self._model or self._reference or DEFAULT_MODEL

    @property
    def ready(self) -> Backend | None:
        task = self._task
        return task.result() if task is not None and task.done() and not _failed(task) else None

    def begin(self) -> None:
        """Start opening unless it is open or on its way."""
        if self._task is None or (self._task.done() and _failed(self._task)):
            self._task = asyncio.create_task(self._open())
            # a failure that nobody waits for is answered by the next request, not by a warning at exit
            self._task.add_done_callback(_failed)

    async def get(self) -> Backend:
        """The open backend. Raises Problem (503) when it cannot be opened; the next call tries again."""
        self.begin()
        assert self._task is not None
        # shielded: one client that leaves must not stop the opening for the others
        return await asyncio.shield(self._task)

    def require_ready(self) -> Backend:
        """The open backend, without waiting. Raises Problem (503) otherwise."""
        if self.ready is not None:
            return self.ready
        if self._task is not None and self._task.done():
            self._task.result()
        raise Problem(503, "backend-loading", headers={"Retry-After": "1"})

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})
        if not _failed(task):
            await task.result().close()

    async def _open(self) -> Backend:
        try:
            return await self._opener(self._reference, self._model)
        except SpecError as error:
            raise Problem(503, "backend-unavailable", errors=error.diagnostics) from None
        except EngineError as error:
            fault = Diagnostic(ENGINE_CODES.get(error.kind, "S713"), sentence(str(error)))
            raise Problem(503, "backend-unavailable", errors=[fault]) from None
        except Exception:
            log.exception("the backend cannot be opened")
            raise Problem(503, "backend-unavailable", "The server's log says why.") from None


def _failed(task: asyncio.Task[Backend]) -> bool:
    return task.cancelled() or task.exception() is not None


__all__ = ["BackendSlot", "Opener"]

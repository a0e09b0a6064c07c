"""Stopping: take nothing new, let what runs come to its end, then end it, so that every stream ends properly."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from sglspec.server.compat.answers import Places
from sglspec.server.service import Service
from sglspec.server.wire import config

DRAIN_SECONDS = 30.0
"""How long runs may go on after the signal to stop; then they are cancelled and their streams say so."""
END_SECONDS = 20.0
"""How long ending them may take; then the process ends at once."""
HURRY_SECONDS = 2.0
"""The same after a second signal."""
_LOOK_SECONDS = 0.05

log = logging.getLogger("sglspec.server")


class Server(uvicorn.Server):
    """Serves until a signal comes. The second one means now."""

    def __init__(self, app: FastAPI, drain_seconds: float = DRAIN_SECONDS, *, own_process: bool = False) -> None:
        """own_process: whether it may end the process when something does not let go."""
        super().__init__(config(app, drain_seconds))
        self._service: Service = app.state.service
        self._places: Places = app.state.places
        self._drain_seconds = drain_seconds
        self._own_process = own_process
        self._signal = 15

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signal = sig
        if self.should_exit:
            self.force_exit = True
            self._end_in(HURRY_SECONDS)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        runs = self._service.runs
        log.info("stopping", extra={"fields": {"runs": len(runs)}})
        self._service.stop_admitting()
        self._places.close()
        # connections are still accepted: who asks /readyz is told, who posts is told to come back
        end = time.monotonic() + self._drain_seconds
        while self._busy() and time.monotonic() < end and not self.force_exit:  # noqa: ASYNC110 - a signal wakes nobody
            await asyncio.sleep(_LOOK_SECONDS)
        if len(runs):
            log.warning("runs are cancelled", extra={"fields": {"runs": len(runs)}})
        alarm = self._end_in(END_SECONDS)
        self._service.end_runs()
        self._places.cancel_all()
        try:
            await super().shutdown(sockets)
        finally:
            if alarm is not None:
                alarm.cancel()
        log.info("stopped")

    def _busy(self) -> int:
        return self._service.runs.awaited + self._places.taken

    def _end_in(self, seconds: float) -> threading.Timer | None:
        """End the process, whatever its threads are doing."""
        if not self._own_process:
            return None
        alarm = threading.Timer(seconds, os._exit, (128 + self._signal,))
        alarm.daemon = True
        alarm.start()
        return alarm


__all__ = ["DRAIN_SECONDS", "Server"]

"""Whether the server can do its work now: the model is there, its engine moves, the store takes what is written."""

from __future__ import annotations

from sglspec.backends.base import Watched
from sglspec.server.problems import Problem
from sglspec.server.runs.manager import LEASE_SECONDS
from sglspec.server.service import Service

_RETRY = {"Retry-After": "1"}


def require_ready(service: Service) -> str:
    """The model's name. Raises Problem (503) that says why the server is not ready."""
    if service.stopping.is_set():
        raise Problem(503, "stopping", headers={"Retry-After": "5"})
    backend = service.backend.require_ready()
    if isinstance(backend, Watched):
        vitals = backend.vitals
        if not vitals.alive:
            raise Problem(503, "engine-ended", "Its thread has ended. Only a restart helps.", headers=_RETRY)
        if vitals.still_seconds > service.limits.stall_seconds:
            detail = (
                f"It has {vitals.running + vitals.waiting} requests and did nothing for {vitals.still_seconds:.0f} s."
            )
            raise Problem(503, "engine-stalled", detail, headers=_RETRY)
    silent = service.runs.unwritten_seconds
    if silent > LEASE_SECONDS:
        detail = f"It has taken nothing for {silent:.0f} s."
        raise Problem(503, "storage-unavailable", detail, headers=_RETRY)
    return backend.model_name


__all__ = ["require_ready"]

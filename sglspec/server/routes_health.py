"""Whether the server is well, and what it counts."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from starlette.requests import Request
from starlette.responses import Response

from sglspec.server.endpoints import Endpoint, reply
from sglspec.server.health import require_ready
from sglspec.server.metrics import by_state, engine_metrics, gauge
from sglspec.server.problems import Problem
from sglspec.server.service import Service


class HealthRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        service.metrics.watch(self._now)

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/livez", self.livez, "public", "Whether the server answers"),
            Endpoint("GET", "/readyz", self.readyz, "public", "Whether the server can take work, and if not, why"),
            Endpoint("GET", "/metrics", self.get_metrics, "metrics", "What the server counts, for Prometheus"),
        ]

    async def livez(self, request: Request) -> Response:
        return reply({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        return reply({"status": "ready", "model": require_ready(self._service)})

    async def get_metrics(self, request: Request) -> Response:
        body, kind = self._service.metrics.page(request.headers.get("accept", ""))
        return Response(body, headers={"Cache-Control": "no-store", "Content-Type": kind})

    def _now(self) -> Iterator[Metric]:
        service = self._service
        try:
            require_ready(service)
            ready = 1.0
        except Problem:
            ready = 0.0
        yield gauge("ready", "Whether /readyz says so.", ready)
        slots = service.slots
        yield by_state("runs_active", "Runs now.", {"running": slots.taken, "queued": slots.waiting})
        yield by_state("runs_most", "How many there may be.", {"running": slots.most, "queued": slots.most_waiting})
        yield from engine_metrics(service.backend.ready)


__all__ = ["HealthRoutes"]

"""What the server counts, for Prometheus. Labels come from the code, never from clients: there is a bounded number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sglspec.backends.base import Backend, Vitals, Watched

_SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})


class Metrics:
    """The counters of one application, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "sglspec_http_requests", "Answers, 499 for clients that left first.", ("method", "route", "status"),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "sglspec_http_request_seconds", "From a request's headers to the end of its answer.", ("route",),
            buckets=_SHORT, registry=registry,
        )  # fmt: skip
        self._rejected = Counter(
            "sglspec_rejected", "Requests that were refused for being too many, or while the server could not serve.",
            ("code",), registry=registry,
        )  # fmt: skip
        self._runs = Counter("sglspec_runs", "Runs that ended, by how.", ("status",), registry=registry)
        self._run_seconds = Histogram(
            "sglspec_run_seconds", "From a run's request to its end.", buckets=_SHORT, registry=registry
        )
        self._queue_seconds = Histogram(
            "sglspec_run_queue_seconds", "From a run's request to its turn.", buckets=_SHORT, registry=registry
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """An answer has gone out. route: the address as the code writes it, empty for what is none."""
        known = method if method in METHODS else "other"
        self._requests.labels(known, route or "none", str(status or 499)).inc()
        self._seconds.labels(route or "none").observe(seconds)

    def rejected(self, code: str) -> None:
        self._rejected.labels(code).inc()

    def run_ended(self, status: str, seconds: float, waited: float | None) -> None:
        """seconds: since it was asked for; waited: for its turn, None when it never came."""
        self._runs.labels(status).inc()
        self._run_seconds.observe(seconds)
        if waited is not None:
            self._queue_seconds.observe(waited)

    def watch(self, look: Callable[[], Iterable[Metric]]) -> None:
        """Add values that are looked up whenever somebody asks."""
        self._registry.register(_Looked(look))

    def page(self, accept: str) -> tuple[bytes, str]:
        """Everything, in the format that the reader takes, and its content type."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind


class _Looked(Collector):
    def __init__(self, look: Callable[[], Iterable[Metric]]) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        return self._look()

    def describe(self) -> Iterable[Metric]:
        return ()


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"sglspec_{name}", text, value=value)


def by_state(name: str, text: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"sglspec_{name}", text, labels=("state",))
    for state, value in values.items():
        family.add_metric((state,), value)
    return family


def engine_metrics(backend: Backend | None) -> Iterator[Metric]:
    """What an engine says of itself; nothing where there is none that does."""
    if not isinstance(backend, Watched):
        return
    vitals: Vitals = backend.vitals
    yield gauge("engine_up", "Whether the engine's thread runs.", float(vitals.alive))
    yield by_state("engine_requests", "Requests in the engine.", {"running": vitals.running, "waiting": vitals.waiting})
    yield gauge(
        "engine_still_seconds", "How long it has done nothing although there is something to do.", vitals.still_seconds
    )
    kv = {"live": vitals.live, "cached": vitals.cached, "free": vitals.capacity - vitals.live - vitals.cached}
    yield by_state("kv_tokens", "Tokens whose keys and values are held, are kept, and would fit besides.", kv)
    usage = vitals.usage
    totals: dict[str, tuple[str, Any]] = {
        "prompt_tokens": ("Tokens of contexts that requests went on from.", usage.prompt_tokens),
        "computed_tokens": ("Tokens that went through the model.", usage.computed_tokens),
        "reused_tokens": ("Tokens of contexts that were there already.", usage.reused_tokens),
        "generated_tokens": ("Tokens that were sampled.", usage.generated_tokens),
        "forced_tokens": ("Those of them that a constraint left no choice for.", usage.forced_tokens),
        "engine_steps": ("Rounds that ran the model.", vitals.steps),
        "engine_requests_taken": ("Requests that the engine took.", vitals.requests),
        "engine_requests_failed": ("Those of them that failed.", vitals.failed),
        "engine_requests_cancelled": ("Those of them that were cancelled.", vitals.cancelled),
        "engine_preempted": ("How often one lost its memory to an older one.", vitals.preempted),
        "engine_evicted_tokens": ("Kept tokens that gave way to others.", vitals.evicted),
        "engine_model_seconds": ("Time inside the model.", vitals.seconds),
    }
    for name, (text, value) in totals.items():
        yield CounterMetricFamily(f"sglspec_{name}", text, value=value)


__all__ = ["METHODS", "Metrics", "by_state", "engine_metrics", "gauge"]

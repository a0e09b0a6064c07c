"""The workloads, by name."""

from __future__ import annotations

from benchmarks.workloads.base import Workload
from benchmarks.workloads.fork import Fork
from benchmarks.workloads.json_schema import JsonSchema
from benchmarks.workloads.prefill import Prefill
from benchmarks.workloads.prefix import Prefix
from benchmarks.workloads.select import SelectKnown, SelectMany, SelectRows
from benchmarks.workloads.single import Single
from benchmarks.workloads.streams import Streams

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Single(),
        Streams(16),
        Streams(32),
        Prefill(),
        Fork(),
        Prefix(),
        JsonSchema(),
        SelectMany(),
        SelectKnown(),
        SelectRows(),
    )
}

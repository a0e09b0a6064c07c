"""Invariants of a whole engine, for tests and for idle moments."""

from __future__ import annotations

from sglspec_engine.kv.pool import Pool


def check_engine(pool: Pool) -> None:
    """Raise AssertionError unless every lease, node and slot is accounted for. On the engine's thread."""
    pool.check()
    if pool.live_leases == 0:
        assert pool.live_bytes == 0, f"{pool.live_bytes} bytes are held by nobody"

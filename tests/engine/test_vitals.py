"""What an engine says of itself while it works, while it is stuck, and when it has ended."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from sglspec_engine.types import TextSegment
from tests.engine.drive import collect, running, until_forwards


async def test_idle_at_work_and_idle_again(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        before = engine.vitals
        assert (before.alive, before.running, before.waiting, before.still_seconds) == (True, 0, 0, 0.0)
        assert (before.live, before.cached, before.steps) == (0, 0, 0)
        assert before.capacity * engine.pool.layout.bytes_per_token <= engine.pool.limit
        session = engine.open()
        await session.extend([TextSegment("Once")])
        task = asyncio.create_task(collect(session, max_tokens=40, ignore_eos=True))
        await until_forwards(engine, 3)
        during = engine.vitals
        assert during.running == 1
        assert during.live > 0
        await task
        await session.close()
        await engine.check()
        after = engine.vitals
        assert (after.running, after.waiting, after.still_seconds, after.live) == (0, 0, 0.0, 0)
        assert (after.requests, after.failed) == (1, 0)
        assert after.steps >= 40
        assert after.usage.generated_tokens == 40
        assert after.cached > 0
    ended = engine.vitals
    assert not ended.alive


async def test_an_engine_that_is_stuck_shows_it(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        gate, stuck = threading.Event(), threading.Event()

        def hold() -> None:
            stuck.set()
            gate.wait()

        holding = asyncio.create_task(engine.call(hold))
        await asyncio.to_thread(stuck.wait)
        session = engine.open()
        await session.extend([TextSegment("Once")])
        task = asyncio.create_task(collect(session, max_tokens=3, ignore_eos=True))
        seen = 0.0
        while seen < 0.05:  # it only grows while nothing moves
            await asyncio.sleep(0.01)
            now = engine.vitals.still_seconds
            assert now >= seen
            seen = now
        gate.set()
        await holding
        await task
        await session.close()
        await engine.check()
        assert engine.vitals.still_seconds == 0.0

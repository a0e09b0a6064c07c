"""Requests with the same new prefix, submitted together: one computes it, and whatever happens to that one, the others
read nothing that was freed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sglspec_engine.engine import Engine
from sglspec_engine.model.adapter import ModelRunner
from sglspec_engine.session import Session
from sglspec_engine.types import EngineError, GenRequest, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running, together, until_forwards

PREFIX = "Shared. " + " ".join(random.Random(4).choices(["one", "two", "three", "four", "five", "six", "seven"], k=60))
FIRST_STEPS = 3


async def sessions(engine: Engine, count: int) -> list[Session]:
    found = [engine.open() for _ in range(count)]
    for i, session in enumerate(found):
        await session.extend([TextSegment(f"{PREFIX} {i}")])
    return found


async def checked(oracle: Oracle, session: Session, count: int = 6) -> int:
    """Generate, compare with transformers; returns the reused tokens."""
    prompt = ids_of(session)
    finish, tokens = await collect(session, max_tokens=count, ignore_eos=True)
    oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
    oracle.assert_logprobs(prompt, tokens)
    return finish.usage.reused_tokens


async def test_the_first_is_cancelled_while_it_computes(tiny_llama: Path) -> None:
    """The next one takes its place, and the third waits for that one."""
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, debug=True, step_tokens=16) as engine:
        first, second, third = await sessions(engine, 3)
        tasks = await together(engine, collect(first, max_tokens=6), checked(oracle, second), checked(oracle, third))
        await until_forwards(engine, FIRST_STEPS)
        tasks[0].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert engine.metrics.deferred == 2
        prefix = len(ids_of(second)) - 8
        assert isinstance(done[2], int) and done[2] >= prefix
        for one in (first, second, third):
            await one.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_the_first_is_closed_while_it_computes(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, debug=True, step_tokens=16) as engine:
        first, second = await sessions(engine, 2)
        tasks = await together(engine, collect(first, max_tokens=6), checked(oracle, second))
        await until_forwards(engine, FIRST_STEPS)
        await first.close()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], EngineError)
        assert isinstance(done[1], int)
        await second.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_the_first_fails_while_it_computes(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, debug=True, step_tokens=16) as engine:
        first, second, third = await sessions(engine, 3)
        forward: Callable[..., object] = ModelRunner.forward
        calls: list[int] = []

        def failing(self: ModelRunner, ids: Sequence[int], *rest: Any) -> object:
            calls.append(len(ids))
            if len(calls) == FIRST_STEPS:
                raise RuntimeError("broken")
            return forward(self, ids, *rest)

        monkeypatch.setattr(ModelRunner, "forward", failing)
        tasks = await together(engine, collect(first, max_tokens=6), checked(oracle, second), checked(oracle, third))
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], EngineError) and done[0].kind == "internal"
        assert isinstance(done[1], int) and isinstance(done[2], int)
        assert engine.metrics.failed == 1
        for one in (first, second, third):
            await one.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_the_first_is_preempted_while_others_read_its_prefix(tiny_llama: Path) -> None:
    """Memory for the prefix and a part of what all generate: the youngest gives its part back and comes again, while
    the others go on reading the prefix. An older, larger one takes memory from the one that computes the prefix."""
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        size = engine.pool.layout.bytes_per_token
        prefix = len(ids_of((await sessions(engine, 1))[0]))
    async with running(tiny_llama, debug=True, step_tokens=24, max_kv_bytes=(prefix + 190) * size) as engine:
        old = engine.open()
        await old.extend([TextSegment("older")])
        rest = await sessions(engine, 3)
        tasks = await together(engine, checked(oracle, old, 150), *(checked(oracle, one, 50) for one in rest))
        done = await asyncio.gather(*tasks)
        assert engine.metrics.preempted > 0
        assert engine.metrics.deferred == 2
        assert len(done) == 4
        for one in (old, *rest):
            await one.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_a_stream_that_is_left_and_one_that_follows(tiny_llama: Path) -> None:
    """The first is left after its first token, in the step in which the second has just begun to read its prefix."""
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, debug=True) as engine:
        first, second = await sessions(engine, 2)

        async def leave() -> None:
            stream = first.generate(GenRequest(max_tokens=50, ignore_eos=True))
            await anext(stream)
            await stream.aclose()
            await first.close()

        tasks = await together(engine, leave(), checked(oracle, second, 20))
        reused = (await asyncio.gather(*tasks))[1]
        assert isinstance(reused, int) and reused > len(ids_of(second)) - 30
        await second.close()
        await engine.check()
        assert engine.pool.live_bytes == 0

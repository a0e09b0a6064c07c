"""What a context's tokens were expected to be, against one full forward of transformers; tokens written as they are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from sglspec_engine.types import EngineError, Reading, RoleOpen, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running

TEXT = "the quick brown fox jumps over the lazy dog, and then over the other one; naïve 日本 🙂"


def assert_read(oracle: Oracle, ids: list[int], start: int, reading: Reading, watched: tuple[int, ...]) -> None:
    table = torch.log_softmax(oracle.logits(ids), dim=-1)[:, : oracle.vocabulary.size]
    assert len(reading.places) == len(ids) - start + 1
    for at, place in enumerate(reading.places, start):
        row = table[at - 1]
        if at < len(ids):
            assert place.token is not None and place.token.id == ids[at]
            assert abs(place.token.logprob - float(row[ids[at]])) < 1e-4
        else:
            assert place.token is None
        best = row.topk(len(place.top)).values.tolist()
        assert [one.logprob for one in place.top] == pytest.approx(best, abs=1e-4)
        assert [one.id for one in place.watched] == list(watched)
        assert [one.logprob for one in place.watched] == pytest.approx([float(row[id]) for id in watched], abs=1e-4)


@pytest.mark.parametrize("settings", [{}, {"step_tokens": 7, "step_logits": 3}, {"prefix_cache": False}], ids=str)
async def test_every_place_is_as_a_full_forward_says(tiny_llama: Path, settings: dict[str, Any]):
    oracle = Oracle(tiny_llama)
    ids = oracle.vocabulary.encode([TEXT])
    watched = (5, 17, 5)
    async with running(tiny_llama, debug=True, **settings) as engine:
        for start in (1, 4, len(ids) - 1, len(ids), 1):
            session = engine.open()
            await session.extend_tokens(ids)
            reading = await session.read(start, top=3, watched=watched)
            assert_read(oracle, ids, start, reading, watched)
            assert reading.usage.prompt_tokens == len(ids)
            assert reading.usage.computed_tokens + reading.usage.reused_tokens >= len(ids)
            assert ids_of(session) == ids
            # A generation goes on from there, and a reading after it sees what was generated.
            finish, tokens = await collect(session, max_tokens=4, ignore_eos=True, watched=watched)
            oracle.assert_greedy(ids, [t.id for t in tokens], banned=sorted(oracle.vocabulary.eos_ids))
            assert [a.id for a in tokens[0].watched] == list(watched)
            assert finish.reason == "length"
            assert_read(oracle, ids_of(session), 2, await session.read(2, 1), ())
            await session.close()
        assert engine.pool.live_leases == 0


async def test_many_at_once_share_what_they_begin_with(tiny_llama: Path):
    oracle = Oracle(tiny_llama)
    ids = oracle.vocabulary.encode([TEXT])
    cases = [[*ids, extra, 9] for extra in (3, 4, 5, 6)]
    async with running(tiny_llama, debug=True) as engine:
        first = engine.open()
        await first.extend_tokens(ids)
        await first.read(len(ids))
        sessions = [engine.open() for _ in cases]
        for session, case in zip(sessions, cases, strict=True):
            await session.extend_tokens(case)
        readings = await asyncio.gather(*(session.read(len(ids) - 1) for session in sessions))
        for case, reading in zip(cases, readings, strict=True):
            assert_read(oracle, case, len(ids) - 1, reading, ())
            assert reading.usage.reused_tokens >= len(ids) - 2
        for session in (first, *sessions):
            await session.close()


async def test_what_cannot_be_read_or_written(tiny_llama: Path):
    async with running(tiny_llama) as engine:
        session = engine.open()
        size = engine.vocabulary.size
        for ids in ([-1], [size], [3, 10**9]):
            with pytest.raises(EngineError, match="there is no token"):
                await session.extend_tokens(ids)
        await session.extend_tokens([3, 4])
        for start in (0, -1, 3):
            with pytest.raises(EngineError, match="from 1 to 2"):
                await session.read(start)
        with pytest.raises(EngineError, match="there is no token"):
            await session.read(1, watched=[size])
        with pytest.raises(EngineError, match="there is no token"):
            await collect(session, max_tokens=1, watched=(size,))
        await session.extend([TextSegment(" and text")])
        assert len((await session.read(1)).places) == len(ids_of(session))
        await session.extend([RoleOpen("user")])
        with pytest.raises(EngineError, match="into a message"):
            await session.extend_tokens([3])
        await session.close()


async def test_a_reading_that_is_left_ends(tiny_llama: Path):
    oracle = Oracle(tiny_llama)
    ids = oracle.vocabulary.encode([TEXT * 4])
    async with running(tiny_llama, debug=True, step_tokens=2) as engine:
        session = engine.open()
        await session.extend_tokens(ids)
        task = asyncio.create_task(session.read(1))
        while engine.metrics.forwards < 3:  # noqa: ASYNC110 (the engine's thread counts, it signals no one)
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_read(oracle, ids, len(ids), await session.read(len(ids)), ())
        await session.close()


async def test_flush_forgets_what_nobody_uses(tiny_llama: Path):
    async with running(tiny_llama, debug=True) as engine:
        ids = engine.vocabulary.encode([TEXT])
        held = engine.open()
        await held.extend_tokens(ids[:5])
        await held.read(5)
        session = engine.open()
        await session.extend_tokens(ids)
        await session.read(len(ids))
        await session.close()
        assert engine.pool.tree.cached > 0
        assert not await engine.flush()
        assert engine.pool.tree.cached == 0
        await held.close()
        assert await engine.flush()
        assert engine.pool.arena.used == 0

"""Sessions that begin alike share what was computed, and nothing else changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from sglspec_engine.types import RoleOpen, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running, turn

SHOTS = "red: warm. blue: cold. grey: dull. gold: bright. " * 8


async def test_a_later_session_computes_only_what_is_new(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        first = engine.open()
        await first.extend([TextSegment(SHOTS + "teal:")])
        finish, _ = await collect(first, max_tokens=4, ignore_eos=True)
        assert finish.usage.reused_tokens == 0
        held = len(ids_of(first)) - 1
        await first.close()
        await engine.check()
        assert engine.pool.live_bytes == 0
        assert engine.pool.cached_bytes == held * engine.pool.layout.bytes_per_token
        for _ in range(2):
            second = engine.open()
            await second.extend([TextSegment(SHOTS + "pink:")])
            prompt = ids_of(second)
            before = engine.metrics.embedded_tokens
            finish, tokens = await collect(second, max_tokens=4, ignore_eos=True)
            assert finish.usage.reused_tokens >= len(prompt) - 5
            assert finish.usage.reused_tokens + finish.usage.computed_tokens == len(prompt) + 3
            assert engine.metrics.embedded_tokens - before == finish.usage.computed_tokens
            oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
            oracle.assert_logprobs(prompt, tokens)


async def test_a_prompt_that_is_cached_whole_computes_one_token(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        tokens = []
        for _ in range(2):
            session = engine.open()
            await session.extend([TextSegment(SHOTS)])
            finish, found = await collect(session, max_tokens=3, ignore_eos=True)
            tokens.append([t.id for t in found])
            await session.close()
        assert finish.usage.reused_tokens == finish.usage.prompt_tokens - 1
        assert tokens[0] == tokens[1]


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "mistral", "gemma2"])
async def test_cold_and_warm_logits_agree(architecture: str, tiny_model: Callable[[str], Path]) -> None:
    path = tiny_model(architecture)
    oracle = Oracle(path)
    async with running(path) as engine:
        for _ in range(3):
            session = engine.open()
            await session.extend([*turn(SHOTS[:150]), RoleOpen("assistant")])
            prompt = ids_of(session)
            _, tokens = await collect(session, max_tokens=8, ignore_eos=True)
            oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
            oracle.assert_logprobs(prompt, tokens)
            scores = await session.score([" one", " two three"], "sum")
            assert scores.usage.reused_tokens > 0
            await session.close()


async def test_the_switch_changes_nothing_but_the_counters(tiny_llama: Path) -> None:
    outputs: list[list[str]] = []
    computed: list[int] = []
    for cache in (True, False):
        async with running(tiny_llama, prefix_cache=cache) as engine:
            texts: list[str] = []
            for tail in ("a", "b", "a"):
                session = engine.open()
                await session.extend([TextSegment(SHOTS + tail)])
                texts += [(await collect(b, max_tokens=6, ignore_eos=True))[0].text for b in await session.fork(2)]
                texts.append((await collect(session, max_tokens=6, ignore_eos=True))[0].text)
                await session.close()
            outputs.append(texts)
            computed.append(engine.metrics.embedded_tokens)
            await engine.check()
    assert outputs[0] == outputs[1]
    assert computed[0] < computed[1] / 2


async def test_without_the_cache_nothing_outlives_its_session(tiny_llama: Path) -> None:
    async with running(tiny_llama, prefix_cache=False) as engine:
        session = engine.open()
        await session.extend([TextSegment(SHOTS)])
        branches = await session.fork(3)
        await asyncio.gather(*(collect(b, max_tokens=3, ignore_eos=True) for b in branches))
        for one in (session, *branches):
            await one.close()
        await engine.check()
        assert (engine.pool.live_bytes, engine.pool.cached_bytes) == (0, 0)


async def test_a_small_pool_is_churned_and_stays_right(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        size = engine.pool.layout.bytes_per_token
    async with running(tiny_llama, max_kv_bytes=120 * size) as engine:
        for i in range(12):
            session = engine.open()
            await session.extend([TextSegment(f"{i % 4} is where this one begins, and it goes on for some time: {i}")])
            prompt = ids_of(session)
            _, tokens = await collect(session, max_tokens=5, ignore_eos=True)
            oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
            if i % 4 == 0:
                await session.close()
            await engine.check()
        assert engine.pool.tree.evicted > 0
        assert engine.pool.parked > 0

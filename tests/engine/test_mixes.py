"""Random mixes of everything that decides where keys and values come from: greedy tokens stay those of transformers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from sglspec_engine.engine import Engine
from sglspec_engine.session import Session
from sglspec_engine.step import StepPlan
from sglspec_engine.types import EngineError, GenRequest, Sampling, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running, together

TEXT = "the quick brown fox jumps over the lazy dog and then some more of the same text again"
WORDS = TEXT.split()
STARTS = [" ".join(random.Random(i).choices(WORDS, k=14 + 5 * i)) for i in range(3)]


async def program(engine: Engine, oracle: Oracle, rng: random.Random, size: int = 3) -> None:
    """A small program: a prompt that others share, generations, forks, scorings, things that are left halfway."""
    session = engine.open()
    await session.extend([TextSegment(rng.choice(STARTS) + rng.choice(["", " and", " fox"]))])
    live = [session]
    for _ in range(size):
        one = rng.choice(live)
        act = rng.choice(["generate", "generate", "fork", "leave", "score", "write", "close"])
        if act == "generate":
            await checked(one, oracle, rng.choice([1, 4, 9, 40]))
        elif act == "fork":
            branches = await one.fork(rng.randint(1, 3))
            for i, branch in enumerate(branches):
                await branch.extend([TextSegment(f" {i} {rng.choice(WORDS)}")])
            await asyncio.gather(*(checked(branch, oracle, rng.choice([2, 6, 70])) for branch in branches))
            live += branches
        elif act == "leave":
            stream = one.generate(GenRequest(max_tokens=30, ignore_eos=True))
            for _ in range(rng.randint(0, 3)):
                await anext(stream)
            await stream.aclose()
        elif act == "score":
            await scored(one, oracle)
        elif act == "write":
            await one.extend([TextSegment(" " + " ".join(rng.choices(WORDS, k=rng.randint(1, 8))))])
        elif len(live) > 1:
            live.remove(one)
            await one.close()
    for one in live:
        await one.close()


async def checked(session: Session, oracle: Oracle, count: int) -> None:
    prompt = ids_of(session)
    finish, tokens = await collect(session, max_tokens=count, ignore_eos=True)
    oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
    oracle.assert_logprobs(prompt, tokens)
    usage = finish.usage
    assert usage.prompt_tokens == len(prompt) >= usage.reused_tokens
    # What a twin in the same step computes is counted there.
    assert usage.computed_tokens >= usage.prompt_tokens - usage.reused_tokens


async def scored(session: Session, oracle: Oracle) -> None:
    context = ids_of(session)
    scores = await session.score([" fox", " lazy dog", " fox jumps over"], "sum")
    for tokens in scores.tokens:
        own = [id for id, _ in tokens]
        shared = context[: len(context)]
        expected = oracle.logprobs([*shared, *own])[len(shared) - 1 :]
        if oracle.vocabulary.decode_bytes(own).startswith(b" "):
            assert [p for _, p in tokens] == pytest.approx(expected, abs=1e-4)


MIXES: list[dict[str, Any]] = [
    {},
    {"prefix_cache": False},
    {"step_tokens": 7, "step_logits": 3},
    {"attention": "reference", "order": "fcfs"},
    {"order": "random", "forks": "sequential", "step_tokens": 16},
    {"slots": 280},
    {"slots": 270, "step_tokens": 16, "order": "fcfs"},
    {"slots": 260, "prefix_cache": False, "step_tokens": 32},
    {"attention": "gather", "step_tokens": 24},
]


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma2", "gpt_oss", "qwen3"])
async def test_programs_side_by_side(architecture: str, tiny_model: Callable[[str], Path]) -> None:
    path = tiny_model(architecture)
    oracle = Oracle(path)
    for number, mix in enumerate(MIXES if architecture == "llama" else MIXES[1::3] + MIXES[2::4]):
        settings = dict(mix)
        slots = settings.pop("slots", None)
        if slots is not None:
            settings["max_kv_bytes"] = slots * await bytes_per_token(path)
        rng = random.Random(number)
        async with running(path, debug=True, **settings) as engine:
            programs = [program(engine, oracle, random.Random(rng.random())) for _ in range(8)]
            results = await asyncio.gather(*programs, return_exceptions=True)
            assert [r for r in results if r is not None] == []
            await engine.check()
            assert engine.pool.live_bytes == 0
            assert engine.pool.cached_bytes == 0 or mix.get("prefix_cache", True)


async def bytes_per_token(path: Path) -> int:
    async with running(path) as engine:
        return engine.pool.layout.bytes_per_token


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma2", "gpt_oss"])
async def test_a_preempted_generation_goes_on_as_if_nothing_had_happened(
    architecture: str, tiny_model: Callable[[str], Path]
) -> None:
    path = tiny_model(architecture)
    oracle = Oracle(path)
    size = await bytes_per_token(path)
    async with running(path, max_kv_bytes=260 * size, debug=True) as engine:
        sessions = [engine.open() for _ in range(4)]
        for i, session in enumerate(sessions):
            await session.extend([TextSegment(f"{i} " + STARTS[i % 3])])
        prompts = [ids_of(session) for session in sessions]
        done = await asyncio.gather(*(collect(s, max_tokens=90, ignore_eos=True, noise_key=1) for s in sessions))
        assert engine.metrics.preempted > 0
        for prompt, (finish, tokens) in zip(prompts, done, strict=True):
            assert len(tokens) == finish.usage.generated_tokens == 90
            oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
            oracle.assert_logprobs(prompt, tokens)
        assert engine.usage.computed_tokens == engine.metrics.embedded_tokens


async def test_what_exceeds_the_memory_fails_alone(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    size = await bytes_per_token(tiny_llama)
    async with running(tiny_llama, max_kv_bytes=200 * size, debug=True) as engine:
        small, large = [engine.open() for _ in range(3)], engine.open()
        for i, session in enumerate(small):
            await session.extend([TextSegment(f"{i} " + STARTS[0])])
        await large.extend([TextSegment("long")])
        before = ids_of(large)
        results = await asyncio.gather(
            collect(large, max_tokens=400, ignore_eos=True),
            *(checked(s, oracle, 40) for s in small),
            return_exceptions=True,
        )
        assert isinstance(results[0], EngineError)
        assert results[0].kind == "limit"
        assert results[1:] == [None, None, None]
        assert ids_of(large) == before
        for one in (*small, large):
            await one.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_two_with_the_same_new_prefix_compute_it_once(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    for steps in (512, 8):
        async with running(tiny_llama, debug=True, step_tokens=steps) as engine:
            sessions = [engine.open() for _ in range(4)]
            for i, session in enumerate(sessions):
                await session.extend([TextSegment(f"{STARTS[2]} {STARTS[1]} {i}")])
            whole = len(ids_of(sessions[0]))
            await asyncio.gather(*(await together(engine, *(checked(s, oracle, 6) for s in sessions))))
            assert engine.metrics.embedded_tokens <= whole + 4 * (3 + 6)
            assert engine.metrics.deferred == 3


async def test_many_with_random_cancels(tiny_llama: Path) -> None:
    """Programs that are cancelled anywhere leave nothing behind and disturb nobody."""
    oracle = Oracle(tiny_llama)
    size = await bytes_per_token(tiny_llama)
    async with running(tiny_llama, max_kv_bytes=300 * size, step_tokens=24) as engine:
        rng = random.Random(5)
        tasks = [asyncio.create_task(program(engine, oracle, random.Random(i), size=4)) for i in range(32)]
        for task in rng.sample(tasks, 16):
            await asyncio.sleep(rng.random() * 0.03)
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [r for r in results if r is not None and not isinstance(r, asyncio.CancelledError)] == []
        await engine.check()


async def test_memory_that_is_lost_at_every_other_step_changes_nothing(tiny_llama: Path) -> None:
    """Every running request loses what it has computed again and again, in the middle of whatever it is doing."""
    oracle = Oracle(tiny_llama)
    grammar = 'start: "the answer is " /[a-z]{4}/ " and no more"'

    async def run(engine: Engine) -> list[Any]:
        sessions = [engine.open() for _ in range(4)]
        for i, session in enumerate(sessions):
            await session.extend([TextSegment(f"{i} " + STARTS[0])])
        prompts = [ids_of(session) for session in sessions]
        done = await asyncio.gather(
            collect(sessions[0], max_tokens=12, ignore_eos=True),
            collect(sessions[1], max_tokens=12, ignore_eos=True, noise_key=3, sampling=Sampling(temperature=1.0)),
            collect(sessions[2], max_tokens=40, grammar=grammar),
            sessions[3].score([" fox jumps over", " lazy dog", " fox"], "unconditional"),
        )
        oracle.assert_greedy(prompts[0], [t.id for t in done[0][1]], banned=sorted(oracle.loaded.eos_ids))
        for prompt, (finish, tokens) in zip(prompts, done[:3], strict=False):
            assert finish.usage.generated_tokens == len(tokens)
            oracle.assert_logprobs(prompt, tokens)
        for session in sessions:
            await session.close()
        return [[t.id for t in tokens] for _, tokens in done[:3]] + [[round(s, 4) for s in done[3].scores]]

    async with running(tiny_llama, debug=True) as engine:
        undisturbed = await run(engine)
    async with running(tiny_llama, debug=True) as engine:
        scheduler = engine._loop._scheduler
        plan, calls = scheduler.plan, iter(range(10**6))

        def losing() -> StepPlan:
            if next(calls) % 2:
                for work in list(scheduler._running):
                    scheduler._preempt(work)
                engine.pool.tree.evict(engine.pool.tree.cached)
            return plan()

        with mock.patch.object(scheduler, "plan", losing):
            disturbed = await run(engine)
        assert engine.metrics.preempted > 10
    assert disturbed == undisturbed

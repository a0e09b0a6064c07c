"""What a queue of requests makes the model compute, against the least that any order could."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from sglspec_engine.engine import Engine
from sglspec_engine.types import EngineError, GenRequest, Sampling, TextSegment
from tests.engine.drive import collect, ids_of, running

TEXT = "the quick brown fox jumps over a lazy dog and then some more of it again but not now or here"
WORDS = TEXT.split()
GENERATED = 6


def few_shot(count: int = 40, groups: int = 8, seed: int = 11) -> list[str]:
    """Requests over few-shot prefixes of different lengths, shuffled. No two prefixes begin alike."""
    rng = random.Random(seed)
    prefixes = [f"{chr(65 + g)} task. " + " ".join(rng.choices(WORDS, k=25 + 9 * g)) for g in range(groups)]
    starts = ["0", "1", "2", "3", "4"]
    texts = [f"{prefixes[i % groups]} {starts[i // groups]} " + " ".join(rng.choices(WORDS, k=3)) for i in range(count)]
    rng.shuffle(texts)
    return texts


def optimum(prompts: Sequence[Sequence[int]]) -> int:
    """The least number of prompt tokens that can be computed, in any order and with any cache: each node of the trie
    of all prompts once. Holds where no prompt is the beginning of another one (whose last token is always computed
    for its logits), which is asserted."""
    seen = {tuple(ids[:n]) for ids in prompts for n in range(1, len(ids) + 1)}
    inner = {tuple(ids[:n]) for ids in prompts for n in range(1, len(ids))}
    assert not inner & {tuple(ids) for ids in prompts}
    assert len({tuple(ids) for ids in prompts}) == len(prompts)
    return len(seen)


async def queued(engine: Engine, texts: Sequence[str]) -> tuple[list[list[int]], list[str], int]:
    """Generate for all texts, which are all in the queue before the first step. Returns the prompts, the generated
    texts and the computed prompt tokens."""
    gate = threading.Event()
    holding = asyncio.create_task(engine.call(lambda: _wait(gate)))
    sessions = [engine.open() for _ in texts]
    for session, text in zip(sessions, texts, strict=True):
        await session.extend([TextSegment(text)])
    prompts = [ids_of(session) for session in sessions]

    async def one(index: int) -> str:
        finish, _ = await collect(sessions[index], max_tokens=GENERATED, ignore_eos=True)
        await sessions[index].close()
        return finish.text

    before = engine.metrics.embedded_tokens
    tasks = [asyncio.create_task(one(i)) for i in range(len(texts))]
    for _ in range(3):
        await asyncio.sleep(0)
    gate.set()
    await holding
    found = [await task for task in tasks]
    computed = engine.metrics.embedded_tokens - before
    return prompts, found, computed - len(texts) * (GENERATED - 1)


def _wait(gate: threading.Event) -> None:
    gate.wait()


async def size_of(path: Path) -> int:
    async with running(path) as engine:
        return engine.pool.layout.bytes_per_token


async def test_a_cache_that_fits_computes_each_distinct_prefix_once(tiny_llama: Path) -> None:
    for hints in (True, False):
        async with running(tiny_llama, hints=hints) as engine:
            prompts, _, computed = await queued(engine, few_shot())
            assert computed == optimum(prompts)
            assert engine.metrics.deferred == 40 - 8


async def test_with_a_third_of_the_working_set_hits_stay_near_the_optimum(tiny_llama: Path) -> None:
    """The working set is all distinct prompt tokens. The optimum is that of a cache without bounds, which no order can
    beat: a walk of the prefixes depth first needs room for one path only, so it is the bound for this order too."""
    size = await size_of(tiny_llama)
    for seed in (11, 5):
        texts = few_shot(seed=seed)
        async with running(tiny_llama) as engine:
            prompts, expected, _ = await queued(engine, texts)
        total, best = sum(len(ids) for ids in prompts), optimum(prompts)
        limit = best // 3 * size
        rates: dict[str, float] = {}
        for order in ("prefix", "fcfs", "random"):
            async with running(tiny_llama, max_kv_bytes=limit, order=order) as engine:
                _, found, computed = await queued(engine, texts)
                assert found == expected
                assert engine.metrics.evicted > 0
                rates[order] = (total - computed) / (total - best)
        assert rates["prefix"] >= 0.95
        assert rates["fcfs"] < 0.7 and rates["random"] < 0.7


async def test_concurrent_forks_of_one_program_share_their_trunk(tiny_llama: Path) -> None:
    """Four runs of one program, together: the literal before the fork is computed once for all, and so is each branch's
    own literal; a branch takes one token more, for its logits."""
    async with running(tiny_llama) as engine:
        trunk = "Shared. " + " ".join(random.Random(3).choices(WORDS, k=60))

        async def program() -> list[list[int]]:
            session = engine.open()
            await session.extend([TextSegment(trunk)])
            branches = await session.fork(3)
            for i, branch in enumerate(branches):
                await branch.extend([TextSegment(f" {i} " + " ".join(random.Random(i).choices(WORDS, k=40)))])
            prompts = [ids_of(branch) for branch in branches]
            await asyncio.gather(*(collect(branch, max_tokens=4, ignore_eos=True) for branch in branches))
            for one in (*branches, session):
                await one.close()
            return prompts

        gate = threading.Event()
        holding = asyncio.create_task(engine.call(lambda: _wait(gate)))
        runs = [asyncio.create_task(program()) for _ in range(4)]
        for _ in range(3):
            await asyncio.sleep(0)
        gate.set()
        await holding
        prompts = [await run for run in runs]
        assert all(one == prompts[0] for one in prompts)
        computed = engine.metrics.embedded_tokens - 4 * 3 * 3
        assert computed <= optimum(prompts[0]) + 4 * (3 + 1)


async def test_a_loop_computes_only_what_each_round_adds(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Loop. " + " ".join(random.Random(1).choices(WORDS, k=90)))])
        for i in range(4):
            held = len(ids_of(session))
            await session.extend([TextSegment(f" Round {i}.")])
            added = len(ids_of(session)) - (held if i else 0)
            finish, _ = await collect(session, max_tokens=4, ignore_eos=True)
            assert finish.usage.computed_tokens == added + 3 + (i > 0), (
                "the last token of a round is not computed in it"
            )
        await session.close()


async def test_sampled_text_is_the_first_to_go(tiny_llama: Path) -> None:
    """A prompt that comes again stays, while sampled contexts come and go."""
    size = await size_of(tiny_llama)
    reused: dict[bool, int] = {}
    sampling = Sampling(temperature=1.0)
    for hints in (True, False):
        async with running(tiny_llama, max_kv_bytes=200 * size, hints=hints) as engine:
            reused[hints] = 0
            for i in range(4):
                session = engine.open()
                await session.extend([TextSegment("Again. " + " ".join(random.Random(2).choices(WORDS, k=40)))])
                finish, _ = await collect(session, max_tokens=2, ignore_eos=True)
                reused[hints] += finish.usage.reused_tokens
                await session.close()
                for j in range(2):
                    session = engine.open()
                    await session.extend([TextSegment(f"{i} {j}")])
                    for _ in range(2):
                        request = GenRequest(max_tokens=45, ignore_eos=True, sampling=sampling, noise_key=i)
                        async for _ in session.generate(request):
                            pass
                    await session.close()
            assert (engine.metrics.transient > 0) == hints
    assert reused[True] > reused[False]


async def test_a_retired_branch_gives_its_memory_back_at_once(tiny_llama: Path) -> None:
    texts: dict[bool, list[str]] = {}
    for hints in (True, False):
        async with running(tiny_llama, debug=True, hints=hints) as engine:
            session = engine.open()
            await session.extend([TextSegment("Trunk. " + " ".join(WORDS))])
            branches = await session.fork(2)
            for i, branch in enumerate(branches):
                await branch.extend([TextSegment(f" branch {i}")])
            found = [await collect(branch, max_tokens=70, ignore_eos=True) for branch in branches]
            texts[hints] = [finish.text for finish, _ in found]
            before, prompt, text = engine.pool.live_bytes, ids_of(branches[0])[:-70], branches[0].text()
            for branch in branches:
                branch.retire()
                branch.retire()
            await engine.check()
            assert (engine.pool.live_bytes < before) == hints
            assert engine.metrics.dropped == (2 * 69 if hints else 0)
            assert branches[0].text() == text
            for branch in branches:
                await branch.close()
            root = engine.pool.root()
            assert engine.pool.tree.match(root, prompt) == len(prompt), "what could recur is kept"
            if hints:
                with pytest.raises(EngineError):
                    await branches[0].extend([TextSegment("more")])
            await session.close()
    assert texts[True] == texts[False]

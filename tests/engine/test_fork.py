"""Forks: the prefix is computed once, branches run in one batch, and nothing is left when they close."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sglspec_engine.types import EngineError, GenRequest, RoleClose, RoleOpen, Sampling, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running, turn, until_forwards

LONG = "the quick brown fox jumps over the lazy dog. " * 60


async def test_eight_branches_compute_a_long_prefix_once(tiny_llama: Path) -> None:
    async with running(tiny_llama, max_context=4096) as engine:
        session = engine.open()
        await session.extend([TextSegment(LONG)])
        prefix = len(ids_of(session))
        assert prefix > 1000
        branches = await session.fork(8)
        assert engine.metrics.embedded_tokens == prefix
        bytes_after_fork = engine.pool.live_bytes
        assert bytes_after_fork == prefix * engine.pool.layout.bytes_per_token
        for i, branch in enumerate(branches):
            await branch.extend([TextSegment(f" Branch {i}:")])
        steps = 20
        before = engine.metrics
        done = await asyncio.gather(*(collect(b, max_tokens=steps, ignore_eos=True) for b in branches))
        after = engine.metrics
        tail = sum(f.usage.computed_tokens for f, _ in done)
        assert after.embedded_tokens - before.embedded_tokens == tail
        assert tail <= 8 * (steps + 12), "only the branches' own tokens are computed"
        for branch, (finish, _) in zip(branches, done, strict=True):
            assert finish.usage.prompt_tokens == len(ids_of(branch)) - steps
            assert finish.usage.reused_tokens >= prefix - 2
            assert finish.usage.prompt_tokens - finish.usage.reused_tokens + steps - 1 == finish.usage.computed_tokens
        assert after.forwards - before.forwards <= steps + 4, "branches decode in one batch"
        assert after.largest_batch == 8
        assert session.usage.computed_tokens == prefix
        assert engine.usage.computed_tokens == after.embedded_tokens
        for branch in branches:
            await branch.close()
        await engine.check()
        assert engine.pool.live_bytes == bytes_after_fork
        await session.close()
        await engine.check()
        assert (engine.pool.live_bytes, engine.pool.live_leases) == (0, 0)


async def test_text_pending_at_a_fork_is_encoded_as_if_it_had_been_written_in_one_go(tiny_llama: Path) -> None:
    """The border between parent and branch lies inside what would be one token."""
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        for left, right in (("the qu", "ick brown"), ("12", "345 and"), ("a ", " b"), ("日", "本語"), ("th", "e")):
            straight = engine.open()
            await straight.extend([RoleOpen("user"), TextSegment(left + right)])
            parent = engine.open()
            await parent.extend([RoleOpen("user"), TextSegment(left)])
            [branch, other] = await parent.fork(2)
            await branch.extend([TextSegment(right)])
            assert ids_of(branch) == ids_of(straight)
            prompt = ids_of(branch)
            _, tokens = await collect(branch, max_tokens=6, ignore_eos=True)
            oracle.assert_greedy(prompt, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
            assert other.text() == parent.text()


async def test_an_open_message_is_open_in_every_branch(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([*turn("Hi"), RoleOpen("assistant"), TextSegment("So")])
        [branch] = await session.fork(1)
        await branch.extend([TextSegment(" far"), RoleClose()])
        assert branch.text().endswith("assistant\nSo far<|im_end|>\n")
        with pytest.raises(EngineError):
            await branch.extend([RoleClose()])


async def test_branches_outlive_their_parent(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("some shared beginning")])
        branches = await session.fork(3)
        await session.close()
        for branch in branches:
            prompt = ids_of(branch)
            _, tokens = await collect(branch, max_tokens=5)
            oracle.assert_greedy(prompt, [t.id for t in tokens])
            await branch.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_forks_of_nothing(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        assert await session.fork(0) == []
        branches = await session.fork(2)
        assert engine.metrics.forwards == 0
        await branches[0].extend(turn("a"))
        assert branches[0].text() != "" == branches[1].text()


async def test_concat_is_what_writing_it_there_gives(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([*turn("List"), RoleOpen("assistant"), TextSegment("It")])
        branches = await session.fork(3)
        await branches[0].extend([TextSegment("em one: ")])
        _, first = await collect(branches[0], max_tokens=4, ignore_eos=True)
        await branches[1].extend([TextSegment("em two, pla")])
        await branches[2].extend([TextSegment("in. ")])
        _, third = await collect(branches[2], max_tokens=3, ignore_eos=True)
        await branches[2].extend([TextSegment("\n"), RoleClose()])
        await session.concat(branches, "concat")

        straight = engine.open()
        await straight.extend([*turn("List"), RoleOpen("assistant"), TextSegment("Item one: ")])
        expected = [*ids_of(straight), *(t.id for t in first)]
        found = ids_of(session)
        assert found[: len(expected)] == expected
        sampled = [t.id for t in third]
        at = next(i for i in range(len(found)) if found[i : i + 3] == sampled and i >= len(expected))
        between = engine.vocabulary.decode_bytes(found[len(expected) : at]).decode()
        assert between == "em two, plain. "
        assert engine.vocabulary.encode(["em two, plain. "], after="text") == found[len(expected) : at]
        assert session.text().endswith("\n<|im_end|>\n")
        await session.extend([*turn("and"), RoleOpen("assistant")])
        prompt = ids_of(session)
        _, tokens = await collect(session, max_tokens=6)
        oracle.assert_greedy(prompt, [t.id for t in tokens])


async def test_concat_of_first_messages_has_one_default_system_message(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session, straight = engine.open(), engine.open()
        branches = await session.fork(2)
        await branches[0].extend(turn("one"))
        await branches[1].extend(turn("two"))
        await session.concat(branches, "concat")
        await straight.extend([*turn("one"), *turn("two")])
        assert session.text() == straight.text()
        assert ids_of(session) == ids_of(straight)


async def test_samples_do_not_depend_on_company(tiny_llama: Path) -> None:
    sampling = Sampling(temperature=1.2, top_p=0.95)

    async def draw(session, key: int) -> list[int]:
        _, tokens = await collect(session, max_tokens=15, ignore_eos=True, noise_key=key, sampling=sampling)
        return [t.id for t in tokens]

    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Tell me")])
        alone = [await draw(b, key) for key, b in enumerate(await session.fork(5))]
        crowd = await asyncio.gather(*(draw(b, key) for key, b in enumerate(await session.fork(5))))
        assert crowd == alone
        assert len({tuple(ids) for ids in alone}) == 5
    async with running(tiny_llama, step_tokens=3) as engine:
        session = engine.open()
        await session.extend([TextSegment("Tell me")])
        assert await draw(session, 3) == alone[3]


async def test_cancelling_a_fork_leaks_nothing(tiny_llama: Path) -> None:
    async with running(tiny_llama, max_context=4096, step_tokens=16) as engine:
        session = engine.open()
        await session.extend([TextSegment(LONG)])
        task = asyncio.create_task(session.fork(4))
        await until_forwards(engine, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stream = session.generate(GenRequest(max_tokens=2))
        async for _ in stream:
            pass
        await session.close()
        await engine.check()
        assert engine.pool.live_bytes == 0

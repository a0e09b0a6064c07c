"""Life and death of requests: one outcome each, errors that stay where they belong, cancelling, closing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest

from sglspec_engine.engine import Engine
from sglspec_engine.types import EngineError, GenRequest, RoleOpen, Sampling, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running, until_forwards


async def test_closing_the_stream_cancels_within_a_step(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Once")])
        prompt = ids_of(session)
        stream = session.generate(GenRequest(max_tokens=400, ignore_eos=True))
        seen = [await anext(stream) for _ in range(3)]
        forwards = engine.metrics.forwards
        await stream.aclose()
        assert engine.metrics.forwards <= forwards + 2
        kept = ids_of(session)[len(prompt) :]
        assert kept[:3] == [t.id for d in seen for t in d.tokens]
        await engine.check()
        assert engine.pool.live_bytes <= 64 * engine.pool.layout.bytes_per_token
        held = ids_of(session)
        _, tokens = await collect(session, max_tokens=5, ignore_eos=True)
        oracle.assert_greedy(held, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
        assert engine.metrics.cancelled == 1


async def test_cancelling_the_task_cancels_the_generation(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Once")])
        task = asyncio.create_task(collect(session, max_tokens=400, ignore_eos=True))
        await until_forwards(engine, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        before = ids_of(session)
        await session.extend([TextSegment(" more")])
        await collect(session, max_tokens=2)
        assert ids_of(session)[: len(before)] == before


async def test_cancelling_while_the_prompt_is_computed(tiny_llama: Path) -> None:
    async with running(tiny_llama, step_tokens=2) as engine:
        session = engine.open()
        await session.extend([TextSegment("a b c d e f g h i j k l m n o p q r s t")])
        before = ids_of(session)
        task = asyncio.create_task(collect(session, max_tokens=3))
        await until_forwards(engine, 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ids_of(session) == before
        finish, _ = await collect(session, max_tokens=3)
        assert 0 < finish.usage.reused_tokens < len(before), "what was computed is kept"


async def test_cancelling_a_scoring(tiny_llama: Path) -> None:
    async with running(tiny_llama, step_tokens=2, step_logits=1) as engine:
        session = engine.open()
        await session.extend([TextSegment("a b c d e f g h i j k l")])
        task = asyncio.create_task(session.score([" one two three four", " five six seven"], "sum"))
        await until_forwards(engine, 9)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await session.score([" a", " b"], "sum")
        await session.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_closing_a_session_ends_its_generation(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Once")])
        stream = session.generate(GenRequest(max_tokens=400, ignore_eos=True))
        await anext(stream)
        await session.close()
        await session.close()
        await stream.aclose()
        await engine.check()
        assert engine.pool.live_bytes == 0
        with pytest.raises(EngineError):
            await session.extend([TextSegment("x")])


async def test_a_stream_that_was_left_is_cancelled_by_what_follows(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Once")])
        stream = session.generate(GenRequest(max_tokens=450, ignore_eos=True))
        await anext(stream)
        await session.extend([TextSegment("!")])
        assert engine.metrics.forwards < 100
        assert session.text().endswith("!")
        with pytest.raises(EngineError):
            while True:
                await anext(stream)


async def test_a_context_that_is_too_long_fails_alone(tiny_llama: Path) -> None:
    async with running(tiny_llama, max_context=16) as engine:
        good, bad = engine.open(), engine.open()
        await good.extend([TextSegment("short")])
        await bad.extend([TextSegment("long " * 40)])
        results = await asyncio.gather(collect(good, max_tokens=4), collect(bad), bad.fork(2), return_exceptions=True)
        assert not isinstance(results[0], BaseException)
        for error in results[1:]:
            assert isinstance(error, EngineError)
            assert error.kind == "limit"


async def test_memory_for_keys_and_values_runs_out_for_one_only(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        size = engine.pool.layout.bytes_per_token
    async with running(tiny_llama, max_kv_bytes=100 * size) as engine:
        good, bad = engine.open(), engine.open()
        await good.extend([TextSegment("short")])
        await bad.extend([TextSegment("long " * 150)])
        results = await asyncio.gather(collect(good, max_tokens=4), collect(bad), return_exceptions=True)
        assert not isinstance(results[0], BaseException)
        assert isinstance(results[1], EngineError)
        assert results[1].kind == "limit"
        assert len(ids_of(bad)) > 100, "the text is still there"


async def test_an_exception_in_the_model_fails_that_step_only(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        sessions = [engine.open() for _ in range(3)]
        for session in sessions:
            await session.extend([TextSegment("abc")])
        before = ids_of(sessions[0])
        real = engine._runner.forward
        with mock.patch.object(engine._runner, "forward", side_effect=RuntimeError("broken")):
            results = await asyncio.gather(*(collect(s) for s in sessions), return_exceptions=True)
        assert all(isinstance(r, EngineError) and r.kind == "internal" for r in results)
        assert ids_of(sessions[0]) == before
        calls = iter([True, True, False])

        def sometimes(*args):
            if next(calls, True):
                return real(*args)
            raise RuntimeError("broken")

        with mock.patch.object(engine._runner, "forward", side_effect=sometimes), pytest.raises(EngineError):
            await collect(sessions[0], max_tokens=9, ignore_eos=True)
        assert ids_of(sessions[0]) == before, "an error leaves the context as it was"
        finish, _ = await collect(sessions[0], max_tokens=3, ignore_eos=True)
        assert finish.usage.generated_tokens == 3


async def test_a_defect_in_one_row_does_not_touch_the_others(tiny_llama: Path) -> None:
    from sglspec_engine.sample import Sampler

    async with running(tiny_llama) as engine:
        good, bad = engine.open(), engine.open()
        for session in (good, bad):
            await session.extend([TextSegment("abc")])
        real = Sampler.choose

        def choose(self, *args, **kwargs):
            if self._key == 13:
                raise ZeroDivisionError("defect")
            return real(self, *args, **kwargs)

        with mock.patch.object(Sampler, "choose", choose):
            results = await asyncio.gather(
                collect(good, max_tokens=4), collect(bad, max_tokens=4, noise_key=13), return_exceptions=True
            )
        assert not isinstance(results[0], BaseException)
        assert isinstance(results[1], EngineError)
        assert "ZeroDivisionError" in str(results[1])


async def test_no_token_comes_from_what_is_no_number(tiny_llama: Path) -> None:
    """One row's NaN fails that request, whatever it is, and nobody takes up what was computed for it."""
    async with running(tiny_llama) as engine:
        good, bad, scored = engine.open(), engine.open(), engine.open()
        for session, text in ((good, "abc"), (bad, "xyz"), (scored, "uvw")):  # each of them a row of its own
            await session.extend([TextSegment(text)])
        real = engine._runner.forward

        def broken(ids, positions, plan, keep):
            logits = real(ids, positions, plan, keep).clone()
            for i, row in enumerate(plan.rows):
                if row.lease is not good._lease:
                    logits[i, 7] = float("nan")
            return logits

        with mock.patch.object(engine._runner, "forward", broken):
            requests = (collect(good, max_tokens=4), collect(bad, max_tokens=4), scored.score([" a", " b"], "sum"))
            results = await asyncio.gather(*requests, return_exceptions=True)
        assert not isinstance(results[0], BaseException)
        for error in results[1:]:
            assert isinstance(error, EngineError)
            assert error.kind == "internal" and "not a number" in str(error)
        await collect(bad, max_tokens=4)
        for session in (good, bad, scored):
            await session.close()
        assert engine.pool.live_leases == 0


async def test_closing_the_engine_fails_what_is_pending(tiny_llama: Path) -> None:
    engine = Engine.load(tiny_llama)
    session, idle = engine.open(), engine.open()
    await session.extend([TextSegment("Once")])
    task = asyncio.create_task(collect(session, max_tokens=450, ignore_eos=True))
    await until_forwards(engine, 3)
    await engine.close()
    await engine.close()
    with pytest.raises(EngineError):
        await task
    await idle.extend([TextSegment("x")])
    with pytest.raises(EngineError):
        await collect(idle)
    with pytest.raises(EngineError):
        await collect(idle, grammar="start: /a/")
    with pytest.raises(EngineError):
        await idle.fork(2)
    await idle.close()
    await session.close()
    assert not any(thread.name == "sglspec-engine" for thread in threading.enumerate())


def test_one_engine_serves_one_event_loop_after_another(tiny_llama: Path) -> None:
    engine = Engine.load(tiny_llama)
    session = engine.open()

    async def run() -> str:
        await session.extend([TextSegment("ab")])
        return (await collect(session, max_tokens=3, ignore_eos=True))[0].text

    async def leave() -> None:
        stream = session.generate(GenRequest(max_tokens=300, ignore_eos=True))
        await anext(stream)
        await stream.aclose()

    texts = [asyncio.run(run())]
    asyncio.run(leave())
    texts.append(asyncio.run(run()))
    assert all(isinstance(text, str) for text in texts)
    asyncio.run(engine.close())


async def test_two_threads_with_event_loops_of_their_own(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:

        def work() -> str:
            async def run() -> str:
                session = engine.open()
                await session.extend([TextSegment("the same")])
                text = (await collect(session, max_tokens=10))[0].text
                await session.close()
                return text

            return asyncio.run(run())

        texts = await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))
        assert len(set(texts)) == 1


async def test_bad_requests(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("x")])
        with pytest.raises(EngineError) as caught:
            await collect(session, sampling=Sampling(logit_bias=((10**6, 1.0),)))
        assert caught.value.kind == "sampling"
        empty = engine.open()
        if not engine.vocabulary.start_parts():
            with pytest.raises(EngineError) as caught:
                await collect(empty)
            assert caught.value.kind == "unsupported"
        await empty.extend([RoleOpen("user")])
        await collect(empty, max_tokens=1)
    for settings in (
        {"threads": 0},
        {"threads": 100_000},
        {"grammar_workers": 0},
        {"grammar_timeout": 0},
        {"step_tokens": 0},
    ):
        with pytest.raises(ValueError):
            Engine.load(tiny_llama, **settings)


def test_importing_the_package_imports_no_torch() -> None:
    code = (
        "import sys, os, sglspec_engine, sglspec_engine.types, sglspec_engine.config;"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules;"
        "assert 'OMP_WAIT_POLICY' not in os.environ;"
        "assert sys.getswitchinterval() > 0.001;"
        "sglspec_engine.Engine; assert os.environ['OMP_WAIT_POLICY'] == 'passive';"
        "assert sys.getswitchinterval() <= 0.001"
    )
    import os

    env = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=120)

"""A request that its caller leaves takes part in no further step, whatever it was doing.

The model is held in the middle of a step while the caller leaves. Once that step may end, the outcome must be there
although the next step, of somebody else, is held again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from sglspec_engine.engine import Engine
from sglspec_engine.kv.lease import Lease
from sglspec_engine.session import Session
from sglspec_engine.step import StepPlan
from sglspec_engine.types import TextSegment
from tests.engine.drive import Oracle, collect, doing, ids_of, running

PROMPT = "the quick brown fox jumps over the lazy dog and then some more of the same text again"


class Steps:
    """The steps of an engine, each of which waits in the model until it may go on."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.leases: list[set[Lease]] = []
        """Per step, who takes part."""
        self.cancelled_in: list[str] = []
        self.bystanders: list[Session] = []
        self._begun = 0
        self._allowed = 0
        self._free = False
        self._change = threading.Condition()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[Steps]:
        """Hold every step from here on; at the end all may go on."""
        engine, loop = self.engine, self.engine._loop
        forward, plan, cancel = engine._runner.forward, loop._scheduler.plan, loop.cancel

        def holding(*args: Any) -> Any:
            with self._change:
                self._begun += 1
                self._change.notify_all()
                assert self._change.wait_for(lambda: self._free or self._allowed >= self._begun, timeout=60)
            return forward(*args)

        def planning() -> StepPlan:
            found = plan()
            if found.rows:
                self.leases.append({row.work.lease for row in found.rows})
            return found

        def noting(work: Any) -> None:
            self.cancelled_in.append(doing(engine, work))
            cancel(work)

        with (
            mock.patch.object(engine._runner, "forward", holding),
            mock.patch.object(loop._scheduler, "plan", planning),
            mock.patch.object(loop, "cancel", noting),
        ):
            try:
                yield self
            finally:
                self.release()
                await engine.check()

    def release(self) -> None:
        """Hold nothing any more."""
        with self._change:
            self._free = True
            self._change.notify_all()

    async def begun(self, count: int) -> None:
        """Wait until so many steps have begun."""

        def wait() -> None:
            with self._change:
                assert self._change.wait_for(lambda: self._begun >= count, timeout=60)

        await asyncio.to_thread(wait)

    async def go_on(self, until: Callable[[], bool] = lambda: True) -> None:
        """Let one step end and the next begin, and more of them until `until` holds."""
        while True:
            with self._change:
                count = self._begun
                self._allowed = count
                self._change.notify_all()
            await self.begun(count + 1)
            if until():
                return


Scene = Callable[[Engine, Steps], Awaitable[tuple[Session, "asyncio.Task[Any]"]]]
"""Brings an engine whose steps are held to where the cancelled request is doing what its test is about."""


async def opened(engine: Engine, text: str = PROMPT) -> Session:
    session = engine.open()
    await session.extend([TextSegment(text)])
    return session


def begin(request: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(request)


def works(engine: Engine, session: Session) -> list[Any]:
    return [w for w in engine._loop._scheduler.works() if w.lease is session._lease]


async def queued(engine: Engine, steps: Steps) -> tuple[Session, asyncio.Task[Any]]:
    session = await opened(engine)
    task = begin(collect(session, max_tokens=30))
    await steps.go_on()
    return session, task


async def prefilling(engine: Engine, steps: Steps) -> tuple[Session, asyncio.Task[Any]]:
    session = await opened(engine)
    task = begin(collect(session, max_tokens=30))
    await steps.go_on(lambda: session._lease.length >= 16)
    assert session._lease.length < len(ids_of(session)) - 8
    return session, task


async def decoding(engine: Engine, steps: Steps) -> tuple[Session, asyncio.Task[Any]]:
    session = await opened(engine)
    task = begin(collect(session, max_tokens=100, ignore_eos=True))
    await steps.go_on(lambda: session._lease.length >= len(ids_of(session)) + 3)
    return session, task


async def deferred(engine: Engine, steps: Steps) -> tuple[Session, asyncio.Task[Any]]:
    """Behind another one that computes the same."""
    session, twin = await opened(engine), await opened(engine)
    steps.bystanders.append(twin)
    first = begin(collect(twin, max_tokens=2))
    await steps.go_on(lambda: twin._lease.length > 0)
    task = begin(collect(session, max_tokens=30))
    await steps.go_on(lambda: any(work.deferred for work in works(engine, session)))
    assert not first.done()
    return session, task


async def preempted(engine: Engine, steps: Steps) -> tuple[Session, asyncio.Task[Any]]:
    session = await opened(engine)
    task = begin(collect(session, max_tokens=200, ignore_eos=True))
    await steps.go_on(lambda: any(w.preempted for w in works(engine, session)))
    return session, task


async def forking(engine: Engine, steps: Steps) -> tuple[Session, asyncio.Task[Any]]:
    session = await opened(engine)
    task = begin(session.fork(3))
    await steps.go_on(lambda: session._lease.length >= 16)
    return session, task


async def reading(engine: Engine, steps: Steps) -> tuple[Session, asyncio.Task[Any]]:
    session = await opened(engine)
    task = begin(session.score([" one two three four", " five six seven"], "sum"))
    await steps.go_on(lambda: session._lease.length >= 16)
    return session, task


async def scoring(engine: Engine, steps: Steps) -> tuple[Session, asyncio.Task[Any]]:
    session = await opened(engine)
    choices = [" one two three four five six", " five six seven eight nine ten"]
    task = begin(session.score(choices, "unconditional"))
    context = len(ids_of(session))
    await steps.go_on(lambda: any(work.computed > context for work in works(engine, session)))
    return session, task


CASES: list[tuple[str, Scene, dict[str, Any]]] = [
    ("queued", queued, {"slots": 80}),
    ("queued", deferred, {}),
    ("prefilling", prefilling, {}),
    ("decoding", decoding, {}),
    ("preempted", preempted, {"slots": 170}),
    ("forking", forking, {}),
    ("scoring", reading, {}),
    ("scoring", scoring, {}),
]


@pytest.mark.parametrize(("state", "scene", "settings"), CASES, ids=[scene.__name__ for _, scene, _ in CASES])
async def test_nothing_is_computed_for_who_has_left(
    state: str, scene: Scene, settings: dict[str, Any], tiny_llama: Path
) -> None:
    limit: dict[str, Any] = {}
    if "slots" in settings:
        async with running(tiny_llama) as engine:
            limit["max_kv_bytes"] = settings["slots"] * engine.pool.layout.bytes_per_token
    async with running(tiny_llama, debug=True, step_tokens=8, step_logits=4, **limit) as engine:
        other = await opened(engine, "somebody else")
        async with Steps(engine).held() as steps:
            steps.bystanders.append(other)
            bystander = begin(collect(other, max_tokens=400, ignore_eos=True))
            await steps.begun(1)
            session, task = await scene(engine, steps)
            before, context = len(steps.leases), ids_of(session)
            task.cancel()
            await asyncio.sleep(0)  # the request's own code hears of it and tells the engine
            await steps.go_on()
            await asyncio.wait([task], timeout=120)
            assert task.cancelled(), "the outcome is there while the next step is held"
            assert steps.cancelled_in == [state]
            kept = ids_of(session)
            assert kept[: len(context)] == context and (kept == context or state in ("decoding", "preempted"))
            closed = begin(session.close())
            await steps.go_on(closed.done)
            computed_for = set().union(*steps.leases[before:])
            assert computed_for <= {one._lease for one in steps.bystanders}
            bystander.cancel()
            steps.release()
            await asyncio.wait([bystander])
        for one in steps.bystanders:
            await one.close()
        await engine.check()
        assert engine.pool.live_leases == 0


async def test_a_compilation_is_not_waited_for(tiny_llama: Path) -> None:
    async with running(tiny_llama, debug=True) as engine:
        go_on = threading.Event()
        compile = engine._grammars._compile

        def held(grammar: str) -> Any:
            assert go_on.wait(60)
            return compile(grammar)

        with mock.patch.object(engine._grammars, "_compile", held):
            session = await opened(engine)
            task = begin(collect(session, grammar="start: /[a-z]{3}/"))
            while not engine._loop._waiting:  # noqa: ASYNC110 (the engine's thread signals no one)
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait([task], timeout=120)
            assert task.cancelled()
            assert not engine._loop._waiting
            go_on.set()
        finish, _ = await collect(session, grammar="start: /[a-z]{3}/")
        assert len(finish.text) == 3
        assert engine.metrics.cancelled == 1
        await session.close()
        assert engine.pool.live_leases == 0


@pytest.mark.parametrize("grammar", [None, 'start: "the answer is " /[a-z]{90}/'])
async def test_whoever_is_left_at_any_step_leaves_only_what_is_right(grammar: str | None, tiny_llama: Path) -> None:
    """A prompt in chunks, then tokens, forced ones among them: left after every number of steps. What stays in the
    context and in the cache is what a full forward gives."""
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, debug=True, step_tokens=8) as engine:
        for count in range(1, 12):
            async with Steps(engine).held() as steps:
                session = await opened(engine, f"{PROMPT} {count}" if count % 2 else PROMPT)
                task = begin(collect(session, max_tokens=90, grammar=grammar, ignore_eos=True))
                await steps.begun(1)
                for _ in range(count - 1):
                    await steps.go_on()
                task.cancel()
                await asyncio.sleep(0)
                steps.release()
                await asyncio.wait([task])
            held = ids_of(session)
            assert max(held) < engine.vocabulary.size
            _, tokens = await collect(session, max_tokens=6, ignore_eos=True)
            oracle.assert_greedy(held, [t.id for t in tokens], banned=sorted(oracle.loaded.eos_ids))
            oracle.assert_logprobs(held, tokens)
            await session.close()
        assert engine.metrics.cancelled > 6
        assert engine.pool.live_leases == 0

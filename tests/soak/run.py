"""Many random programs at once on one small engine, with random cancels, for as long as wanted.

Usage: python -m tests.soak.run [--seconds 60] [--programs 64] [--seed 0] [--slots 2600]

Memory is so short that contexts are evicted and preempted all the time; freed memory is filled with NaN and the books
are checked after every step. Raises `Fault` for a run without exactly one end, an outcome that the program does not
explain, a standstill, and for anything that is left over once every session is closed. Some programs that nobody
cancelled run again, alone on an engine with room for everything, and must give the same tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import gc
import hashlib
import itertools
import json
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from sglspec_engine.config import prepare_process

prepare_process()

from sglspec.analysis import load_program  # noqa: E402 (torch reads the environment)
from sglspec.backends.local import LocalBackend  # noqa: E402
from sglspec.diagnostics import Report  # noqa: E402
from sglspec.document.read import source_from_text  # noqa: E402
from sglspec.runtime.events import TERMINAL  # noqa: E402
from sglspec.runtime.result import Result  # noqa: E402
from sglspec.runtime.run import Run, RunOptions, start  # noqa: E402
from sglspec_engine.config import EngineConfig  # noqa: E402
from sglspec_engine.engine import Engine  # noqa: E402
from sglspec_engine.kv.radix import Node  # noqa: E402
from sglspec_engine.model.load import load_model  # noqa: E402
from sglspec_engine.sched.generation import Generation  # noqa: E402
from sglspec_engine.session import Session  # noqa: E402
from tests.engine import tiny  # noqa: E402
from tests.engine.drive import doing  # noqa: E402
from tests.soak.programs import CONTEXT, Case, case  # noqa: E402

PATIENCE = 30.0
"""Seconds without any progress that count as a standstill."""
EXPECTED = {"S702", "S701", "S705", "S707", "S708", "S712"}
"""How programs that fail on purpose may fail."""


class Fault(AssertionError):
    """Something that must not happen."""


@dataclass(slots=True)
class Totals:
    """What happened. ended: runs by status; codes: failed ones by diagnostic; cancelled_in: requests by what they were
    doing when they were cancelled; memory: (seconds, resident MiB)."""

    ended: Counter[str] = field(default_factory=Counter[str])
    codes: Counter[str] = field(default_factory=Counter[str])
    cancelled_in: Counter[str] = field(default_factory=Counter[str])
    memory: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    compared: int = 0
    engine: dict[str, int] = field(default_factory=dict[str, int])

    def growth(self) -> float:
        """MiB by which the last third of the run holds more than the middle one, on average."""
        third = len(self.memory) // 3
        parts = (self.memory[third : 2 * third], self.memory[2 * third :])
        middle, last = (sum(mib for _, mib in part) / max(1, len(part)) for part in parts)
        return last - middle


def model_folder(folder: Path) -> Path:
    """A tiny model for contexts of `CONTEXT` tokens."""
    path = tiny.build(folder)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config["max_position_embeddings"] = CONTEXT
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


async def soak(folder: Path, *, seconds: float, programs: int = 64, seed: int = 0, slots: int = 2600) -> Totals:
    """Run for so many seconds, at most six times as long until memory was short, then look what is left.
    slots: tokens that the engine has memory for."""
    totals = Totals()
    numbers = itertools.count()
    sample: list[tuple[Case, str]] = []
    async with _backend(folder, slots) as backend:
        tasks, threads = len(asyncio.all_tasks()), len(_threads())
        starts = time.monotonic()

        def goes_on() -> bool:
            # a busy machine gets to few programs
            short = backend.engine.metrics.preempted > 0 and backend.engine.pool.tree.evicted > 0
            return time.monotonic() - starts < (seconds if short else 6 * seconds)

        with _watched(backend.engine, totals, seed):
            try:
                async with asyncio.TaskGroup() as group:
                    watch = group.create_task(_watch(backend.engine, totals))
                    workers = [
                        group.create_task(_work(backend, seed, numbers, goes_on, totals, sample))
                        for _ in range(programs)
                    ]
                    group.create_task(_stop_after(workers, watch))
            except* Fault as faults:
                raise faults.exceptions[0] from None  # the others only were stopped
        await _nothing_left(backend.engine, tasks, threads)
        metrics = backend.engine.metrics
        totals.engine = {
            name: getattr(metrics, name)
            for name in ("steps", "embedded_tokens", "largest_batch", "preempted", "deferred")
        }
        totals.engine |= {"evicted": backend.engine.pool.tree.evicted, "parked": backend.engine.pool.parked}
    await _compare(folder, random.Random(seed).sample(sample, min(len(sample), 30 + int(seconds / 10))), totals)
    return totals


@contextlib.asynccontextmanager
async def _backend(folder: Path, slots: int | None, *, prefix_cache: bool = True) -> AsyncIterator[LocalBackend]:
    """An engine with memory for `slots` tokens, None for enough."""
    loaded = load_model(folder)
    config = EngineConfig(weights="fp32", debug=slots is not None, prefix_cache=prefix_cache)
    if slots is not None:
        config = EngineConfig(weights="fp32", debug=True, max_kv_bytes=slots * _bytes_per_token(), step_tokens=96)
    backend = LocalBackend(Engine(loaded, config))
    try:
        yield backend
    finally:
        await backend.close()


def _bytes_per_token() -> int:
    """Of the tiny model's keys and values: layers × (key + value) × heads × width × float32."""
    return 2 * 2 * 2 * 16 * 4


async def _stop_after(workers: list[asyncio.Task[None]], watch: asyncio.Task[None]) -> None:
    await asyncio.wait(workers)
    watch.cancel()


# -- programs --------------------------------------------------------------------------------------------------------


def launch(one: Case, backend: LocalBackend) -> Run:
    """Check and start a case."""
    report = Report("soak.json")
    program = load_program(source_from_text(one.text, "soak.json"), report)
    report.raise_errors()
    assert program is not None
    return start(program, one.inputs, backend, RunOptions(seed=one.seed, trace=True))


async def _work(
    backend: LocalBackend,
    seed: int,
    numbers: itertools.count[int],
    goes_on: Callable[[], bool],
    totals: Totals,
    sample: list[tuple[Case, str]],
) -> None:
    """One program after the other until time is up."""
    while goes_on():
        number = next(numbers)
        rng = random.Random(f"{seed}/{number}")
        one = case(rng)
        run = launch(one, backend)
        cancel = rng.random() < 0.35
        leaving = asyncio.create_task(_cancel(run, rng)) if cancel else None
        result = await run.wait()
        if leaving is not None:
            leaving.cancel()
            await asyncio.wait([leaving])
        _judge(number, one, run, result, cancel)
        totals.ended[result.status] += 1
        if result.error is not None:
            totals.codes[result.error.code] += 1
        if result.status != "cancelled":
            sample.append((one, _outcome(one, result)))
            if len(sample) > 200:
                sample.pop(rng.randrange(len(sample)))


async def _cancel(run: Run, rng: random.Random) -> None:
    """Cancel at once, after so many events, after some time, or while a fork's branches run."""
    how = rng.choice(["at once", "events", "events", "time", "time", "fork"])
    if how == "time":
        await asyncio.sleep(rng.expovariate(1.0))
    elif how != "at once":
        most = int(rng.expovariate(1 / 25))
        async for event in run.events():
            if event.seq >= most or (how == "fork" and event.type == "fork.opened"):
                await asyncio.sleep(rng.choice([0, 0.02]))
                break
    run.cancel()


def _judge(number: int, one: Case, run: Run, result: Result, cancelled: bool) -> None:
    """One end, after everything else, and one that the program explains."""
    events = run.log.events
    if [event.seq for event in events] != list(range(len(events))):
        raise Fault(f"program {number}: the numbers of its events have gaps")
    if [event.type in TERMINAL for event in events].count(True) != 1 or events[-1].type not in TERMINAL:
        raise Fault(f"program {number}: it did not end exactly once")
    if run.fault is not None:
        raise Fault(f"program {number}: {run.fault!r}") from run.fault
    code = result.error.code if result.error is not None else None
    if result.status == "failed" and not (one.fails and code in EXPECTED):
        raise Fault(f"program {number}: {result.error}\n{one.text}")
    if result.status == "cancelled" and not cancelled:
        raise Fault(f"program {number}: nobody cancelled it")
    if result.status == "failed" and result.error is not None and result.error.range is None:
        raise Fault(f"program {number}: its error has no place: {result.error}")


async def _compare(folder: Path, sample: list[tuple[Case, str]], totals: Totals) -> None:
    """Run some again, each alone with all the memory it wants and an empty cache to begin with."""
    async with _backend(folder, None) as backend:
        for one, before in sample:
            after = await launch(one, backend).wait()
            if _outcome(one, after) != before:
                raise Fault(f"a program alone gives something else\n{after}\n{one.text}")
            totals.compared += 1


def _outcome(one: Case, result: Result) -> str:
    """A digest of what does not depend on time. How far other branches had come when one failed does, also where the
    failure was skipped, and so does which branch used up what they all share."""
    branches = [] if one.fails else sorted(result.branch_traces.items())
    parts: tuple[Any, ...] = (result.status, result.outputs, result.text, result.trace, branches)
    if result.error is not None:
        parts = (result.status, result.error.code)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


# -- watching --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _watched(engine: Engine, totals: Totals, seed: int) -> Any:
    """Note what cancelled requests were doing; make compilations take a moment, so that some are met there."""
    loop, compile = engine._loop, engine._grammars._compile
    cancel = loop.cancel
    rng = random.Random(seed)

    def noting(work: Any) -> None:
        if not work.closed:
            totals.cancelled_in[doing(engine, work)] += 1
        cancel(work)

    def slowly(grammar: str) -> Any:
        time.sleep(rng.random() * 0.05)
        return compile(grammar)

    with mock.patch.object(loop, "cancel", noting), mock.patch.object(engine._grammars, "_compile", slowly):
        yield


async def _watch(engine: Engine, totals: Totals) -> None:
    """Sample the memory; fail when nothing moves any more."""
    began = moved = time.monotonic()
    seen = -1
    try:
        while True:
            faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)  # for an event loop that stands still
            now = time.monotonic()
            totals.memory.append((now - began, _resident()))
            state = hash((engine.metrics.embedded_tokens, engine.metrics.requests, sum(totals.ended.values())))
            if state != seen:
                seen, moved = state, now
            if now - moved > PATIENCE:
                faulthandler.dump_traceback(all_threads=True)
                raise Fault(f"nothing moves any more\n{_state(engine)}")
            await asyncio.sleep(0.25)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _state(engine: Engine) -> str:
    """Where everything is, for whoever has to find out why."""
    scheduler, pool = engine._loop._scheduler, engine.pool
    lines = [f"free {pool.arena.free}, cached {pool.tree.cached}, locked {pool.tree.locked}, leases {pool.live_leases}"]
    for kind, works in (("running", scheduler._running), ("waiting", scheduler._waiting)):
        for work in works:
            lines.append(
                f"{kind} {type(work).__name__} {work.lease.length}/{len(work.known)} overtaken {work.overtaken}"
            )
    lines += [f"compiling until {waiting.deadline}" for waiting in engine._loop._waiting]
    for task in asyncio.all_tasks():
        lines += [f"{task.get_name()} in {frame.f_code.co_qualname}:{frame.f_lineno}" for frame in task.get_stack()]
    return "\n".join(lines)


def _resident() -> float:
    """MiB of this process that are in memory; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _threads() -> list[threading.Thread]:
    """Those that run, without the event loop's own, which it keeps for its next work."""
    return [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]


async def _nothing_left(engine: Engine, tasks: int, threads: int) -> None:
    """Every session is closed: books agree, nobody holds memory, and no task, thread or node remains."""
    await engine.check()
    pool, tree = engine.pool, engine.pool.tree
    if pool.live_leases or pool.live_bytes or len(engine._loop._scheduler) or engine._loop._waiting:
        raise Fault(f"something is held by nobody\n{_state(engine)}")
    for _ in range(5):
        await asyncio.sleep(0)
    if len(asyncio.all_tasks()) > tasks:
        raise Fault(f"tasks are left\n{_state(engine)}")
    workers = engine.config.grammar_workers
    if len(_threads()) > threads + workers:
        raise Fault(f"threads are left: {_threads()}")

    def empty() -> None:
        tree.evict(pool.arena.slots)
        tree._heap.clear()

    await engine.call(empty)
    if pool.arena.used:
        raise Fault(f"{pool.arena.used} slots cannot be evicted")
    gc.collect()
    kinds: Counter[str] = Counter(
        type(one).__name__ for one in gc.get_objects() if type(one) in (Node, Session, Run, Generation)
    )
    if kinds["Node"] > 1 or kinds["Session"] or kinds["Generation"]:
        raise Fault(f"objects are left: {dict(kinds)}")


def report(totals: Totals) -> str:
    """A few lines for people."""
    megabytes = [mib for _, mib in totals.memory]
    return "\n".join(
        (
            f"runs: {dict(totals.ended)}; failures: {dict(totals.codes)}",
            f"requests cancelled while: {dict(totals.cancelled_in)}",
            f"engine: {totals.engine}",
            f"memory: {min(megabytes):.0f} to {max(megabytes):.0f} MiB, last third against the middle one "
            f"{totals.growth():+.1f} MiB",
            f"run again alone with the same tokens: {totals.compared}",
        )
    )


def main() -> None:
    """See the module docstring."""
    parser = argparse.ArgumentParser(description="Random programs with random cancels on a small engine.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--programs", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slots", type=int, default=2600, help="tokens that fit into the engine's memory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = model_folder(Path(folder) / "model")
        totals = asyncio.run(
            soak(path, seconds=options.seconds, programs=options.programs, seed=options.seed, slots=options.slots)
        )
    print(report(totals))


if __name__ == "__main__":
    main()

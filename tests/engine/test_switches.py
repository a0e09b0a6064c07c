"""Every switch: what comes out is the same, and what the switch is for moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sglspec_engine.engine import Engine
from sglspec_engine.metrics import Metrics
from sglspec_engine.sched.healing import loose_tokens
from sglspec_engine.types import Sampling, Segment, TextSegment, Usage
from tests.engine.drive import collect, ids_of, running, turn

SHOTS = "red: warm. blue: cold. grey: dull. gold: bright. " * 4
FIXED = "this text is fixed from its beginning to its very end, whatever the model would like to say about it, "
Found = list[list[int]]


async def branches(engine: Engine) -> Found:
    """A fork over a prefix that others have as well, and what follows in the parent."""
    session = engine.open()
    await session.extend([TextSegment(SHOTS)])
    forks = await session.fork(3)
    for word, fork in zip(("teal", "pink", "lime"), forks, strict=True):
        await fork.extend([TextSegment(f"{word}:")])
    done = await asyncio.gather(*(collect(fork, max_tokens=24, ignore_eos=True) for fork in forks))
    await session.concat(forks, "concat")
    last = await collect(session, max_tokens=6, ignore_eos=True)
    for one in (session, *forks):
        await one.close()
    return [[t.id for t in tokens] for _, tokens in (*done, last)]


async def choice(engine: Engine) -> Found:
    """A choice, then text after it."""
    session = engine.open()
    await session.extend([*turn(SHOTS), TextSegment("Is it")])
    scores = await session.score([" warm", " cold", " warm and cold"], "length_normalized")
    best = [id for id, _ in scores.tokens[scores.index]]
    await session.extend([TextSegment([" warm", " cold", " warm and cold"][scores.index])])
    _, tokens = await collect(session, max_tokens=8, ignore_eos=True)
    await session.close()
    return [[scores.index], best, [t.id for t in tokens]]


async def constrained(engine: Engine) -> Found:
    """Text with long parts that the grammar leaves no choice."""
    session = engine.open()
    await session.extend([TextSegment("Q: what is fixed? A: ")])
    grammar = f'start: "{FIXED}" NUMBER " of {FIXED}" NUMBER\nNUMBER: /[0-9][0-9]/'
    finish, tokens = await collect(session, grammar=grammar, max_tokens=200)
    assert finish.reason == "constraint"
    await session.close()
    return [[t.id for t in tokens]]


async def sampled(engine: Engine) -> Found:
    """A sampled text over the common prefix."""
    session = engine.open()
    await session.extend([TextSegment(SHOTS + "plum:")])
    sampling = Sampling(temperature=0.8, top_p=0.9)
    _, tokens = await collect(session, max_tokens=12, ignore_eos=True, noise_key=7, sampling=sampling)
    await session.close()
    return [[t.id for t in tokens]]


PROGRAMS: tuple[Callable[[Engine], Awaitable[Found]], ...] = (branches, choice, constrained, sampled)


@dataclass(frozen=True)
class Outcome:
    """What a workload gave, and what it took."""

    tokens: list[Found]
    metrics: Metrics
    usage: Usage
    reasons: dict[str, str]


async def workload(path: Path, **settings: Any) -> Outcome:
    """All programs side by side, twice."""
    async with running(path, debug=True, **settings) as engine:
        tokens = [found for _ in range(2) for found in await asyncio.gather(*(run(engine) for run in PROGRAMS))]
        assert engine.pool.live_bytes == 0
        assert engine.usage.computed_tokens == engine.metrics.embedded_tokens
        reasons = dict(line.partition(": ")[0].split("=", 1) for line in engine.reasons)
        return Outcome(tokens, engine.metrics, engine.usage, reasons)


@pytest.fixture(scope="module")
def default(tiny_llama: Path) -> Outcome:
    """The workload with nothing switched off."""
    return asyncio.run(workload(tiny_llama))


def test_the_workload_has_what_the_switches_are_about(default: Outcome) -> None:
    assert default.usage.reused_tokens > default.usage.prompt_tokens / 2
    assert default.usage.forced_tokens > 100
    assert default.metrics.largest_batch >= 3
    assert default.tokens[: len(PROGRAMS)] == default.tokens[len(PROGRAMS) :]


Measure = Callable[[Outcome], float]


def steps(outcome: Outcome) -> float:
    return outcome.metrics.steps


def computed(outcome: Outcome) -> float:
    return outcome.metrics.embedded_tokens


def recomputed(outcome: Outcome) -> float:
    return outcome.usage.prompt_tokens - outcome.usage.reused_tokens


@pytest.mark.parametrize(
    ("switch", "measure", "factor"),
    [
        ({"prefix_cache": False}, computed, 1.5),
        ({"prefix_cache": False}, recomputed, 2.0),
        ({"forced": False}, steps, 1.5),
        ({"forks": "sequential"}, steps, 1.5),
        ({"step_tokens": 6}, steps, 1.2),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else getattr(value, "__name__", ""),
)
async def test_switched_off_nothing_changes_but_what_it_costs(
    tiny_llama: Path, default: Outcome, switch: dict[str, Any], measure: Measure, factor: float
) -> None:
    found = await workload(tiny_llama, **switch)
    assert found.tokens == default.tokens
    assert measure(found) >= factor * measure(default)


@pytest.mark.parametrize(
    ("switch", "name", "value"),
    [
        ({"weights": "plain"}, "linear", "15 plain"),
        ({"attention": "reference"}, "attention", "reference"),
        ({"threads": 1}, "threads", "1"),
        ({"probe": False}, "probe", "off"),
    ],
)
async def test_another_way_to_compute_gives_the_same(
    tiny_llama: Path, default: Outcome, switch: dict[str, Any], name: str, value: str
) -> None:
    found = await workload(tiny_llama, **switch)
    assert found.tokens == default.tokens
    assert found.reasons[name] == value
    assert found.usage.generated_tokens == default.usage.generated_tokens


async def test_healing_is_about_the_ends_of_texts_alone(tiny_llama: Path) -> None:
    """Where a text ends in what begins no longer token, nothing changes; elsewhere the text itself stays."""
    found: list[list[tuple[str, list[int], int]]] = []
    for healing in (True, False):
        async with running(tiny_llama, healing=healing) as engine:
            rows: list[tuple[str, list[int], int]] = []
            for text in ("red: warm~", "blue: cold\x7f", "The name: ", "one and "):
                session = engine.open()
                await session.extend([TextSegment(text)])
                prompt = ids_of(session)
                _, tokens = await collect(session, max_tokens=8, ignore_eos=True)
                assert session.text().startswith(text)
                rows.append(
                    (session.text(), [t.id for t in tokens], loose_tokens(engine.vocabulary, prompt, text.encode()))
                )
                await session.close()
            found.append(rows)
    on, off = found
    assert [loose > 0 for _, _, loose in on] == [False, False, True, True]
    assert on[:2] == off[:2]


async def in_order(path: Path, order: str) -> tuple[Found, list[int], int]:
    """Requests that all wait while there is room for one, every second of them over a prefix that is cached already:
    their tokens, in which order they end, and how many tokens they reused."""
    async with running(path) as engine:
        size = engine.pool.layout.bytes_per_token
        warm = engine.open()
        await warm.extend([TextSegment(SHOTS)])
        length = len(ids_of(warm))
    async with running(path, order=order, max_kv_bytes=(length + 60) * size) as engine:
        warm = engine.open()
        await warm.extend([TextSegment(SHOTS)])
        await collect(warm, max_tokens=1, ignore_eos=True)
        await warm.close()
        texts = [SHOTS + f" {i}:" if i % 2 else f"{i} " + SHOTS[::-1] for i in range(8)]
        ended: list[int] = []

        async def request(number: int) -> tuple[list[int], int]:
            session = engine.open()
            segments: list[Segment] = [TextSegment(texts[number])]
            await session.extend(segments)
            finish, tokens = await collect(session, max_tokens=4, ignore_eos=True)
            ended.append(number)
            await session.close()
            return [t.id for t in tokens], finish.usage.reused_tokens

        gate = Event()
        held = asyncio.create_task(engine.call(lambda: hold(gate)))
        await asyncio.sleep(0)
        requests = [asyncio.create_task(request(number)) for number in range(len(texts))]
        for _ in range(20):  # until each has handed its request over; nothing here waits for anything else
            await asyncio.sleep(0)
        gate.set()
        await held
        done = await asyncio.gather(*requests)
        return [tokens for tokens, _ in done], ended, sum(reused for _, reused in done)


def hold(gate: Event) -> None:
    """Keep the engine's thread between two steps until the gate opens."""
    assert gate.wait(60)


async def test_the_order_changes_who_comes_first_and_how_much_is_reused(tiny_llama: Path) -> None:
    fcfs, prefix, rand = [await in_order(tiny_llama, order) for order in ("fcfs", "prefix", "random")]
    assert fcfs[0] == prefix[0] == rand[0]
    assert fcfs[1] == list(range(8))
    assert sorted(prefix[1][:4]) == [1, 3, 5, 7]
    assert rand[1] not in (fcfs[1], prefix[1])
    assert prefix[2] > 2 * fcfs[2]
    assert (await in_order(tiny_llama, "random"))[1] == rand[1]

"""Rows of one step that begin alike: what they share goes through the model once, and nobody notices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sglspec_engine.engine import Engine
from sglspec_engine.sched.sharing import share
from sglspec_engine.session import Session
from sglspec_engine.types import Finish, GenRequest, Observed, Sampling, Scores, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running, together


async def siblings(engine: Engine, texts: Sequence[str]) -> list[Session]:
    """Branches of one fork, each with a text of its own."""
    trunk = engine.open()
    await trunk.extend([TextSegment("A trunk. ")])
    branches = await trunk.fork(len(texts))
    for branch, text in zip(branches, texts, strict=True):
        await branch.extend([TextSegment(text)])
    await trunk.close()
    return branches


async def close(sessions: Sequence[Session]) -> None:
    for session in sessions:
        await session.close()


def distinct(sequences: Sequence[Sequence[int]]) -> int:
    return len({tuple(ids[:n]) for ids in sequences for n in range(1, len(ids) + 1)})


BEGIN = "the quick brown fox jumps over"


async def test_what_siblings_begin_with_is_computed_once(tiny_llama: Path) -> None:
    texts = ["Now the fox", "Now the dog and", "Now the dog or not", "Then"]
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, debug=True) as engine:
        branches = await siblings(engine, texts)
        prompts = [ids_of(branch) for branch in branches]
        before, steps = engine.metrics.embedded_tokens, engine.metrics.steps
        trunk = before
        tasks = await together(engine, *(collect(branch, max_tokens=1, ignore_eos=True) for branch in branches))
        found = [await task for task in tasks]
        assert engine.metrics.steps == steps + 1, "nobody waits"
        assert engine.metrics.embedded_tokens == distinct(prompts)
        usages = [finish.usage for finish, _ in found]  # type: ignore[misc]
        assert [u.prompt_tokens for u in usages] == [u.computed_tokens + u.reused_tokens for u in usages]
        assert sum(u.computed_tokens for u in usages) == engine.metrics.embedded_tokens - trunk
        for prompt, (_, tokens) in zip(prompts, found, strict=True):  # type: ignore[misc]
            oracle.assert_greedy(prompt, [token.id for token in tokens], banned=sorted(engine._facts.ends))
            oracle.assert_logprobs(prompt, tokens)
        await close(branches)


async def test_twins_go_through_the_model_once(tiny_llama: Path) -> None:
    """Equal prompts that draw equal tokens, to the end."""
    async with running(tiny_llama, debug=True) as engine:
        [one] = await siblings(engine, ["All alike"])
        alone, _ = await collect(one, max_tokens=12, ignore_eos=True)
        spent = engine.metrics.embedded_tokens
        await close([one])
    async with running(tiny_llama, debug=True) as engine:
        branches = await siblings(engine, ["All alike"] * 3)
        tasks = await together(engine, *(collect(branch, max_tokens=12, ignore_eos=True) for branch in branches))
        found: list[Any] = [await task for task in tasks]
        assert [finish.text for finish, _ in found] == [alone.text] * 3
        assert engine.metrics.embedded_tokens == spent
        await close(branches)
        assert engine.pool.live_bytes == 0


async def test_everyone_gets_its_own_logits_where_one_ends_inside_of_another(tiny_llama: Path) -> None:
    """The last is a part of the first, whose own logits are asked for further on: they lie in the other order."""
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama, debug=True) as engine:
        long, other, part = (engine.open() for _ in range(3))
        await long.extend([TextSegment(f"{BEGIN} and some more of it")])
        await other.extend([TextSegment("lazy dog over fox the quick brown")])
        await part.extend([TextSegment(BEGIN)])
        sessions = [long, other, part]
        prompts = [ids_of(session) for session in sessions]
        assert prompts[0][: len(prompts[2])] == prompts[2]
        tasks = await together(engine, *(collect(session, max_tokens=3, ignore_eos=True) for session in sessions))
        for prompt, (_, tokens) in zip(prompts, [await task for task in tasks], strict=True):  # type: ignore[misc]
            oracle.assert_greedy(prompt, [token.id for token in tokens], banned=sorted(oracle.loaded.eos_ids))


async def test_texts_that_are_drawn_part_where_they_differ(tiny_llama: Path) -> None:
    async def texts(forks: Any) -> tuple[list[str], int, list[list[int]]]:
        async with running(tiny_llama, debug=True, forks=forks) as engine:
            branches = await siblings(engine, [" x"] * 6)
            request = {"max_tokens": 9, "ignore_eos": True, "sampling": Sampling(temperature=0.4)}
            works = [collect(branch, noise_key=key, **request) for key, branch in enumerate(branches)]
            found: list[Any] = [await task for task in await together(engine, *works)]
            asked = [ids_of(branch)[:-1] for branch in branches]
            await close(branches)
            return [finish.text for finish, _ in found], engine.metrics.embedded_tokens, asked

    together_, spent, asked = await texts("together")
    apart, more, _ = await texts("sequential")
    assert together_ == apart
    assert len(set(together_)) > 1
    assert spent == distinct(asked) < more


@pytest.mark.parametrize("step_tokens", [512, 3])
async def test_choices_share_the_beginning_with_generations(tiny_llama: Path, step_tokens: int) -> None:
    texts = ["It is the fox and it", "It is the fox or", "It is", "Is"]
    alone: list[tuple[float, ...]] = []
    async with running(tiny_llama, debug=True, step_tokens=step_tokens) as engine:
        for text in texts[:3]:
            [one] = await siblings(engine, [text])
            alone.append((await one.score([" good", " bad", " good enough"], "sum")).scores)
            await close([one])
    async with running(tiny_llama, debug=True, step_tokens=step_tokens) as engine:
        branches = await siblings(engine, texts)
        scored = [branch.score([" good", " bad", " good enough"], "sum") for branch in branches[:3]]
        tasks = await together(engine, *scored, collect(branches[3], max_tokens=2, ignore_eos=True))
        *scores, (finish, _) = [await task for task in tasks]  # type: ignore[misc]
        assert isinstance(finish, Finish)
        for one, expected in zip(scores, alone, strict=True):
            assert isinstance(one, Scores)
            assert one.scores == pytest.approx(expected, abs=1e-4)
        await close(branches)


async def test_one_leaves_and_the_others_go_on(tiny_llama: Path) -> None:
    """A leader that is cancelled, or closed, right behind the step that it led."""
    async with running(tiny_llama, debug=True) as engine:
        branches = await siblings(engine, ["Now all of them"] * 3)
        expected = ids_of(branches[0])
        requests = [branch.generate(GenRequest(max_tokens=30, ignore_eos=True)) for branch in branches]

        async def some(index: int, count: int) -> list[int]:
            found: list[int] = []
            async for delta in requests[index]:
                found += [token.id for token in delta.tokens]
                if len(found) >= count:
                    break
            await requests[index].aclose()
            return found

        tasks = await together(engine, some(0, 1), some(1, 5), some(2, 9))
        found: list[Any] = [await task for task in tasks]
        assert found[2][:5] == found[1][:5] and found[2][:1] == found[0][:1]
        assert ids_of(branches[2])[: len(expected)] == expected
        await engine.check()
        await close(branches)
        assert engine.pool.live_bytes == 0


async def test_who_observes_is_told_what_is_asked(tiny_llama: Path) -> None:
    observed = Observed()
    async with running(tiny_llama) as engine:
        session = engine.open()
        session.observe(observed)
        await session.extend([TextSegment("A trunk. ")])
        [branch] = await session.fork(1)
        trunk = ids_of(session)
        await branch.extend([TextSegment("Now")])
        prompt = ids_of(branch)
        _, tokens = await collect(branch, max_tokens=3, ignore_eos=True)
        written = ids_of(branch)
        await branch.score([" a", " bad"], "sum")
        await close([branch, session])
        vocabulary = engine.vocabulary
    choices = [vocabulary.encode_content(text, after="text") for text in (" a", " bad")]
    expected = [
        trunk,
        prompt,
        [*prompt, *(t.id for t in tokens)][:-1],
        written,
        *([*written, *c[:-1]] for c in choices),
    ]
    assert [list(one.ids) for one in observed.asked] == expected
    assert engine.metrics.embedded_tokens == distinct(expected)
    assert observed.compiled == {}


def test_no_rows() -> None:
    assert share(()) == ()


async def test_forced_tokens_behind_which_nothing_is_asked_are_not_computed(tiny_llama: Path) -> None:
    grammar = 'start: "abc abc abc"'
    observed = Observed()
    async with running(tiny_llama) as engine:
        session = engine.open()
        session.observe(observed)
        await session.extend([TextSegment("x ")])
        prompt = len(ids_of(session))
        finish, tokens = await collect(session, max_tokens=40, grammar=grammar)
        assert finish.text == "abc abc abc" and finish.usage.forced_tokens == len(tokens) > 1
        assert engine.metrics.embedded_tokens == prompt + len(tokens) - 1
        [(began, ended)] = observed.compiled.values()
        assert began <= ended
        await session.close()


async def test_a_prompt_that_is_computed_in_pieces_is_shared(tiny_llama: Path) -> None:
    """What begins alike for less than it would pay to wait for."""
    async with running(tiny_llama, debug=True, step_tokens=16) as engine:
        text = "the quick brown fox jumps over a lazy dog and then some more of it again but not now or here"
        first, second = engine.open(), engine.open()
        await first.extend([TextSegment("Once " + text)])
        await second.extend([TextSegment("Once more")])
        prompts = [ids_of(first), ids_of(second)]
        assert len(prompts[0]) > 16
        tasks = await together(engine, *(collect(one, max_tokens=1, ignore_eos=True) for one in (first, second)))
        await asyncio.gather(*tasks)
        assert engine.metrics.embedded_tokens == distinct(prompts)
        await close([first, second])

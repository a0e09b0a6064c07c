"""Greedy generation equals transformers, however it is cut, batched, forked, interleaved or cancelled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sglspec_engine.types import GenRequest, RoleClose, RoleOpen, Sampling, TextSegment
from tests.engine import tiny
from tests.engine.drive import Oracle, collect, ids_of, running, turn

TEXTS = [
    "Hello there, how are you today?",
    " leading space and a tail ",
    "Zahlen: 1 2 3 4 5\n\nzwei Zeilen",
    "emoji 🙂🙃 und 漢字",
    "x",
    "the quick brown fox jumps over the lazy dog " * 3,
]


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
async def test_greedy_equals_a_full_forward(architecture: str, tiny_model: Callable[[str], Path]) -> None:
    path = tiny_model(architecture)
    oracle = Oracle(path)
    async with running(path, step_tokens=16) as engine:
        sessions = [engine.open() for _ in TEXTS]
        for session, text in zip(sessions, TEXTS, strict=True):
            await session.extend([*turn(text), RoleOpen("assistant")])
        prompts = [ids_of(session) for session in sessions]
        done = await asyncio.gather(*(collect(s, max_tokens=20) for s in sessions))
        for session, prompt, (finish, tokens) in zip(sessions, prompts, done, strict=True):
            oracle.assert_greedy(prompt, [t.id for t in tokens])
            oracle.assert_logprobs(prompt, tokens)
            kept = [t.id for t in tokens][: None if finish.reason == "length" else -1]
            assert ids_of(session) == prompt + kept
            await session.close()
        await engine.check()
        assert engine.pool.live_bytes == 0
    assert oracle.close_calls == 0


async def test_the_likeliest_tokens_beside_each_token(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("Hello there")])
        prompt = ids_of(session)
        _, tokens = await collect(
            session, max_tokens=6, alternatives=4, sampling=Sampling(temperature=2.0), noise_key=5
        )
        size = oracle.vocabulary.size
        table = torch.log_softmax(oracle.logits([*prompt, *(t.id for t in tokens)]), dim=-1)
        for place, token in enumerate(tokens, len(prompt) - 1):
            values, ids = table[place, :size].topk(4)
            assert [one.id for one in token.top] == ids.tolist()
            assert [one.logprob for one in token.top] == pytest.approx(values.tolist(), abs=1e-4)
            assert [one.text for one in token.top] == [oracle.vocabulary.describe(id) for id in ids.tolist()]
            assert [one.end for one in token.top] == [id in oracle.loaded.eos_ids for id in ids.tolist()]
        finish, tokens = await collect(session, max_tokens=0, alternatives=3)
        assert (finish.text, finish.reason, tokens, finish.usage.generated_tokens) == ("", "length", [], 0)
        row = oracle.logits(ids_of(session))[-1, :size]
        assert [one.id for one in finish.ahead] == row.topk(3).indices.tolist()
        assert not any(one.end for one in finish.ahead)
        stop = (finish.ahead[1].id,)
        finish, _ = await collect(session, max_tokens=0, alternatives=3, stop_token_ids=stop)
        assert [one.end for one in finish.ahead] == [False, True, False]


async def test_tokens_equal_transformers_generate(tiny_llama: Path) -> None:
    oracle = Oracle(tiny_llama)
    async with running(tiny_llama) as engine:
        for text in TEXTS:
            session = engine.open()
            await session.extend([TextSegment(text)])
            prompt = ids_of(session)
            _, tokens = await collect(session, max_tokens=24, ignore_eos=True)
            oracle.loaded.model.generation_config.eos_token_id = None
            padding = list(range(engine.vocabulary.size, tiny.VOCAB_ROWS))
            out = oracle.loaded.model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=24,
                do_sample=False,
                suppress_tokens=padding + sorted(engine.vocabulary.eos_ids | engine.chat.turn_end_ids),
            )
            assert out[0, len(prompt) :].tolist() == [t.id for t in tokens]


@pytest.mark.parametrize("seed", range(6))
async def test_random_programs_equal_the_oracle(seed: int, tiny_llama: Path) -> None:
    """Sessions that extend, generate, fork, score and cancel at random, all at once."""
    rng = random.Random(seed)
    oracle = Oracle(tiny_llama)
    settings = {"step_tokens": rng.choice([3, 8, 64]), "step_logits": rng.choice([2, 16])}
    async with running(tiny_llama, **settings) as engine:

        async def program(session, depth: int) -> None:
            for _ in range(rng.randint(1, 4)):
                act = rng.random()
                if act < 0.3:
                    await session.extend([TextSegment(rng.choice(TEXTS)[: rng.randint(1, 12)])])
                elif act < 0.6:
                    await session.extend([TextSegment(rng.choice([" a", "b\n", "ab"]))])
                    before = ids_of(session)
                    _, tokens = await collect(session, max_tokens=rng.randint(1, 8), ignore_eos=True)
                    checks.append((before, [t.id for t in tokens]))
                    assert ids_of(session) == before + [t.id for t in tokens]
                elif act < 0.7:
                    await session.extend([TextSegment("?")])
                    before = ids_of(session)
                    stream = session.generate(GenRequest(max_tokens=50, ignore_eos=True))
                    for _ in range(rng.randint(1, 3)):
                        await anext(stream)
                    await stream.aclose()
                    after = ids_of(session)
                    assert after[: len(before)] == before
                    checks.append((before, after[len(before) :]))
                elif act < 0.8:
                    await session.extend([TextSegment("!")])
                    before = ids_of(session)
                    await session.score([" yes", " no", " maybe not"], "sum")
                    assert ids_of(session) == before
                elif depth < 2:
                    branches = await session.fork(rng.randint(1, 4))
                    await asyncio.gather(*(program(branch, depth + 1) for branch in branches))
                    if rng.random() < 0.5:
                        await session.concat(branches, "concat")
                    for branch in branches:
                        await branch.close()
            await engine.check()

        checks: list[tuple[list[int], list[int]]] = []
        sessions = [engine.open() for _ in range(4)]
        for session in sessions:
            await session.extend([TextSegment(rng.choice(TEXTS))])
        await asyncio.gather(*(program(session, 0) for session in sessions))
        for prompt, tokens in checks:
            oracle.assert_greedy(prompt, tokens, banned=sorted(oracle.loaded.eos_ids))
        for session in sessions:
            await session.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_sampled_tokens_are_never_encoded_again(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([*turn("Hi"), RoleOpen("assistant")])
        before = ids_of(session)
        _, tokens = await collect(session, max_tokens=12, ignore_eos=True)
        sampled = [t.id for t in tokens]
        await session.extend([TextSegment("and on"), RoleClose(), *turn("more"), RoleOpen("assistant")])
        _, more = await collect(session, max_tokens=4, ignore_eos=True)
        assert ids_of(session)[: len(before) + 12] == before + sampled
        assert ids_of(session)[-4:] == [t.id for t in more]


async def test_max_tokens_zero_prefills_only(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("some prompt")])
        finish, tokens = await collect(session, max_tokens=0)
        assert (finish.text, finish.reason, tokens) == ("", "length", [])
        assert finish.usage.computed_tokens == len(ids_of(session))
        again, _ = await collect(session, max_tokens=1)
        assert again.usage.reused_tokens == again.usage.prompt_tokens
        assert again.usage.computed_tokens == 0


async def test_end_of_turn_does_not_enter_the_context(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("abc")])
        end = min(engine.chat.turn_end_ids)
        before = ids_of(session)
        biased = Sampling(logit_bias=((end, 1000.0),))
        finish, tokens = await collect(session, max_tokens=9, sampling=biased)
        assert (finish.reason, finish.text, [t.id for t in tokens]) == ("end", "", [end])
        assert ids_of(session) == before
        finish, tokens = await collect(session, max_tokens=9, min_tokens=3, sampling=biased)
        assert (finish.reason, len(tokens), tokens[-1].id) == ("end", 4, end)
        finish, tokens = await collect(session, max_tokens=5, ignore_eos=True, sampling=biased)
        assert finish.reason == "length"
        assert end not in [t.id for t in tokens]
        stopped = {"ignore_eos": True, "stop_token_ids": (end,), "sampling": biased}
        finish, tokens = await collect(session, max_tokens=5, **stopped)
        assert (finish.reason, finish.matched, len(tokens)) == ("stop", end, 1), "it is asked for by its id"


async def test_padding_rows_of_the_output_are_never_sampled(tiny_llama: Path) -> None:
    async with running(tiny_llama) as engine:
        session = engine.open()
        await session.extend([TextSegment("abc")])
        _, tokens = await collect(session, max_tokens=40, ignore_eos=True, sampling=Sampling(temperature=50.0))
        assert all(t.id < engine.vocabulary.size for t in tokens)


async def test_a_full_context_ends_the_text(tiny_llama: Path) -> None:
    async with running(tiny_llama, max_context=24) as engine:
        session = engine.open()
        await session.extend([TextSegment("abc def ghi")])
        finish, _ = await collect(session, max_tokens=100, ignore_eos=True)
        assert finish.reason == "length"
        assert len(ids_of(session)) == 24

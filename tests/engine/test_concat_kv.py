"""Branches joined by moving what was computed for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sglspec_engine.engine import Engine
from sglspec_engine.session import Session
from sglspec_engine.types import RoleClose, RoleOpen, TextSegment
from tests.engine.drive import collect, ids_of, running, turn


async def joined(engine: Engine, mode: str) -> tuple[Session, list[Session]]:
    """Three branches with text and generations, joined."""
    session = engine.open()
    await session.extend([*turn("List"), RoleOpen("assistant"), RoleClose()])
    branches = await session.fork(3)
    for i, branch in enumerate(branches):
        await branch.extend([RoleOpen("user"), TextSegment(f"item {i} of the list"), RoleClose()])
        await branch.extend([RoleOpen("assistant")])
    await asyncio.gather(*(collect(b, max_tokens=4 + i, ignore_eos=True) for i, b in enumerate(branches)))
    for branch in branches:
        await branch.extend([RoleClose()])
    await session.concat(branches, mode)  # pyright: ignore[reportArgumentType]
    return session, branches


def layer_keys(session: Session, layer: int) -> torch.Tensor:
    return torch.cat([k for k, _ in session._lease.views(layer, 0)], dim=1)


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "mistral", "phi3", "gpt_oss", "gemma2"])
async def test_keys_are_those_of_the_new_positions(architecture: str, tiny_model: Callable[[str], Path]) -> None:
    """In the first layer exactly; deeper ones differ, because the branches did not see each other."""
    async with running(tiny_model(architecture), debug=True, weights="fp32") as engine:
        session, branches = await joined(engine, "concat_kv")
        exact, _ = await joined(engine, "concat")
        assert session.text() == exact.text()
        assert ids_of(session) == list(session._context.ids) == session._lease.ids
        held = session._lease.ids
        again = engine.open()
        again._context = session._context
        await again._compute()
        assert again._lease.ids == held
        assert torch.allclose(layer_keys(session, 0), layer_keys(again, 0), atol=1e-5)
        first = branches[0]._lease.length
        assert torch.allclose(layer_keys(session, 1)[:, :first], layer_keys(again, 1)[:, :first], atol=1e-4)
        assert not torch.allclose(layer_keys(session, 1)[:, first:], layer_keys(again, 1)[:, first:], atol=1e-3)


async def test_nothing_is_computed_again_and_no_exact_context_finds_it(tiny_llama: Path) -> None:
    async with running(tiny_llama, debug=True) as engine:
        session = engine.open()
        await session.extend([*turn("List"), RoleOpen("assistant"), RoleClose()])
        branches = await session.fork(2)
        for i, branch in enumerate(branches):
            await branch.extend(turn(f"item {i} of the list"))
            await branch._compute()
        before = engine.metrics.embedded_tokens
        await session.concat(branches, "concat_kv")
        assert engine.metrics.embedded_tokens == before
        joined_ids = ids_of(session)
        await session.extend([RoleOpen("assistant")])
        finish, _ = await collect(session, max_tokens=3, ignore_eos=True)
        assert finish.usage.reused_tokens == len(joined_ids)
        await session.close()
        exact = engine.open()
        await exact.extend([*turn("List"), RoleOpen("assistant"), RoleClose()])
        await exact.extend([*turn("item 0 of the list"), *turn("item 1 of the list"), RoleOpen("assistant")])
        assert ids_of(exact)[: len(joined_ids)] == joined_ids
        finish, _ = await collect(exact, max_tokens=3, ignore_eos=True)
        assert finish.usage.reused_tokens < branches[0]._lease.length + 8
        for one in (exact, *branches):
            await one.close()
        await engine.check()
        assert engine.pool.live_bytes == 0


async def test_a_join_goes_on_like_any_context(tiny_llama: Path) -> None:
    async with running(tiny_llama, debug=True) as engine:
        session, _ = await joined(engine, "concat_kv")
        trace = session.trace()
        assert {t.origin for t in trace} == {"scaffold", "author", "generated"}
        assert sum(t.origin == "generated" for t in trace) == 4 + 5 + 6
        await session.extend([*turn("more"), RoleOpen("assistant")])
        forks = await session.fork(2)
        texts = [(await collect(fork, max_tokens=5, ignore_eos=True))[0].text for fork in forks]
        assert texts[0] == texts[1]

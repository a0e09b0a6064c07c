"""Driving an engine in tests, and what it is compared with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sglspec_engine.config import EngineConfig
from sglspec_engine.engine import Engine
from sglspec_engine.model.load import load_model
from sglspec_engine.sched.generation import Generation
from sglspec_engine.select import Scoring
from sglspec_engine.session import Session
from sglspec_engine.types import Finish, GenRequest, RoleClose, RoleOpen, Segment, TextSegment, Token

GAP = 1e-4
"""A greedy token may differ from the oracle's where the oracle's best two logits are closer than this."""


@asynccontextmanager
async def running(path: Path, *, max_context: int | None = None, **settings: Any) -> AsyncIterator[Engine]:
    """An engine; at the end its books must agree, and nothing may be held once every session is closed."""
    loaded = load_model(path)
    if max_context is not None:
        loaded = replace(loaded, max_context=max_context)
    # What is compared with transformers is compared in fp32, and behind the very tokens that it is given.
    engine = Engine(loaded, EngineConfig(**{"weights": "fp32", "healing": False, **settings}))
    try:
        yield engine
        await engine.check()
    finally:
        await engine.close()


async def collect(session: Session, **request: Any) -> tuple[Finish, list[Token]]:
    """Run a generation to its end and check what holds for every stream."""
    parts: list[str] = []
    thinking: list[str] = []
    tokens: list[Token] = []
    finish: Finish | None = None
    async for delta in session.generate(GenRequest(**request)):
        assert finish is None, "something followed the finish"
        assert "�" not in delta.text
        parts.append(delta.text)
        thinking.append(delta.thinking)
        tokens += delta.tokens
        finish = delta.finish
    assert finish is not None
    assert "".join(parts) == finish.text == "".join(t.text for t in tokens if not t.thinking)
    assert "".join(thinking) == (finish.reasoning or "") == "".join(t.text for t in tokens if t.thinking)
    assert finish.usage.generated_tokens == len(tokens)
    sealed = list(session._context.ids)
    assert sealed == ids_of(session)[: len(sealed)], "the trace shows other tokens than the model saw"
    common = min(len(sealed), session._lease.length)
    assert session._lease.ids[:common] == sealed[:common], "keys and values are of other tokens than the context's"
    return finish, tokens


async def until_forwards(engine: Engine, count: int) -> None:
    """Wait until the model has run `count` times."""
    while engine.metrics.forwards < count:  # noqa: ASYNC110 (the engine's thread counts, it signals no one)
        await asyncio.sleep(0.001)


async def together(engine: Engine, *works: Awaitable[object]) -> list[asyncio.Task[object]]:
    """Start works that are all in the queue, in order, before the first step."""
    gate = threading.Event()

    def hold() -> None:
        gate.wait()

    async def run(work: Awaitable[object]) -> object:
        return await work

    holding = asyncio.create_task(engine.call(hold))
    tasks = [asyncio.create_task(run(work)) for work in works]
    for _ in range(3):
        await asyncio.sleep(0)
    gate.set()
    await holding
    return tasks


def doing(engine: Engine, work: Any) -> str:
    """What a request is doing, in one word. On the engine's thread."""
    scheduler = engine._loop._scheduler
    if any(waiting.work is work for waiting in engine._loop._waiting):
        return "compiling"
    if isinstance(work, Scoring):
        return "scoring"
    if work in scheduler._waiting:
        return "preempted" if work.preempted else "queued"
    if work not in scheduler._running:
        return "arriving"
    if isinstance(work, Generation):
        return "decoding" if work._tokens else "prefilling"
    return "forking"


def turn(text: str, role: Any = "user") -> list[Segment]:
    """A whole message."""
    return [RoleOpen(role), TextSegment(text), RoleClose()]


def ids_of(session: Session) -> list[int]:
    """The context's tokens."""
    return [token.id for token in session.trace()]


class Oracle:
    """transformers' own forward, eager attention, float32, whole sequences at once."""

    def __init__(self, path: Path) -> None:
        self.loaded = load_model(path)
        self.vocabulary = self.loaded.vocabulary
        self.close_calls = 0

    @torch.inference_mode()
    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """[len(ids), vocabulary] of a full forward."""
        return self.loaded.model(torch.tensor([list(ids)]), use_cache=False).logits[0].float()

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        """The log-probability of every token but the first, given those before it."""
        table = torch.log_softmax(self.logits(ids), dim=-1)
        return [float(table[i - 1, ids[i]]) for i in range(1, len(ids))]

    def assert_greedy(self, prompt: Sequence[int], tokens: Sequence[int], *, banned: Sequence[int] = ()) -> None:
        """Every token is the likeliest one the tokenizer knows and that is not banned, after what precedes it."""
        logits = self.logits([*prompt, *tokens])[:, : self.vocabulary.size].clone()
        logits[:, list(banned)] = float("-inf")
        for i, token in enumerate(tokens):
            row = logits[len(prompt) + i - 1]
            if int(row.argmax()) != token:
                self.close_calls += 1
                gap = float(row.max() - row[token])
                assert gap < GAP, f"token {i}: {token} chosen, {int(row.argmax())} is {gap} likelier"

    def assert_logprobs(self, prompt: Sequence[int], tokens: Sequence[Token]) -> None:
        """Reported log-probabilities are those of a full forward within 1e-4."""
        expected = self.logprobs([*prompt, *(t.id for t in tokens)])[len(prompt) - 1 :]
        for token, value in zip(tokens, expected, strict=True):
            assert abs(token.logprob - value) < 1e-4

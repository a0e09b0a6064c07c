"""Texts that a request asks for: prompts in, samples out, over any backend."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

from sglspec.backends.base import (
    Backend,
    Delta,
    EngineError,
    Finish,
    GenRequest,
    Place,
    Role,
    RoleClose,
    RoleOpen,
    Segment,
    Session,
    TextSegment,
    Token,
    TokenBackend,
    TokenSession,
    Usage,
)
from sglspec.server.compat.fields import Refused

_ASIDE = 20_000
"""Characters from which a text is encoded beside the event loop."""

T = TypeVar("T")
log = logging.getLogger("sglspec.server")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One of text, ids and messages. control: whether `text` may spell control tokens. param: its key in requests."""

    text: str = ""
    ids: tuple[int, ...] | None = None
    messages: tuple[tuple[Role, str], ...] | None = None
    control: bool = False
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A prompt and what is to follow it, `count` times.

    read: the first prompt token whose log-probability is wanted, None for none; trim: stops in `request` are kept
    there because stop patterns are to be kept, and these texts and tokens are not to be. name: who may abort it.
    """

    prompt: Prompt
    request: GenRequest
    count: int = 1
    read: int | None = None
    trim: bool = False
    name: str = ""


@dataclass(slots=True)
class Sample:
    """A text as it grows.

    index: among all of the request; place: of its order; number: within that. ids: the prompt's tokens, where the
    backend has any; places: what was expected of them from `order.read` on, and behind the last one. finish: None while
    it grows; aborted: it was told to end.
    """

    order: Order
    index: int
    place: int
    number: int
    ids: tuple[int, ...] | None = None
    places: tuple[Place, ...] = ()
    text: str = ""
    tokens: list[Token] = field(default_factory=list[Token])
    finish: Finish | None = None
    cached: int = 0
    prompt_tokens: int = 0
    aborted: bool = False
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    task: asyncio.Task[Any] | None = None

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.aborted

    @property
    def generated(self) -> int:
        return max(len(self.tokens), self.finish.usage.generated_tokens if self.finish is not None else 0)

    def abort(self) -> None:
        """End it where it is."""
        if not self.ended:
            self.aborted = True
            if self.task is not None:
                self.task.cancel()


Show = Callable[[Sample, str, tuple[Token, ...]], None]
"""Told of each sample that has grown, with what is new. Once more when it has ended, maybe without anything new."""


def nobody(sample: Sample, text: str, tokens: tuple[Token, ...]) -> None:
    """For who waits for the end."""


class Worker:
    """Runs one request's orders. samples: all of them, once they are begun."""

    def __init__(self, backend: Backend, seed: int | None, show: Show) -> None:
        self._backend = backend
        self._seed = secrets.randbits(64) if seed is None else seed
        self._show = show
        self.samples: list[Sample] = []

    async def run(self, orders: Sequence[Order]) -> list[Sample]:
        """All samples, prompt by prompt. The first error ends the others. Raises Refused."""
        base = 0
        works: list[Coroutine[Any, Any, None]] = []
        for place, order in enumerate(orders):
            works.append(self._order(order, place, base))
            base += order.count
        try:
            await _together(works)
        except EngineError as error:
            raise refused(error) from None
        return sorted(self.samples, key=lambda sample: sample.index)

    async def _order(self, order: Order, place: int, base: int) -> None:
        samples = [Sample(order, base + i, place, i) for i in range(order.count)]
        self.samples += samples
        session, ids = await self._open(order.prompt)
        forks: list[Session] = []
        try:
            for sample in samples:
                sample.ids = ids
            prompt = await _unless_aborted(samples, self._prompt(session, order, ids))
            if prompt is None:
                for sample in samples:
                    self._end(sample, None)
                return
            places, usage, forks = prompt
            cached = None
            if usage is not None:
                cached = usage.reused_tokens
            elif forks and ids is not None:
                cached = max(0, len(ids) - session.usage.computed_tokens)
            for sample in samples:
                sample.places = places
                sample.prompt_tokens = len(ids) if ids is not None else 0
                sample.cached = cached or 0
            if order.request.max_tokens == 0:
                for sample in samples:
                    self._end(sample, Finish("length", ""))
                return
            sessions = forks or [session]
            await _together(
                [self._sample(one, sample, cached is None) for one, sample in zip(sessions, samples, strict=True)]
            )
        finally:
            for one in (*forks, session):
                await one.close()

    async def _prompt(
        self, session: Session, order: Order, ids: tuple[int, ...] | None
    ) -> tuple[tuple[Place, ...], Usage | None, list[Session]]:
        """What is done with a prompt before anything follows it: as `_read`, and the sessions of several samples."""
        places, usage = await self._read(session, order, ids)
        several = order.count > 1 and order.request.max_tokens > 0
        return places, usage, await session.fork(order.count) if several else []

    async def _open(self, prompt: Prompt) -> tuple[Session, tuple[int, ...] | None]:
        """A session with the prompt in it, and its tokens where there are any to show."""
        backend = self._backend
        if prompt.messages is not None:
            backend.require_chat()
            session = await backend.open("chat")
            try:
                await session.extend(_segments(prompt.messages))
            except BaseException:
                await session.close()
                raise
            return session, None
        if not isinstance(backend, TokenBackend):
            if prompt.ids is not None:
                raise Refused("This model has no tokens that a request could name.", prompt.param)
            session = await backend.open("text")
            await session.extend([TextSegment(prompt.text, "input")])
            return session, None
        ids = prompt.ids if prompt.ids is not None else await encode(backend, prompt)
        most = backend.max_context()
        if len(ids) > most:
            message = f"The prompt has {len(ids)} tokens, and this model's context has {most}."
            raise Refused(message, prompt.param, code="context_length_exceeded")
        return await backend.open_tokens(ids), tuple(ids)

    async def _read(
        self, session: Session, order: Order, ids: tuple[int, ...] | None
    ) -> tuple[tuple[Place, ...], Usage | None]:
        """What the prompt's tokens were expected to be. A prompt that nothing follows is computed in any case."""
        if ids is None or not isinstance(session, TokenSession):
            if order.read is not None:
                raise Refused("This model tells no log-probabilities.", order.prompt.param)
            return (), None
        if order.read is not None and order.read > len(ids):
            message = f"Log-probabilities are wanted from token {order.read} on, and the prompt has {len(ids)}."
            raise Refused(message, "logprob_start_len")
        if not ids or (order.read is None and order.request.max_tokens > 0):
            return (), None
        start = len(ids) if order.read is None else min(order.read + 1, len(ids))
        request = order.request
        reading = await session.read(start, request.alternatives, request.watched)
        return reading.places, reading.usage

    async def _sample(self, session: Session, sample: Sample, cold: bool) -> None:
        """Generate one. cold: the first to use its prompt, so it tells how much of that was cached."""
        if sample.aborted:
            self._end(sample, None)
            return
        sample.task = asyncio.current_task()
        request = replace(sample.order.request, noise_key=_noise(self._seed, sample.index))
        try:
            async with aclosing(cast("Any", session.generate(request))) as deltas:
                async for delta in cast("AsyncIterator[Delta]", deltas):
                    self._grow(sample, delta, cold)
        except asyncio.CancelledError:
            if not sample.aborted:
                raise
            assert sample.task is not None
            sample.task.uncancel()
            self._end(sample, None)

    def _grow(self, sample: Sample, delta: Delta, cold: bool) -> None:
        text = delta.text
        finish = delta.finish
        if finish is not None and sample.order.trim:
            text = _trimmed(sample, delta)
        sample.text += text
        sample.tokens += delta.tokens
        if finish is None:
            self._show(sample, text, delta.tokens)
            return
        sample.prompt_tokens = sample.prompt_tokens or finish.usage.prompt_tokens
        if cold:
            sample.cached = finish.usage.reused_tokens
        self._end(sample, finish, text, delta.tokens)

    def _end(self, sample: Sample, finish: Finish | None, text: str = "", tokens: tuple[Token, ...] = ()) -> None:
        sample.finish = finish
        sample.seconds = time.monotonic() - sample.started
        self._show(sample, text, tokens)


async def encode(backend: TokenBackend, prompt: Prompt) -> tuple[int, ...]:
    """The tokens of a text."""
    if len(prompt.text) < _ASIDE:
        return tuple(backend.encode(prompt.text, control=prompt.control))
    return tuple(await asyncio.to_thread(backend.encode, prompt.text, control=prompt.control))


def refused(error: EngineError) -> Refused:
    """What the engine could not do, as an answer."""
    text = str(error)
    message = text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
    if error.kind == "limit":
        return Refused(message, code="context_length_exceeded")
    if error.kind == "internal":
        log.error("a generation broke: %s", text)
        return Refused("A fault in sglspec ended the generation. The server's log says more.", status=500)
    return Refused(message, code=error.kind)


def size_of(backend: Backend) -> int | None:
    """The size of a model's vocabulary, None where it shows no tokens."""
    return backend.vocabulary_size() if isinstance(backend, TokenBackend) else None


def token_text(backend: Backend, token: Token) -> str:
    """A token's own text."""
    return backend.token_text(token.id) if isinstance(backend, TokenBackend) else token.text


def token_data(backend: Backend, id: int, text: str) -> bytes:
    """A token's own bytes."""
    data = backend.token_bytes(id) if isinstance(backend, TokenBackend) else b""
    return data or text.encode("utf-8", "replace")


FinishWord = Literal["stop", "length"]


def finish_word(finish: Finish) -> FinishWord:
    """How a text ended, in the one word that both protocols have for it."""
    return "length" if finish.reason == "length" else "stop"


def _segments(messages: Sequence[tuple[Role, str]]) -> list[Segment]:
    found: list[Segment] = []
    for role, text in messages:
        found += [RoleOpen(role), TextSegment(text, "input"), RoleClose()]
    return [*found, RoleOpen("assistant")]


def _trimmed(sample: Sample, delta: Delta) -> str:
    """The last piece of a text without the stop text or stop token that it ends with."""
    finish, text = delta.finish, delta.text
    assert finish is not None
    stop = finish.matched
    if isinstance(stop, int):
        last = delta.tokens[-1].text if delta.tokens else ""
        return text.removesuffix(last) if last else text
    if finish.reason == "stop" and stop in sample.order.request.stop:
        return text.removesuffix(stop)
    return text


def _noise(seed: int, index: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest(), "big")


async def _unless_aborted(samples: Sequence[Sample], work: Coroutine[Any, Any, T]) -> T | None:
    """Work for samples of one order, which are aborted together; None when they are."""
    if all(sample.aborted for sample in samples):
        work.close()
        return None
    task = asyncio.ensure_future(work)
    for sample in samples:
        sample.task = task
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if (current is not None and current.cancelling()) or not all(sample.aborted for sample in samples):
            raise
        return None
    finally:
        for sample in samples:
            sample.task = None


async def _together(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all of them at once. The first error ends the others, and is raised when they have ended."""
    if len(works) == 1:
        await works[0]
        return
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


__all__ = [
    "Order", "Prompt", "Sample", "Show", "Worker", "encode", "finish_word", "nobody", "refused", "size_of",
    "token_data", "token_text",
]  # fmt: skip

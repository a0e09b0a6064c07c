"""The local backend: sessions on the engine in this process.

This is where sglspec meets sglspec_engine. torch is imported when a model is opened, not before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglspec.backends.base import Capabilities, Concat, EngineError, Role, Session, TokenSession
from sglspec.backends.markup import Piece
from sglspec_engine.config import EngineConfig, prepare_process
from sglspec_engine.types import (
    Delta,
    GenRequest,
    Method,
    Observed,
    Reading,
    Scores,
    Segment,
    TraceToken,
    Usage,
    Vitals,
)

if TYPE_CHECKING:
    from sglspec_engine.engine import Engine
    from sglspec_engine.session import Session as EngineSession
    from sglspec_engine.text.chat import ChatTemplate
    from sglspec_engine.text.tokens import Part, Vocabulary


async def open_local(path: str | Path, **options: Any) -> LocalBackend:
    """Load the model folder `path`. `options` are fields of `sglspec_engine.config.EngineConfig`.

    Loading runs on a thread of its own, so the event loop goes on. Raises EngineError("unsupported") for a model or an
    option that cannot be served, ImportError where the engine's own dependencies are not installed or broken.
    """
    prepare_process()

    def load() -> Engine:
        with _importing():
            from sglspec_engine.engine import Engine
        try:
            return Engine.load(path, **options)
        except (TypeError, ValueError) as error:
            raise EngineError("unsupported", f"engine options: {error}") from error

    return LocalBackend(await asyncio.to_thread(load))


async def report_local(path: Path | None, **options: Any) -> tuple[str, ...]:
    """What the engine makes of this machine, of `options`, and of the model folder `path`: lines `name=value: reason`.

    Raises what `open_local` raises.
    """
    prepare_process()

    def load() -> tuple[tuple[str, ...], tuple[str, ...]]:
        with _importing():
            from sglspec_engine.doctor import machine_report, settings_report
        return machine_report(), () if path is not None else settings_report(EngineConfig(**options))

    machine, settings = await asyncio.to_thread(load)
    if path is None:
        return machine + settings
    backend = await open_local(path, **options)
    await backend.close()
    return machine + backend.engine.reasons


@contextmanager
def _importing() -> Generator[None, None, None]:
    """A library that torch loads and that is missing or broken is an ImportError."""
    try:
        yield
    except OSError as error:
        raise ImportError(str(error)) from None


class LocalBackend:
    """A model in this process. See `sglspec.backends.base.Backend`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def model_name(self) -> str:
        """The model's name in the store, or its folder's."""
        return self.engine.name

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do with this model."""
        chat = True
        try:
            self.require_chat()
        except EngineError:
            chat = False
        return Capabilities(chat=chat, concat_kv=self.engine.joins_keys)

    @property
    def vitals(self) -> Vitals:
        """What the engine does now, and totals since it was loaded."""
        return self.engine.vitals

    def require_chat(self) -> None:
        """Raise EngineError("no_template" | "template") when the model has no usable chat template."""
        _ = self.engine.chat

    @property
    def kv_tokens(self) -> int:
        """Tokens of context that there is memory for."""
        return self.engine.pool.arena.slots

    @property
    def markup(self) -> ModelMarkup:
        """How it counts tokens."""
        chat: ChatTemplate | EngineError
        try:
            chat = self.engine.chat
        except EngineError as error:
            chat = error
        return ModelMarkup(self.model_name, self.engine.vocabulary, chat)

    def prepare(self, grammars: Sequence[str]) -> None:
        """Compile grammars ahead, on the engine's pool."""
        self.engine.prepare(grammars)

    async def open(self, label: str = "", caller: Session | None = None) -> Session:
        """A new, empty context. The arguments are for backends that show them."""
        return LocalSession(self.engine.open())

    def max_context(self) -> int:
        """Tokens that a context may hold."""
        return self.engine.max_context

    def vocabulary_size(self) -> int:
        """Ids are below it."""
        return self.engine.vocabulary.size

    def encode(self, text: str, *, control: bool = False) -> list[int]:
        """The tokens of a context that begins with `text`. See `sglspec.backends.base.TokenBackend`."""
        vocabulary = self.engine.vocabulary
        start = vocabulary.start_parts()
        if not control:
            return vocabulary.encode([*start, text])
        parts = vocabulary.split_scaffold(text)
        return vocabulary.encode(parts if start and parts[:1] == start else [*start, *parts])

    def token_text(self, id: int) -> str:
        """A token for people."""
        return self.engine.vocabulary.describe(id)

    def token_bytes(self, id: int) -> bytes:
        """What a token adds to a text."""
        return self.engine.vocabulary.token_bytes[id]

    async def open_tokens(self, ids: Sequence[int]) -> TokenSession:
        """A new context of these tokens."""
        session = LocalSession(self.engine.open())
        try:
            await session.extend_tokens(ids)
        except BaseException:
            await session.close()
            raise
        return session

    async def flush(self) -> bool:
        """Forget what no session uses."""
        return await self.engine.flush()

    async def close(self) -> None:
        """End every session and the engine. Idempotent."""
        await self.engine.close()


class LocalSession:
    """An engine's session behind the protocol. See `sglspec.backends.base.Session`."""

    def __init__(self, session: EngineSession) -> None:
        self._session = session

    @property
    def usage(self) -> Usage:
        """Token counts of this session's requests, and of the prefixes that its forks computed."""
        return self._session.usage

    def observe(self, observed: Observed) -> None:
        """From now on note what this session and its forks do."""
        self._session.observe(observed)

    async def extend(self, segments: Sequence[Segment]) -> None:
        """Append text or role boundaries."""
        await self._session.extend(segments)

    async def extend_tokens(self, ids: Sequence[int]) -> None:
        """Append tokens as they are."""
        await self._session.extend_tokens(ids)

    async def read(self, start: int, top: int = 0, watched: Sequence[int] = ()) -> Reading:
        """How likely each token was."""
        return await self._session.read(start, top, watched)

    def generate(self, request: GenRequest) -> AsyncIterator[Delta]:
        """Append generated text; closing the iterator cancels."""
        return self._session.generate(request)

    async def score(self, choices: Sequence[str], method: Method, label: str = "") -> Scores:
        """Score continuations."""
        return await self._session.score(choices, method, label)

    async def fork(self, n: int) -> list[Session]:
        """`n` copies that share everything so far."""
        return [LocalSession(child) for child in await self._session.fork(n)]

    async def concat(self, branches: Sequence[Session], mode: Concat) -> float | None:
        """Append what each branch added. Branches of another backend are refused."""
        inner: list[EngineSession] = []
        for branch in branches:
            if not isinstance(branch, LocalSession):
                raise EngineError("internal", "a branch of another backend cannot be joined here")
            inner.append(branch._session)
        return await self._session.concat(inner, mode)

    def text(self) -> str:
        """The whole context as text."""
        return self._session.text()

    def trace(self) -> list[TraceToken]:
        """The context's tokens with their origin."""
        return self._session.trace()

    def retire(self) -> None:
        """Let go of what only this context would have used."""
        self._session.retire()

    async def close(self) -> None:
        """Let go of what the context holds. Idempotent."""
        await self._session.close()


class ModelMarkup:
    """What a model's tokenizer and chat template make of a context; see `sglspec.backends.rendering.Markup`. Weights
    are not read, and torch is not loaded."""

    def __init__(self, name: str, vocabulary: Vocabulary, chat: ChatTemplate | EngineError) -> None:
        self.name: str = name
        self._vocabulary = vocabulary
        self._chat = chat

    @staticmethod
    def load(path: Path) -> ModelMarkup:
        from sglspec_engine.text.chat import ChatTemplate
        from sglspec_engine.text.tokens import Vocabulary

        vocabulary = Vocabulary.load(path)
        chat: ChatTemplate | EngineError
        try:
            chat = ChatTemplate.load(path, vocabulary)
        except EngineError as error:  # a program without roles needs none
            chat = error
        return ModelMarkup(path.name, vocabulary, chat)

    @property
    def _template(self) -> ChatTemplate:
        if isinstance(self._chat, EngineError):
            raise EngineError(self._chat.kind, str(self._chat))
        return self._chat

    def require_chat(self) -> None:
        _ = self._template

    def start(self) -> list[Piece]:
        return self._shown(self._vocabulary.start_parts())

    def open(self, role: Role, *, first: bool) -> list[Piece]:
        return self._shown(self._template.open(role, first=first))

    def close(self, role: Role) -> list[Piece]:
        return self._shown(self._template.close(role))

    def trims(self, role: Role) -> tuple[bool, bool]:
        return self._template.trims(role)

    def count(self, pieces: Sequence[Piece]) -> int:
        parts: list[Part] = []
        total, begun = 0, False
        for piece in (*pieces, None):
            if piece is not None and piece.kind != "blank":
                control = self._vocabulary.control(piece.text) if piece.kind == "control" else None
                parts.append(control or piece.text)
                continue
            total += len(self._vocabulary.encode(parts, after="text" if begun else "start"))
            parts, begun = [], True
        return total

    def _shown(self, parts: Sequence[Part]) -> list[Piece]:
        return [
            Piece("scaffold", part) if isinstance(part, str) else Piece("control", self._vocabulary.describe(part.id))
            for part in parts
        ]

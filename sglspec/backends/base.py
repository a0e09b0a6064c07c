"""The Session protocol: one abstraction for every place where a program can run.

A session is a context: text with role structure. On the local engine it is a token sequence with its KV.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from sglspec_engine.types import (
    Alternative,
    Asked,
    Delta,
    EngineError,
    Finish,
    GenRequest,
    Method,
    Observed,
    Origin,
    Place,
    Reading,
    Reasoning,
    Role,
    RoleClose,
    RoleOpen,
    Sampling,
    Scores,
    Segment,
    TextSegment,
    Token,
    TraceToken,
    Usage,
    Vitals,
)

if TYPE_CHECKING:
    from sglspec.backends.markup import Markup

Concat = Literal["concat", "concat_kv"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do; `check` and the interpreter ask here instead of finding out by failing."""

    chat: bool = True
    grammar: bool = True
    score: bool = True
    concat_kv: bool = False
    """Whether branches can be joined without computing their text again."""
    images: bool = False
    concurrent: bool = True
    """False: branches run one after another in order (scripted replies are taken in that order)."""
    tools: bool = True
    """False: tools are not run, the sessions are ToolReplies and answer for them."""


@dataclass(frozen=True, slots=True)
class ValueFinish(Finish):
    """A finish that brings the value itself instead of a text to parse (a scripted reply that is no text)."""

    value: object = None


@dataclass(frozen=True, slots=True)
class PlaceholderFinish(ValueFinish):
    """A finish whose value only stands for one: it keeps no constraint."""


@runtime_checkable
class Session(Protocol):
    """A context on a backend. Not safe for two operations at once; forks are independent of each other."""

    @property
    def usage(self) -> Usage:
        """What this session made the model compute so far, cancelled requests and shared prefixes included. A fork
        starts at zero."""
        ...

    async def extend(self, segments: Sequence[Segment]) -> None:
        """Append text or role boundaries."""
        ...

    def generate(self, request: GenRequest) -> AsyncIterator[Delta]:
        """Append generated text. Closing the iterator cancels the generation within one step."""
        ...

    async def score(self, choices: Sequence[str], method: Method, label: str = "") -> Scores:
        """Score continuations. The context does not change. `label` is the step's key, as in GenRequest."""
        ...

    async def fork(self, n: int) -> list[Session]:
        """`n` copies that share everything so far (open message included)."""
        ...

    async def concat(self, branches: Sequence[Session], mode: Concat) -> float | None:
        """Append what each branch added since it was forked from this session, in order.

        "concat_kv" raises EngineError("unsupported") where these branches cannot be joined so. Returns how far the next
        token's distribution is from an exact context's (Kullback-Leibler, in nats) where that was measured.
        """
        ...

    def text(self) -> str:
        """The whole context as text, template markup included."""
        ...

    def trace(self) -> list[TraceToken]:
        """The context's tokens with their origin; empty where the backend has no tokens."""
        ...

    def retire(self) -> None:
        """Say that nothing follows in this context and that it is never joined: what it holds may go at once. A hint;
        text, trace and usage stay, and `close` has to follow."""
        ...

    async def close(self) -> None:
        """Let go of what the context holds. Idempotent."""
        ...


@runtime_checkable
class ToolReplies(Protocol):
    """A session that knows what tools and called programs answer, so that none has to run."""

    def has_reply(self, labels: Sequence[str]) -> bool:
        """Whether there is a reply for any of these keys."""
        ...

    def tool_reply(self, labels: Sequence[str]) -> object:
        """The result of a step that is known by any of these keys, the first that has a reply. Raises
        EngineError("no_reply")."""
        ...


@runtime_checkable
class Observable(Protocol):
    """A session that can tell what it puts before the model, token by token, and when grammars were compiled."""

    def observe(self, observed: Observed) -> None:
        """From now on note what this session and its forks do."""
        ...


@runtime_checkable
class KVMemory(Protocol):
    """A backend that knows how many tokens of context it has memory for. For hosts that decide how much to start."""

    @property
    def kv_tokens(self) -> int: ...

    @property
    def markup(self) -> Markup:
        """How it counts tokens."""
        ...


@runtime_checkable
class Backend(Protocol):
    """Where sessions come from. One per process and model; closing it ends every session."""

    @property
    def model_name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def require_chat(self) -> None:
        """Raise EngineError("no_template" | "template") when the model has no usable chat template."""
        ...

    def prepare(self, grammars: Sequence[str]) -> None:
        """Say which grammars are going to be asked for. A hint; it never fails."""
        ...

    async def open(self, label: str = "", caller: Session | None = None) -> Session:
        """A new, empty context. `label` says of what: the program's name, and for a program that another one calls the
        alias; then `caller` is the other one's context."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class TokenSession(Session, Protocol):
    """A session whose context callers may write and read token by token."""

    async def extend_tokens(self, ids: Sequence[int]) -> None:
        """Append tokens as they are, control tokens included. EngineError("unsupported") for ids that are none."""
        ...

    async def read(self, start: int, top: int = 0, watched: Sequence[int] = ()) -> Reading:
        """How likely each token was from token `start` (at least 1) to the place behind the last one. The context does
        not change. `top`, `watched`: as `alternatives` and `watched` in GenRequest."""
        ...


@runtime_checkable
class TokenBackend(Protocol):
    """What a backend has besides when its contexts are sequences of tokens."""

    def max_context(self) -> int:
        """Tokens that a context may hold."""
        ...

    def vocabulary_size(self) -> int:
        """Ids are below it."""
        ...

    def encode(self, text: str, *, control: bool = False) -> list[int]:
        """The tokens of a context that begins with `text`, BOS included where the model begins texts with it. With
        `control` the text may spell control tokens; else it is data."""
        ...

    def token_text(self, id: int) -> str:
        """A token for people: control tokens by their names, broken UTF-8 as escapes."""
        ...

    def token_bytes(self, id: int) -> bytes:
        """What a token adds to a text; nothing where it is a special one."""
        ...

    async def open_tokens(self, ids: Sequence[int]) -> TokenSession:
        """A new context of these tokens."""
        ...

    async def flush(self) -> bool:
        """Forget what no session uses. Returns whether nothing was in use."""
        ...


@runtime_checkable
class Watched(Protocol):
    """A backend that says how it is doing."""

    @property
    def vitals(self) -> Vitals: ...


__all__ = [
    "Alternative",
    "Asked",
    "Backend",
    "Capabilities",
    "Concat",
    "Delta",
    "EngineError",
    "Finish",
    "GenRequest",
    "KVMemory",
    "Method",
    "Observable",
    "Observed",
    "Origin",
    "Place",
    "PlaceholderFinish",
    "Reading",
    "Reasoning",
    "Role",
    "RoleClose",
    "RoleOpen",
    "Sampling",
    "Scores",
    "Segment",
    "Session",
    "TextSegment",
    "Token",
    "TokenBackend",
    "TokenSession",
    "ToolReplies",
    "TraceToken",
    "Usage",
    "ValueFinish",
    "Vitals",
    "Watched",
]

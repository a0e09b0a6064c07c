"""A backend that shows what a model would see: contexts are recorded, and what a model would write stays blank.

Replies may be given, as for the scripted backend; a generation without one gets the text `⟨name⟩` for its value, a
`select` its first choice.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sglspec.backends.base import (
    Capabilities,
    Concat,
    Delta,
    GenRequest,
    Method,
    Origin,
    PlaceholderFinish,
    Role,
    RoleClose,
    RoleOpen,
    Scores,
    Segment,
    Session,
    TextSegment,
)
from sglspec.backends.markup import Kind, Markup, NoMarkup, Piece
from sglspec.backends.scripted import Script, ScriptedBackend, ScriptedSession, script_of


@dataclass(frozen=True, slots=True)
class Message:
    """A message, template included; role None: text outside of messages."""

    role: Role | None
    pieces: list[Piece] = field(default_factory=list[Piece])


@dataclass(slots=True)
class Recorded:
    """A context: what it began with (the context it was forked from), and the messages added since."""

    branch: str
    before: list[Piece]
    messages: list[Message] = field(default_factory=list[Message])

    @property
    def pieces(self) -> list[Piece]:
        """All of it, from the start."""
        return [*self.before, *(piece for message in self.messages for piece in message.pieces)]


class RenderingBackend(ScriptedBackend):
    """`contexts` holds every context of the run, in the order in which they were opened."""

    def __init__(self, replies: Mapping[str, Any], markup: Markup | None = None) -> None:
        super().__init__(replies)
        self.markup: Markup = markup or NoMarkup()
        self.contexts: list[Recorded] = []

    @property
    def model_name(self) -> str:
        return self.markup.name or "none"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(grammar=False, concat_kv=True, concurrent=False)

    def require_chat(self) -> None:
        self.markup.require_chat()

    async def open(self, label: str = "", caller: Session | None = None) -> Session:
        branch = ""
        if isinstance(caller, RenderingSession):
            branch = caller.next_branch(label)
        return RenderingSession(self, script_of(self.replies, label, caller), self.record(branch, []))

    def record(self, branch: str, before: list[Piece]) -> Recorded:
        self.contexts.append(Recorded(branch, before))
        return self.contexts[-1]


class RenderingSession(ScriptedSession):
    """A context whose text is kept in pieces."""

    def __init__(self, backend: RenderingBackend, script: Script, recorded: Recorded, text: str = "") -> None:
        super().__init__(script, text)
        self._text: str = text
        self._backend = backend
        self._recorded = recorded
        self._role: Role | None = None
        self._chosen: tuple[str, str] | None = None
        self._forks = 0
        self._names: set[str] = set()

    async def extend(self, segments: Sequence[Segment]) -> None:
        await super().extend(segments)
        markup = self._backend.markup
        for segment in segments:
            match segment:
                case RoleOpen():
                    first = not self._recorded.pieces
                    self._role = segment.role
                    self._recorded.messages.append(Message(segment.role, markup.open(segment.role, first=first)))
                case RoleClose():
                    if self._role is not None:
                        self._trim_right(self._role)
                        self._message().pieces.extend(markup.close(self._role))
                    self._role = None
                case TextSegment():
                    self._text_segment(segment)

    def _text_segment(self, segment: TextSegment) -> None:
        chosen, self._chosen = self._chosen, None
        if chosen is not None and segment.text == chosen[1]:
            self._write("blank", _blank(chosen[0]))
            return
        text = segment.text
        if self._bare() and self._role is not None and self._backend.markup.trims(self._role)[0]:
            text = text.lstrip()
        self._write_origin(segment.origin, text)

    def _write_origin(self, origin: Origin, text: str) -> None:
        """Text, in which a generated value that is not there yet is a blank."""
        known = "|".join(re.escape(_blank(name)) for name in sorted(self._names))
        parts = re.split(f"({known})", text) if known and origin == "generated" else [text]
        for part in parts:
            self._write(
                "blank" if part and origin == "generated" and part in map(_blank, self._names) else origin, part
            )

    def _write(self, kind: Kind, text: str) -> None:
        if text:
            self._message().pieces.append(Piece(kind, text))

    def _message(self) -> Message:
        """The open message; outside of one the text between two."""
        messages = self._recorded.messages
        if not messages or messages[-1].role != self._role:
            start = [] if self._recorded.pieces else self._backend.markup.start()
            messages.append(Message(self._role, start))
        return messages[-1]

    def _bare(self) -> bool:
        """Whether nothing stands in the open message but the template's own text."""
        return all(piece.kind in ("control", "scaffold") for piece in self._message().pieces)

    def _trim_right(self, role: Role) -> None:
        pieces = self._message().pieces
        if pieces and self._backend.markup.trims(role)[1] and pieces[-1].kind in ("author", "input", "tool"):
            pieces[-1] = Piece(pieces[-1].kind, pieces[-1].text.rstrip())

    async def generate(self, request: GenRequest) -> AsyncIterator[Delta]:
        if self.script.has(request.label):
            async for delta in super().generate(request):
                self._write("generated", delta.text)
                yield delta
            return
        blank = _blank(request.label)
        self._names.add(request.label)
        self._text += blank
        self._write("blank", blank)
        yield Delta(blank, finish=PlaceholderFinish("end", blank, value=blank))

    async def score(self, choices: Sequence[str], method: Method, label: str = "") -> Scores:
        if self.script.has(label):
            return await super().score(choices, method, label)
        self._chosen = (label, choices[0])
        flat = tuple(1.0 / len(choices) for _ in choices)
        return Scores(0, flat, flat)

    async def fork(self, n: int) -> list[Session]:
        prefix = self.next_branch()
        return [self._copy(f"{prefix}.{index}") for index in range(n)]

    def next_branch(self, called: str = "") -> str:
        """The path of the next context that begins from here: the program `called`, or (without the index) a fork."""
        number = f"{called}:{self._forks}" if called else str(self._forks)
        self._forks += 1
        return f"{self._recorded.branch}/{number}" if self._recorded.branch else number

    def _copy(self, branch: str) -> Session:
        backend = self._backend
        copy = RenderingSession(backend, self.script, backend.record(branch, self._recorded.pieces), self._text)
        copy._role, copy._names = self._role, set(self._names)
        return copy

    async def concat(self, branches: Sequence[Session], mode: Concat) -> None:
        await super().concat(branches, mode)
        for branch in branches:
            assert isinstance(branch, RenderingSession)
            self._names |= branch._names
            for message in branch._recorded.messages:
                self._role = message.role
                self._message().pieces.extend(message.pieces)
            self._role = branch._role


def _blank(name: str) -> str:
    return f"⟨{name or 'gen'}⟩"

"""What a model puts around content: pieces of text by their kind, and how many tokens they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sglspec.backends.base import Role

Kind = Literal["control", "scaffold", "author", "input", "generated", "thinking", "tool", "blank"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one kind: a control token, other text of the chat template, or content by its origin. A "blank" is what
    the model will write; its text is `⟨name⟩`."""

    kind: Kind
    text: str


class Markup(Protocol):
    """What a model puts around content, and how it counts. Raises EngineError for a template that cannot be used."""

    @property
    def name(self) -> str | None: ...

    def require_chat(self) -> None: ...

    def start(self) -> list[Piece]: ...

    def open(self, role: Role, *, first: bool) -> list[Piece]: ...

    def close(self, role: Role) -> list[Piece]: ...

    def trims(self, role: Role) -> tuple[bool, bool]:
        """Whether white space at the left and the right end of a message goes."""
        ...

    def count(self, pieces: Sequence[Piece]) -> int | None:
        """Tokens of a context so far, blanks left out; None where nobody counts."""
        ...


class NoMarkup:
    """Without a model: content only."""

    name = None

    def require_chat(self) -> None:
        return

    def start(self) -> list[Piece]:
        return []

    def open(self, role: Role, *, first: bool) -> list[Piece]:
        return []

    def close(self, role: Role) -> list[Piece]:
        return []

    def trims(self, role: Role) -> tuple[bool, bool]:
        return False, False

    def count(self, pieces: Sequence[Piece]) -> int | None:
        return None


__all__ = ["Kind", "Markup", "NoMarkup", "Piece"]

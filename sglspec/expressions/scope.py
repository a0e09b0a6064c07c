"""Where the variables of a template come from."""

from __future__ import annotations

from typing import Protocol

from sglspec.expressions.values import Origin, Value


class Scope(Protocol):
    """Where variables come from."""

    def lookup(self, name: str) -> tuple[Value, Origin]:
        """The value of a variable and who wrote it. Raises KeyError where it is not bound."""
        ...

    def meta(self, name: str) -> Value:
        """What is known about how a variable was generated. Raises KeyError where it is not bound."""
        ...

    def messages(self) -> Value:
        """The messages of the conversation so far."""
        ...

    def transcript(self) -> str:
        """The text of the context so far."""
        ...

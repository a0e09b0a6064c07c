"""What a line of execution has written: messages, and the text for captures. The tokens are the session's."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Transcript:
    """Closed messages, the open one, and (without roles) plain text. Scaffolding is not in here."""

    closed: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    role: str | None = None
    parts: list[str] = field(default_factory=list[str])
    base: tuple[int, int] = (0, 0)
    """How many closed messages and parts were there when this one was snapshot."""

    def snapshot(self) -> Transcript:
        return Transcript(list(self.closed), self.role, list(self.parts), (len(self.closed), len(self.parts)))

    def open(self, role: str) -> None:
        self.role = role
        self.parts = []

    def close(self) -> None:
        if self.role is not None:
            self.closed.append({"role": self.role, "content": "".join(self.parts)})
        self.role = None
        self.parts = []

    def append(self, text: str) -> None:
        self.parts.append(text)

    def mark(self) -> int:
        """A place to take the text from later with `since`."""
        return len(self.parts)

    def since(self, mark: int) -> str:
        return "".join(self.parts[mark:])

    def messages(self) -> list[dict[str, str]]:
        """The closed messages and the open one as it stands (language.md § 11)."""
        if self.role is None:
            return list(self.closed)
        return [*self.closed, {"role": self.role, "content": "".join(self.parts)}]

    def added(self) -> str:
        """The text written since the snapshot. A branch ends in the role it started in: it added either whole
        messages or parts."""
        messages = [message["content"] for message in self.closed[self.base[0] :]]
        return "".join([*messages, *self.parts[self.base[1] :]])

    def join(self, branch: Transcript) -> None:
        """Take over what a branch added."""
        self.closed.extend(branch.closed[branch.base[0] :])
        self.parts.extend(branch.parts[branch.base[1] :])

"""The budget of one evaluation. A step stands for about 100 ns of work or 32 bytes of new memory."""

from __future__ import annotations

from dataclasses import dataclass

from sglspec.expressions.errors import Problem

MAX_STEPS = 1_000_000
MAX_OUTPUT = 10_000_000
MAX_TEXT = 10_000_000
"""The longest text (in characters) that an expression may make on the way."""

NODE_COST = 8
"""Steps for visiting one node of an expression or template."""


@dataclass(slots=True)
class Budget:
    """What is left. Everything is charged before it is done, so a hostile template ends before it allocates."""

    steps: int = MAX_STEPS
    output: int = MAX_OUTPUT

    def charge(self, steps: int) -> None:
        """Spend steps."""
        self.steps -= steps
        if self.steps < 0:
            raise Problem(
                "This takes more work than a template or expression may do.",
                "Make the loops, lists or texts smaller, or let the steps of the program do the work.",
                "S253",
            )

    def text(self, characters: int, width: int = 1) -> None:
        """Spend steps for a new text of so many characters, `width` bytes each."""
        if characters > MAX_TEXT:
            raise Problem(f"The text would be longer than {MAX_TEXT:,} characters.", cause="S253")
        self.charge(1 + characters * width // 32)

    def scan(self, characters: int) -> None:
        """Spend steps for reading through so many characters."""
        self.charge(1 + characters // 64)

    def items(self, count: int, each: int = 1) -> None:
        """Spend steps for a new list of so many items."""
        self.charge(1 + count * each)

    def emit(self, text: str) -> None:
        """Count text that leaves the template, in bytes of UTF-8."""
        size = len(text)
        if not text.isascii():
            size = len(text.encode("utf-8", "surrogatepass")) if size <= self.output else size
        self.output -= size
        if self.output < 0:
            raise Problem(f"The text would be longer than {MAX_OUTPUT // 1_000_000} MB.", cause="S253")

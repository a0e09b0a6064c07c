"""What is known of a number before a run: from at least so many to at most so many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Range:
    """`most` is None where inputs or generated texts decide, and nothing bounds it."""

    least: int = 0
    most: int | None = 0

    @staticmethod
    def exactly(number: int) -> Range:
        return Range(number, number)

    @staticmethod
    def up_to(number: int | None) -> Range:
        return Range(0, number)

    @property
    def exact(self) -> int | None:
        """The number where it is known."""
        return self.least if self.least == self.most else None

    def __add__(self, other: Range) -> Range:
        most = None if self.most is None or other.most is None else self.most + other.most
        return Range(self.least + other.least, most)

    def __mul__(self, other: Range) -> Range:
        if 0 in (self.most, other.most):
            return Range()
        most = None if self.most is None or other.most is None else self.most * other.most
        return Range(self.least * other.least, most)

    def __or__(self, other: Range) -> Range:
        """One or the other."""
        most = None if self.most is None or other.most is None else max(self.most, other.most)
        return Range(min(self.least, other.least), most)

    def within(self, limit: int | None) -> Range:
        """Never more than a limit."""
        if limit is None:
            return self
        return Range(min(self.least, limit), limit if self.most is None else min(self.most, limit))

    def __str__(self) -> str:
        if self.most is None:
            return f"≥ {self.least:,}" if self.least else "?"
        return f"{self.least:,}" if self.exact is not None else f"≤ {self.most:,}"

    def as_dict(self) -> dict[str, int | None]:
        return {"least": self.least, "most": self.most}


UNKNOWN = Range(0, None)
NONE = Range()
ONE = Range.exactly(1)
MAYBE = Range(0, 1)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run does. text, choices: what is put before the model as text, and to score choices, each shared beginning
    once, in tokens or characters; generated: tokens; the others count what is started. depth: of forks in one another.
    """

    text: Range = NONE
    choices: Range = NONE
    generated: Range = NONE
    generations: Range = NONE
    selections: Range = NONE
    branches: Range = NONE
    calls: Range = NONE
    tools: Range = NONE
    depth: Range = NONE

    def __add__(self, other: Cost) -> Cost:
        return self._with(other, add=True)

    def __or__(self, other: Cost) -> Cost:
        return self._with(other, add=False)

    def __mul__(self, times: Range) -> Cost:
        values = {f.name: getattr(self, f.name) * times for f in fields(self)}
        return Cost(**{**values, "depth": self.depth if times.most != 0 else NONE})

    def _with(self, other: Cost, *, add: bool) -> Cost:
        values: dict[str, Range] = {}
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            values[one.name] = mine + theirs if add else mine | theirs
        values["depth"] = _deeper(self.depth, other.depth) if add else self.depth | other.depth
        return Cost(**values)

    def plus(self, **more: Range) -> Cost:
        """With some parts raised."""
        return replace(self, **{name: getattr(self, name) + by for name, by in more.items()})

    def as_dict(self) -> dict[str, dict[str, int | None]]:
        return {one.name: getattr(self, one.name).as_dict() for one in fields(self)}


def _deeper(one: Range, other: Range) -> Range:
    most = None if one.most is None or other.most is None else max(one.most, other.most)
    return Range(max(one.least, other.least), most)


def total(costs: Iterable[Cost]) -> Cost:
    found = Cost()
    for cost in costs:
        found = found + cost
    return found


@dataclass(frozen=True, slots=True)
class Length:
    """How long a context is: text and choices that stand in it, in tokens or characters, and generated tokens."""

    text: Range = NONE
    written: Range = NONE

    def __add__(self, other: Length) -> Length:
        return Length(self.text + other.text, self.written + other.written)

    def __or__(self, other: Length) -> Length:
        return Length(self.text | other.text, self.written | other.written)

    def __mul__(self, times: Range) -> Length:
        return Length(self.text * times, self.written * times)

    def as_dict(self) -> dict[str, dict[str, int | None]]:
        return {"text": self.text.as_dict(), "generated": self.written.as_dict()}


__all__ = ["MAYBE", "NONE", "ONE", "UNKNOWN", "Cost", "Length", "Range", "total"]

"""The bounds of a run: the document's, lowered by the host's. A reached limit ends the run; nothing catches it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.document.model import DEFAULT_BRANCHES, DEFAULT_DEPTH
from sglspec.document.model import Limits as DeclaredLimits


class LimitReached(SpecError):
    """A limit of the run. Never caught by `on_error`."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """tokens: generated in the whole run; branches: started in the whole run; depth: of nested forks;
    iterations: per loop; seconds: wall time of the run."""

    tokens: int = 100_000
    branches: int = DEFAULT_BRANCHES
    depth: int = DEFAULT_DEPTH
    iterations: int = 10_000
    seconds: float = 600.0


MAX_STEPS = 1_000_000
"""Steps that one run takes, those of included and called programs too. Steps that generate nothing cost no tokens, and
nested loops multiply."""
MAX_CHARACTERS = 100_000_000
"""Characters that one run writes into contexts and binds to variables: what it may fill memory with."""

_MANY = 2**62
UNBOUNDED = Bounds(_MANY, _MANY, _MANY, _MANY, math.inf)


def document_bounds(declared: DeclaredLimits | None, host: Bounds | None) -> Bounds:
    """The document's limits (or the language's defaults where it says nothing), lowered by the host's."""
    own = _declared(declared, Bounds())
    if host is None:
        return own
    return Bounds(*(min(getattr(own, f.name), getattr(host, f.name)) for f in fields(own)))


def _declared(declared: DeclaredLimits | None, otherwise: Bounds) -> Bounds:
    if declared is None:
        return otherwise
    given = {f.name: getattr(declared, f.name) for f in fields(otherwise)}
    return replace(otherwise, **{k: p.value for k, p in given.items() if p is not None and p.value is not None})


@dataclass(slots=True, eq=False)
class LimitTracker:
    """Counts what a program uses of its bounds. All branches of a program share one; a program that another one
    includes or calls has its own, and what it uses counts for both. depth: of the line that the program started on."""

    bounds: Bounds
    parent: LimitTracker | None = None
    who: str = "The run"
    depth: int = 0
    tokens: int = 0
    branches: int = 0
    steps: int = 0
    characters: int = 0

    def within(self, declared: DeclaredLimits | None, program: str, depth: int) -> LimitTracker:
        """What a program may use that runs as a part of this one: what is left here, and no more than it declares."""
        return LimitTracker(_declared(declared, UNBOUNDED), self, f"The program `{program}`", depth)

    def _chain(self) -> Iterator[LimitTracker]:
        tracker: LimitTracker | None = self
        while tracker is not None:
            yield tracker
            tracker = tracker.parent

    def add_tokens(self, count: int, at: Diagnostic) -> None:
        for tracker in self._chain():
            tracker.tokens += count
        if any(tracker.tokens > tracker.bounds.tokens for tracker in self._chain()):
            raise self.tokens_used_up(at)

    def tokens_used_up(self, at: Diagnostic) -> LimitReached:
        spent = min(self._chain(), key=lambda tracker: tracker.bounds.tokens - tracker.tokens)
        return _reached(at, f"{spent.who} used up its {spent.bounds.tokens} tokens.", "limits.tokens")

    @property
    def tokens_left(self) -> int:
        return max(min(tracker.bounds.tokens - tracker.tokens for tracker in self._chain()), 0)

    def add_branches(self, count: int, depth: int, at: Diagnostic) -> None:
        """`depth` is counted from the run's main line."""
        for tracker in self._chain():
            tracker.branches += count
        for tracker in self._chain():
            most = tracker.bounds.branches
            if tracker.branches > most:
                raise _reached(at, f"{tracker.who} started more than {most} branches.", "limits.branches")
            if depth - tracker.depth > tracker.bounds.depth:
                raise _reached(at, f"Forks are nested deeper than {tracker.bounds.depth}.", "limits.depth")

    def add_step(self, at: Callable[[], Diagnostic]) -> None:
        """Counted for the whole run only. `at` is asked when the bound is reached: it costs more than a step."""
        *_, whole = self._chain()
        whole.steps += 1
        if whole.steps > MAX_STEPS:
            raise _reached(at(), f"The run took more than {MAX_STEPS:,} steps.")

    def add_characters(self, count: int, at: Callable[[], Diagnostic]) -> None:
        """As `add_step`."""
        *_, whole = self._chain()
        whole.characters += count
        if whole.characters > MAX_CHARACTERS:
            raise _reached(at(), f"The run wrote more than {MAX_CHARACTERS:,} characters.")

    def check_iterations(self, rounds: int, at: Diagnostic) -> None:
        most = min(tracker.bounds.iterations for tracker in self._chain())
        if rounds > most:
            raise _reached(at, f"A loop ran more than {most} rounds.", "limits.iterations")


def _reached(at: Diagnostic, message: str, name: str | None = None) -> LimitReached:
    """`name`: of the limit in the document; None for one that is the same for every run."""
    help = f"The bound is `{name}`." if name else "The bound is the same for every run."
    return LimitReached(replace(at, code="S705", message=message, help=help))

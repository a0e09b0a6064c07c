"""The bounds of a run: the document's, lowered by the host's. A reached limit ends the run; nothing catches it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.document.model import Limits as DeclaredLimits


class LimitReached(SpecError):
    """A limit of the run. Never caught by `on_error`."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """tokens: generated in the whole run; branches: started in the whole run; depth: of nested forks;
    iterations: per loop; seconds: wall time of the run."""

    tokens: int = 100_000
    branches: int = 256
    depth: int = 8
    iterations: int = 10_000
    seconds: float = 600.0


def document_bounds(declared: DeclaredLimits | None, host: Bounds | None) -> Bounds:
    """The document's limits (or the language's defaults where it says nothing), lowered by the host's."""
    own = Bounds()
    if declared is not None:
        given = {f.name: getattr(declared, f.name) for f in fields(own)}
        own = replace(own, **{k: p.value for k, p in given.items() if p is not None and p.value is not None})
    if host is None:
        return own
    return Bounds(*(min(getattr(own, f.name), getattr(host, f.name)) for f in fields(own)))


@dataclass(slots=True)
class LimitTracker:
    """Counts what a run uses. All branches of a run share one."""

    bounds: Bounds
    tokens: int = 0
    branches: int = 0
    where: Diagnostic | None = field(default=None)

    def add_tokens(self, count: int, at: Diagnostic) -> None:
        self.tokens += count
        if self.tokens > self.bounds.tokens:
            raise self.tokens_used_up(at)

    def tokens_used_up(self, at: Diagnostic) -> LimitReached:
        return _reached(at, f"The run used up its {self.bounds.tokens} tokens.", "limits.tokens")

    @property
    def tokens_left(self) -> int:
        return max(self.bounds.tokens - self.tokens, 0)

    def add_branches(self, count: int, depth: int, at: Diagnostic) -> None:
        self.branches += count
        if self.branches > self.bounds.branches:
            raise _reached(at, f"The run started more than {self.bounds.branches} branches.", "limits.branches")
        if depth > self.bounds.depth:
            raise _reached(at, f"Forks are nested deeper than {self.bounds.depth}.", "limits.depth")

    def check_iterations(self, rounds: int, at: Diagnostic) -> None:
        if rounds > self.bounds.iterations:
            raise _reached(at, f"A loop ran more than {self.bounds.iterations} rounds.", "limits.iterations")


def _reached(at: Diagnostic, message: str, name: str) -> LimitReached:
    return LimitReached(replace(at, code="S705", message=message, help=f"The bound is `{name}`."))

"""What a run spends, and where: spans of time with what was computed in them, and what the model was asked."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sglspec.backends.base import Observable, Observed, Session
from sglspec.runtime.optimum import optimal_tokens

Key = tuple[int, ...]
"""A step at one place, as in a plan: the calls and includes that lead to it, then the step itself."""


@dataclass(frozen=True, slots=True)
class Span:
    """kind: `run`, `branch`, `call`, `gen`, `select`, `fork`, `join`, `wait`, `tool` or `compile`. track: the branch
    path; with `~1`, `~2` … for texts that are generated beside the first one of a step. key: of the step, where there
    is one. began, ended: seconds since the run began; one that began before has a negative time. data: tokens by the
    names of `Usage`, and what else there is to say."""

    kind: str
    name: str
    track: str
    key: Key
    began: float
    ended: float
    data: dict[str, Any]


@dataclass(slots=True)
class Recorder:
    """Takes notes of a run. Nothing in the run depends on it."""

    started: float = field(default_factory=time.monotonic)
    spans: list[Span] = field(default_factory=list[Span])
    observed: Observed = field(default_factory=Observed)
    tells: bool = False
    """Whether the backend tells what it does."""

    def observe(self, session: Session) -> None:
        """Have a context and its forks tell what they ask the model."""
        if isinstance(session, Observable):
            self.tells = True
            session.observe(self.observed)

    def now(self) -> float:
        return time.monotonic() - self.started

    @contextmanager
    def span(self, kind: str, name: str, track: str, key: Key) -> Generator[dict[str, Any]]:
        """A span from here to the end of the block; what is put into the mapping is its data."""
        began = self.now()
        data: dict[str, Any] = {}
        try:
            yield data
        finally:
            self.spans.append(Span(kind, name, track, key, began, self.now(), data))

    @property
    def optimum(self) -> int | None:
        """The least tokens that could be computed for what the run has asked; None where the backend does not tell."""
        return optimal_tokens(self.observed.asked) if self.tells else None

    def all(self) -> list[Span]:
        """Every span, by its beginning; of equals the longest first. Compilations have a track of their own each that
        runs beside another one."""
        compiled: list[Span] = []
        free: list[float] = []
        for began, ended in sorted(self.observed.compiled.values()):
            began, ended = began - self.started, ended - self.started
            lane = next((at for at, until in enumerate(free) if until <= began), len(free))
            free[lane : lane + 1] = [ended]
            compiled.append(Span("compile", "constraint", f"compile.{lane + 1}", (), began, ended, {}))
        return sorted([*self.spans, *compiled], key=lambda span: (span.began, -span.ended))


__all__ = ["Key", "Recorder", "Span"]

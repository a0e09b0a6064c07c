"""What a recorder's notes come to: by step, by branch, and altogether."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sglspec.backends.base import Usage
from sglspec.runtime.profile import Key, Recorder, Span

REQUESTS = ("gen", "select", "fork", "join")
"""Kinds of spans in which the model works."""
COUNTED = tuple(one.name for one in fields(Usage))


@dataclass(slots=True)
class Spent:
    """times: how often; seconds: at work; waited: seconds for others; tokens: by the names of `Usage`."""

    times: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))

    def add(self, span: Span) -> None:
        took = span.ended - span.began
        if span.kind == "wait":
            self.waited += took
            return
        self.times += 1
        self.seconds += took
        for name in COUNTED:
            self.tokens[name] += span.data.get(name, 0)

    def as_dict(self) -> dict[str, Any]:
        face = {"times": self.times, "seconds": round(self.seconds, 4), "waited": round(self.waited, 4)}
        return face | (self.tokens if any(self.tokens.values()) else {})


@dataclass(frozen=True, slots=True)
class Line:
    """A branch or a called program: its path, what it was for, when it ran, and what it spent."""

    branch: str
    name: str
    kind: str
    key: Key
    began: float
    ended: float
    spent: Spent

    def as_dict(self) -> dict[str, Any]:
        times = {"began": round(self.began, 4), "ended": round(self.ended, 4)}
        return {"branch": self.branch, "name": self.name, "kind": self.kind, **times, **self.spent.as_dict()}


@dataclass(frozen=True, slots=True)
class Measured:
    """seconds: of the run; compiled: constraints, and the seconds that took beside the run; steps: by their place;
    lines: the main one, branches and called programs, by their beginning; computed, optimum: tokens that the model
    computed, and the least it could, None where the backend does not tell."""

    seconds: float
    compiled: tuple[int, float]
    steps: Mapping[Key, Spent]
    lines: tuple[Line, ...]
    computed: int
    optimum: int | None


def measured(recorder: Recorder, usage: Usage) -> Measured:
    """The sums. usage: of the whole run."""
    spans = recorder.all()
    steps: dict[Key, Spent] = {}
    for span in spans:
        if span.kind in (*REQUESTS, "tool", "wait"):
            steps.setdefault(span.key, Spent()).add(span)
    compiled = [span.ended - span.began for span in spans if span.kind == "compile"]
    lines = tuple(_line(span, spans) for span in spans if span.kind in ("run", "branch", "call"))
    seconds = next((span.ended - span.began for span in spans if span.kind == "run"), 0.0)
    return Measured(seconds, (len(compiled), sum(compiled)), steps, lines, usage.computed_tokens, recorder.optimum)


def _line(line: Span, spans: list[Span]) -> Line:
    spent = Spent()
    for span in spans:
        if span.track.partition("~")[0] == line.track and span.kind in (*REQUESTS, "tool", "wait"):
            spent.add(span)
    return Line(line.track, line.name, line.kind, line.key, line.began, line.ended, spent)


__all__ = ["Line", "Measured", "Spent", "measured"]

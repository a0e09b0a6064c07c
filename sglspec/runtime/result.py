"""What a run gives back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sglspec.backends.base import TraceToken, Usage
from sglspec.diagnostics import Diagnostic

Status = Literal["succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Result:
    """outputs: name → value. variables: every bound name that is no input. text: the main context as text with the
    model's markup. messages: [{role, content}]. meta: variable → how it was made. usage: counted where the model runs.
    seed: the run's seed. error: what ended a run that did not succeed (outputs are then what was there). trace,
    branch_traces: the tokens of the main context, and of each branch by its path, when the run was asked to keep them.
    """

    status: Status
    outputs: dict[str, Any] = field(default_factory=dict[str, Any])
    variables: dict[str, Any] = field(default_factory=dict[str, Any])
    text: str = ""
    messages: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    usage: Usage = field(default_factory=Usage)
    seed: int = 0
    error: Diagnostic | None = None
    trace: tuple[TraceToken, ...] = ()
    branch_traces: dict[str, tuple[TraceToken, ...]] = field(default_factory=dict[str, tuple[TraceToken, ...]])

    def as_dict(self) -> dict[str, Any]:
        """The JSON face (the trace has its own file)."""
        return {
            "status": self.status,
            "outputs": self.outputs,
            "variables": self.variables,
            "text": self.text,
            "messages": self.messages,
            "meta": self.meta,
            "usage": asdict(self.usage),
            "seed": self.seed,
            "error": None if self.error is None else self.error.as_dict(),
        }

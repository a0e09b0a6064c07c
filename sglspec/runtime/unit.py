"""A program at work in a run: the one that was started, and every other one that it includes or calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglspec.analysis.constraints import Constraint
from sglspec.analysis.program import Program
from sglspec.document.model import Gen
from sglspec.runtime.limits import LimitTracker


@dataclass(slots=True, eq=False)
class Unit:
    """limits: its own view of what the run may use; chat: whether the context that it writes to is a chat; label: the
    aliases by which it was called, joined with dots, "" for what runs in the main context; constraints: those that
    depend on inputs alone."""

    program: Program
    limits: LimitTracker
    chat: bool
    label: str = ""
    constraints: dict[Gen, Constraint] = field(default_factory=dict[Gen, Constraint])


__all__ = ["Unit"]

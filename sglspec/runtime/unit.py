"""A program at work in a run: the one that was started, and every other one that it includes or calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglspec.analysis.constraints import Constraint
from sglspec.analysis.program import Program
from sglspec.document.model import Gen
from sglspec.runtime.limits import LimitTracker


@dataclass(slots=True, eq=False)
class Unit:
    """limits: its own view of what the run may use; chat: whether the context that it writes to is a chat; file: the
    name of its document, "" for that of the run; label: the aliases by which it was called, joined with dots, "" for
    what runs in the main context; constraints: those that depend on inputs alone."""

    program: Program
    limits: LimitTracker
    chat: bool
    file: str = ""
    label: str = ""
    constraints: dict[Gen, Constraint] = field(default_factory=dict[Gen, Constraint])

    def included(self, program: Program, depth: int) -> Unit:
        """The unit of a program whose steps run in this one's context."""
        limits = self.limits.within(program.spec.limits, program.name, depth)
        return Unit(program, limits, self.chat, program.document.source.name, self.label)

    def called(self, program: Program, alias: str, depth: int) -> Unit:
        """The unit of a program that runs in a context of its own."""
        limits = self.limits.within(program.spec.limits, program.name, depth)
        label = f"{self.label}.{alias}" if self.label else alias
        return Unit(program, limits, program.chat, program.document.source.name, label)


__all__ = ["Unit"]

"""What every system that takes part can do."""

from __future__ import annotations

from abc import ABC, abstractmethod

from benchmarks.workloads.base import Answer, Case


class System(ABC):
    """name: how it is shown. exact: whether it computes in float32, so that its greedy tokens must equal others'."""

    name: str
    exact: bool = False

    def prepare(self, case: Case) -> None:
        """What is done for a case before the clock starts."""
        return

    @abstractmethod
    def run(self, case: Case) -> Answer | None:
        """Answer a case with nothing cached from before; None if it cannot."""

    def close(self) -> None:
        """Let go of the model."""
        return

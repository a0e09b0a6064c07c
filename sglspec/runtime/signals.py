"""How steps leave a list of steps early. Not errors: the interpreter catches each one where it belongs."""

from __future__ import annotations

from sglspec.runtime.scope import Bound


class Signal(Exception):
    """Base of the control-flow signals."""


class BreakLoop(Signal):
    """`break`."""


class NextRound(Signal):
    """`continue`: the loop's next round, or the end of a branch."""


class ReturnProgram(Signal):
    """`return`; `values` holds the named outputs of `return: {…}`, None for a bare one."""

    def __init__(self, values: dict[str, Bound] | None) -> None:
        super().__init__()
        self.values = values

"""What all runs of a program have in common, done ahead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglspec.analysis.inputs import fill
from sglspec.analysis.plan.beginning import Beginning
from sglspec.analysis.program import Program
from sglspec.backends.base import Backend
from sglspec.runtime.events import EventLog
from sglspec.runtime.frame import Shared
from sglspec.runtime.limits import LimitTracker, document_bounds
from sglspec.runtime.programs import main_line
from sglspec.runtime.requests import prepare_constraints
from sglspec.runtime.scope import Bound
from sglspec.runtime.unit import Unit


async def warm(program: Program, bound: Mapping[str, Any], backend: Backend) -> int:
    """Have the backend compile the constraints that are known, and compute the text before the first input that is not
    bound, and before the first step that is no text. Gives the number of tokens that were computed."""
    session = await backend.open(program.name)
    try:
        names = {name: Bound(fill(program.inputs[name], value), "input") for name, value in bound.items()}
        unit = Unit(program, LimitTracker(document_bounds(program.spec.limits, None)), program.chat)
        await prepare_constraints(main_line(Shared(backend, EventLog(), 0), unit, session, names))
        segments = list(Beginning(program, bound).of(program.spec.steps))
        if not segments:
            return 0
        await session.extend(segments)
        # A fork computes what it shares.
        for child in await session.fork(1):
            await child.close()
        return session.usage.computed_tokens
    finally:
        await session.close()

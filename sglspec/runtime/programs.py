"""One program from its first step to its outputs, in a context of its own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast

from sglspec.backends.base import Session
from sglspec.diagnostics import SpecError
from sglspec.runtime.context import Transcript
from sglspec.runtime.fork import RunSteps, first_error
from sglspec.runtime.frame import Frame, Shared
from sglspec.runtime.limits import LimitReached
from sglspec.runtime.scope import Bound, Scope
from sglspec.runtime.signals import ReturnProgram
from sglspec.runtime.unit import Unit


def main_line(
    shared: Shared, unit: Unit, session: Session, inputs: Mapping[str, Bound], *, path: str = "", depth: int = 0
) -> Frame:
    """Where a program begins."""
    if shared.recorder is not None:
        shared.recorder.observe(session)
    names = {**inputs, **{name: Bound([]) for name in unit.program.appending}}
    return Frame(shared, unit, session, Scope(names), Transcript(), asyncio.TaskGroup(), path=path, depth=depth)


async def run_program(frame: Frame, run_steps: RunSteps) -> dict[str, Bound]:
    """Run the steps and await every branch, read or not. Returns the outputs."""
    returned: ReturnProgram | None = None
    try:
        async with asyncio.TaskGroup() as group:
            frame.tasks = group
            try:
                await run_steps(frame, frame.program.spec.steps)
            except ReturnProgram as signal:
                returned = signal
            # Branches that still run hold what they share with it.
            await frame.session.close()
        await frame.scope.all_ready()
    except BaseExceptionGroup as problems:
        specific, rest = problems.split(SpecError)
        if specific is not None:
            raise first_error(specific) from None
        raise _innermost(rest or problems) from None
    return await _outputs(frame, returned)


async def _outputs(frame: Frame, returned: ReturnProgram | None) -> dict[str, Bound]:
    declared = frame.program.spec.outputs
    bindable = frame.program.bindable
    if returned is not None and returned.values is not None:
        names = [*bindable, *returned.values]
        if declared is not None:
            names = [target.name for target in declared.names]
        return {name: returned.values.get(name, Bound(None)) for name in names}
    if declared is None:
        return {name: frame.scope.get(name) or Bound(None) for name in bindable}
    if declared.values is None:
        return {target.name: frame.scope.get(target.name) or Bound(None) for target in declared.names}
    return {target.name: Bound(*await frame.lenient_value(value.node)) for target, value in declared.values}


@asynccontextmanager
async def in_time(unit: Unit) -> AsyncGenerator[None]:
    """The seconds that a program allows itself, as a part of a run. Raises LimitReached (S706)."""
    seconds, declared = unit.limits.bounds.seconds, unit.program.spec.limits
    limit = asyncio.timeout(None if math.isinf(seconds) else seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        document, node = unit.program.document, declared.at("seconds") if declared is not None else None
        message = f"The program `{unit.program.name}` took longer than {seconds:g} seconds."
        raise LimitReached(document.diagnostic("S706", message, node or document.root)) from None


def _innermost(problem: BaseException) -> BaseException:
    """The first exception inside nested groups: what really happened."""
    while isinstance(problem, BaseExceptionGroup):
        problem = cast("BaseExceptionGroup[BaseException]", problem).exceptions[0]
    return problem


__all__ = ["in_time", "main_line", "run_program"]

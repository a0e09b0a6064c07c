"""`include`: steps from elsewhere in this context, with names of their own."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

from sglspec.diagnostics import SpecError
from sglspec.document.model import Include
from sglspec.runtime.arguments import arguments
from sglspec.runtime.fork import RunSteps
from sglspec.runtime.frame import Frame
from sglspec.runtime.programs import in_time
from sglspec.runtime.requests import prepare_constraints
from sglspec.runtime.scope import Bound, Scope, record_of
from sglspec.runtime.signals import ReturnProgram


async def run_include(frame: Frame, step: Include, run_steps: RunSteps) -> None:
    target = frame.program.target(step.include)
    assert target is not None and target.program is not None, "the program was checked"
    own = target.program is frame.program
    declared = target.routine.params if own else target.program.inputs
    names = await arguments(frame, step, declared, target.bound)
    if own:
        seen = {name: frame.scope.get(name) for name in frame.program.inputs}
        names |= {name: bound for name, bound in seen.items() if bound is not None}
    names |= {name: Bound([]) for name in target.routine.appending}
    unit = frame.unit if own else frame.unit.included(target.program, frame.depth)
    child = Frame(
        frame.shared, unit, frame.session, Scope(names), frame.transcript, frame.tasks, path=frame.path,
        depth=frame.depth, rounds=frame.rounds, forks=frame.forks, joins=frame.joins, site=(*frame.site, id(step)),
    )  # fmt: skip
    # Lists that only include others must still let cancellation and the time limit in.
    await asyncio.sleep(0)
    try:
        async with nullcontext() if own else in_time(unit):
            try:
                if not own:
                    await prepare_constraints(child)
                await run_steps(child, target.routine.steps)
            except ReturnProgram as signal:
                for name, bound in (signal.values or {}).items():
                    child.scope.bind(name, bound)
            finally:
                frame.forks = child.forks
            await child.scope.all_ready()
    except SpecError as problem:
        raise frame.within(problem, step.verb_node, "included here") from None
    if step.into is not None:
        gives = {name: child.scope.get(name) or Bound(None) for name in target.routine.gives}
        await bring_back(frame, step, gives)


async def bring_back(frame: Frame, step: Include, gives: dict[str, Bound]) -> None:
    """Bind what `into` asks for."""
    assert step.into is not None
    if step.into.target is not None:
        await frame.bind(step.into.target.name, step.into.target.append, record_of(gives), step.verb_node)
    for target, theirs in step.into.picks:
        await frame.bind(target.name, target.append, gives[theirs], step.verb_node)


__all__ = ["run_include"]

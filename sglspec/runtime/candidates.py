"""Several texts for one `gen`: `n` candidates, and attempts until one is good.

Each text is generated on a fork of the context as it was before the step, and the context goes on with one of them.
Nothing is shown before that is decided.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from sglspec.backends.base import Delta, EngineError, Session
from sglspec.diagnostics import SpecError
from sglspec.document.model import Gen
from sglspec.runtime.fork import first_error
from sglspec.runtime.frame import Frame
from sglspec.runtime.requests import Generated, GenPlan, Showing, generate, value_of
from sglspec.runtime.scope import Bound


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text, the context that holds it, and its value, or why it has none."""

    session: Session
    generated: Generated
    value: Any = None
    broken: SpecError | None = None

    @property
    def likelihood(self) -> float:
        """The mean log-probability of its tokens; minus infinity where there is no text, or the backend reports none:
        that nothing at all is likely makes it no answer."""
        tokens = self.generated.answer if self.generated.finish.text else ()
        return math.fsum(token.logprob for token in tokens) / len(tokens) if tokens else -math.inf


async def run_candidates(frame: Frame, step: Gen, plan: GenPlan) -> Bound:
    """The value of a `gen` with `n` or `retry`. SpecError when no attempt gave a good one."""
    for attempt in range(plan.attempts):
        last = attempt == plan.attempts - 1
        async with _contexts(frame, step, plan.count or 1) as sessions:
            candidates = await _generate(frame, step, plan, sessions, attempt)
            kept = _kept(candidates, plan.best)
            if kept is None:
                if last:
                    raise candidates[0].broken or AssertionError("a candidate without a value says why")
                continue
            bound = _bound(candidates, kept, plan)
            if not await _good(frame, step, bound):
                continue
            await _go_on(frame, step, kept)
            return bound
    assert step.retry is not None and step.retry.until is not None
    message = f"after {plan.attempts} attempts `{step.retry.until.source}` is still false"
    help = "Raise `max`, or ask for something that the model can give."
    raise frame.error("S715", message, step.retry.at("until"), help=help)


def _kept(candidates: list[Candidate], best: bool) -> Candidate | None:
    """The candidate that the context goes on with, of those that keep to their constraint."""
    good = [one for one in candidates if one.broken is None]
    # Of equals the first, as `max` gives it.
    return max(good, key=lambda one: one.likelihood if best else 0, default=None)


def _bound(candidates: list[Candidate], kept: Candidate, plan: GenPlan) -> Bound:
    if plan.count is None:
        return Bound(kept.value, "generated", kept.generated.meta())
    return Bound([one.value for one in candidates], "generated", [one.generated.meta() for one in candidates])


async def _good(frame: Frame, step: Gen, bound: Bound) -> bool:
    """Whether `until` holds with the new value. The variable is as before afterwards."""
    if step.retry is None or step.retry.until is None:
        return True
    if step.gen is None:
        return await frame.condition(step.retry.until)
    name = step.gen.name
    new = await frame.appended(name, bound) if step.gen.append else bound
    before = frame.scope
    frame.scope = before.snapshot()
    frame.scope.bind(name, new)
    try:
        return await frame.condition(step.retry.until)
    finally:
        frame.scope = before


async def _go_on(frame: Frame, step: Gen, kept: Candidate) -> None:
    """The context goes on with a candidate."""
    try:
        await frame.session.concat([kept.session], "concat")
    except EngineError as problem:
        raise frame.engine_error(problem, step.verb_node) from None
    finish = kept.generated.finish
    shown = Delta(finish.text, kept.generated.tokens, thinking=finish.reasoning or "")
    Showing(frame, step).show(shown)


@asynccontextmanager
async def _contexts(frame: Frame, step: Gen, count: int) -> AsyncGenerator[list[Session]]:
    """`count` forks of the context, closed afterwards whatever happens."""
    try:
        sessions = await frame.session.fork(count)
    except EngineError as problem:
        raise frame.engine_error(problem, step.verb_node) from None
    try:
        yield sessions
    finally:
        await asyncio.shield(_close(frame, sessions))


async def _close(frame: Frame, sessions: list[Session]) -> None:
    for session in sessions:
        await session.close()
        frame.shared.add_usage(session.usage)


async def _generate(frame: Frame, step: Gen, plan: GenPlan, sessions: list[Session], attempt: int) -> list[Candidate]:
    async def one(index: int, session: Session) -> Candidate:
        # The first candidate of the first attempt is what a `gen` without `n` and `retry` gives.
        key = frame.noise_key(plan.seed, (attempt, index) if attempt or index else 0)
        of = (index, len(sessions)) if plan.count is not None else None
        request = replace(plan.request, noise_key=key, candidate=of, over_fork=True)
        generated = await generate(frame, session, step, request, lambda delta: None)
        try:
            return Candidate(session, generated, value_of(frame, step, generated.finish, plan.constraint))
        except SpecError as problem:
            return Candidate(session, generated, broken=problem)

    if not frame.shared.backend.capabilities.concurrent:
        return [await one(index, session) for index, session in enumerate(sessions)]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(index, session)) for index, session in enumerate(sessions)]
    except* SpecError as problems:
        raise first_error(problems) from None
    return [task.result() for task in tasks]

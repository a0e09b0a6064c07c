"""`call`: another program in a context of its own, beside the steps that go on here until its outputs are read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import sglspec.expressions as ev
from sglspec.analysis.inputs import secret_texts
from sglspec.analysis.program import Used, reply_keys
from sglspec.backends.base import EngineError, ToolReplies
from sglspec.diagnostics import SpecError
from sglspec.document.model import Call
from sglspec.runtime.arguments import arguments
from sglspec.runtime.fork import RunSteps, error_value
from sglspec.runtime.frame import Frame
from sglspec.runtime.limits import LimitReached
from sglspec.runtime.programs import in_time, main_line, run_program
from sglspec.runtime.requests import prepare_constraints
from sglspec.runtime.scope import Bound, Gathered, Pending, list_of, record_of
from sglspec.runtime.tool import NOT_CAUGHT


async def run_call(frame: Frame, step: Call, run_steps: RunSteps) -> None:
    used = frame.program.used[step.call]
    inputs = await arguments(frame, step, used.program.inputs, used.bound)
    frame.limits.add_branches(1, frame.depth + 1, frame.at(step.verb_node))
    frame.forks += 1
    path = f"{frame.path}/call.{frame.forks}" if frame.path else f"call.{frame.forks}"
    job = Calling(frame, step, used, inputs, path, run_steps)
    frame.joins.append(job)
    frame.emit("call.started", step.verb_node, program=step.call, name=reply_keys(step)[0], path=path)
    if frame.shared.backend.capabilities.concurrent:
        frame.tasks.create_task(job.run())
    else:
        await job.run()


@dataclass(slots=True, eq=False)
class Calling:
    """A call that was started. `close` is called when it is done, and again by whoever ends the caller's line: a task
    that is cancelled before its first step never gets to close anything."""

    frame: Frame
    step: Call
    used: Used
    inputs: dict[str, Bound]
    path: str
    run_steps: RunSteps
    gathered: Gathered = field(default_factory=Gathered)
    earlier: dict[str, Bound | Pending | None] = field(default_factory=dict[str, "Bound | Pending | None"])
    """What `into: name[]` is appended to: calls of a loop add in their order, whichever ends first."""
    line: Frame | None = None
    closing: asyncio.Future[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        into = self.step.into
        targets = [*([into.target] if into and into.target else []), *(t for t, _ in (into.picks if into else ()))]
        scope = self.frame.scope
        self.earlier = {target.name: scope.held(target.name) for target in targets if target.append}
        scope.expect([target.name for target in targets], self.gathered)

    async def run(self) -> None:
        """Run the program to its end and settle the names."""
        error: SpecError | None = None
        try:
            try:
                values = self._values(await self._outputs())
            except SpecError as problem:
                error = self.frame.within(problem, self.step.verb_node, "called here")
                caught = self.step.on_error in ("skip", "keep") and error.diagnostics[0].code not in NOT_CAUGHT
                if isinstance(error, LimitReached) or not caught:
                    raise error from None
                values = self._failed(Bound(error_value(error) if self.step.on_error == "keep" else None))
            self.gathered.settle(await self._appended(values))
        except BaseException:
            self.gathered.settle({name: held for name, held in self.earlier.items() if isinstance(held, Bound)})
            raise
        finally:
            await self.close()
        face = error.diagnostics[0].as_dict() if error is not None else None
        name = reply_keys(self.step)[0]
        about: dict[str, Any] = {"program": self.step.call, "name": name, "path": self.path}
        self.frame.emit("call.finished", self.step.verb_node, **about, error=face)
        for name in values:
            held = self.frame.scope.held(name)
            bound = held.value if isinstance(held, Bound) else values[name].value
            self.frame.emit("bound", self.step.verb_node, name=name, value=bound)

    async def _outputs(self) -> dict[str, Bound]:
        session = self.frame.session
        labels = reply_keys(self.step)
        if isinstance(session, ToolReplies) and session.has_reply(labels):
            return self._reply(session, labels)
        return await self._run()

    def _reply(self, session: ToolReplies, labels: list[str]) -> dict[str, Bound]:
        """A script answers for the program: with an object of its outputs."""
        try:
            value: Any = self.frame.shared.masked(session.tool_reply(labels))
        except EngineError as problem:
            raise self.frame.engine_error(problem, self.step.verb_node) from None
        known = self.used.program.outputs
        if not isinstance(value, dict):
            message = f"the reply for the call `{self.step.call}` is {ev.describe(value)}, and outputs are an object"
            raise self.frame.error("S711", message, self.step.verb_node, help=_shape(list(known)))
        reply = cast("dict[str, Any]", value)
        for name in reply:
            if name not in known:
                message = f"the reply for the call `{self.step.call}` has `{name}`, which is no output"
                raise self.frame.error("S711", message, self.step.verb_node, help=_shape(list(known)))
        return {name: Bound(reply.get(name), "generated") for name in known}

    async def _run(self) -> dict[str, Bound]:
        frame, shared, program = self.frame, self.frame.shared, self.used.program
        secrets = secret_texts(program.spec, {name: bound.value for name, bound in self.inputs.items()})
        shared.secrets = tuple(sorted({*shared.secrets, *secrets}, key=len, reverse=True))
        unit = frame.unit.called(program, self.step.call, frame.depth + 1)
        try:
            session = await shared.backend.open(self.step.call, frame.session)
            line = main_line(shared, unit, session, self.inputs, path=self.path, depth=frame.depth + 1)
            line.site = (*frame.site, id(self.step))
            self.line = line
            await prepare_constraints(line)
            with line.span("call", self.step.call):
                async with in_time(unit):
                    return await run_program(line, self.run_steps)
        except EngineError as problem:
            raise frame.engine_error(problem, self.step.verb_node) from None

    def _values(self, outputs: dict[str, Bound]) -> dict[str, Bound]:
        """What the caller gets, by name."""
        into = self.step.into
        if into is None:
            return {}
        if into.target is not None:
            return {into.target.name: record_of(outputs)}
        return {target.name: outputs[theirs] for target, theirs in into.picks}

    def _failed(self, instead: Bound) -> dict[str, Bound]:
        into = self.step.into
        targets = [*([into.target] if into and into.target else []), *(t for t, _ in (into.picks if into else ()))]
        return {target.name: instead for target in targets}

    async def _appended(self, values: dict[str, Bound]) -> dict[str, Bound]:
        """The values, those for `name[]` behind what the list held when the call began."""
        out = dict(values)
        for name, held in self.earlier.items():
            if isinstance(held, Pending):
                held = (await held.gathered.values()).get(name)
            out[name] = list_of([values[name]], held)
        return out

    async def close(self) -> None:
        """Take the program's usage and let go of what it holds, once. A cancelled caller does not stop it."""
        if self.closing is None:
            self.closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self.closing)

    async def _close(self) -> None:
        line, shared = self.line, self.frame.shared
        if line is not None:
            await line.close_joins()
            if shared.trace:
                shared.branch_traces[line.path] = tuple(line.session.trace())
            await line.session.close()
            # Only now is a cancelled request's usage known.
            shared.add_usage(line.session.usage)
        if self in self.frame.joins:
            self.frame.joins.remove(self)


def _shape(outputs: list[str]) -> str:
    return f"The outputs are: {', '.join(outputs)}." if outputs else "The program has no outputs."


__all__ = ["run_call"]

"""The interpreter: one small function per verb."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import sglspec.expressions as ev
from sglspec.analysis.declarations import check_messages
from sglspec.document.model import (
    AnyStep,
    Assistant,
    Break,
    Call,
    Capture,
    Check,
    Continue,
    Fail,
    For,
    Fork,
    Gen,
    If,
    Include,
    Match,
    Messages,
    Raw,
    Return,
    Role,
    Scratch,
    Select,
    Set,
    System,
    TextStep,
    Tool,
    User,
    While,
)
from sglspec.runtime.call import run_call
from sglspec.runtime.fork import loop_record, run_fork
from sglspec.runtime.frame import Frame
from sglspec.runtime.generate import close_role, open_role, run_gen, run_select
from sglspec.runtime.include import run_include
from sglspec.runtime.scope import Bound
from sglspec.runtime.scratch import run_scratch
from sglspec.runtime.signals import BreakLoop, NextRound, ReturnProgram, Signal
from sglspec.runtime.tool import run_tool


async def run_steps(frame: Frame, steps: list[AnyStep]) -> None:
    """Run steps in order. Leaves by a Signal, by SpecError, or at the end."""
    around = frame.step
    try:
        for step in steps:
            frame.step = step
            frame.limits.add_step(lambda step=step: frame.at(step.node))
            handler = HANDLERS.get(type(step))
            if handler is None:
                raise frame.error("S220", "this step is not yet in this build", step.node)
            await handler(frame, step)
    finally:
        frame.step = around


async def _text(frame: Frame, step: TextStep) -> None:
    await frame.append(await frame.template(step.text), step.node)


async def _raw(frame: Frame, step: Raw) -> None:
    await frame.append([ev.Segment(step.raw.source, "author")], step.verb_node)


async def _role(frame: Frame, step: Role) -> None:
    await open_role(frame, step.VERB, step.verb_node)
    try:
        await run_steps(frame, step.steps)
    except Signal:
        # `break`, `continue` and `return` leave the message, and it ends where they do.
        await close_role(frame, step.verb_node)
        raise
    await close_role(frame, step.verb_node)


async def _messages(frame: Frame, step: Messages) -> None:
    history, origin = await frame.expression(step.messages)
    if problem := check_messages(history):
        raise frame.data_error("S408", f"`messages`: {problem}", step.at("messages"))
    for message in cast("list[dict[str, str]]", history):
        await open_role(frame, message["role"], step.verb_node)
        await frame.append([ev.Segment(message["content"], origin)], step.verb_node)
        await close_role(frame, step.verb_node)


async def _set(frame: Frame, step: Set) -> None:
    for key, value in step.set.items():
        bound = Bound(*await frame.value_at(value.node))
        await frame.bind(key.removesuffix("[]"), key.endswith("[]"), bound, step.verb_node)


async def _capture(frame: Frame, step: Capture) -> None:
    mark = frame.transcript.mark()
    await run_steps(frame, step.do)
    bound = Bound(frame.transcript.since(mark), "generated")
    await frame.bind(step.capture.name, step.capture.append, bound, step.verb_node)


async def _if(frame: Frame, step: If) -> None:
    if await frame.condition(step.condition):
        await run_steps(frame, step.then)
    elif step.orelse is not None:
        await run_steps(frame, step.orelse)


async def _match(frame: Frame, step: Match) -> None:
    value, _ = await frame.expression(step.subject)
    text = ev.value_to_text(value)
    chosen = step.cases.get(text, step.orelse)
    if chosen is None:
        message = f"no case matches {text!r}" if len(text) <= 60 else "no case matches the value"
        raise frame.error("S703", message, step.at("match"), help="Add the case, or an `else`.")
    await run_steps(frame, chosen)


async def _for(frame: Frame, step: For) -> None:
    value, origin = await frame.items(step.items)
    if not isinstance(value, list):
        raise frame.data_error("S408", f"`in` must be a list, found {ev.describe(value)}", step.at("in"))
    items = cast("list[Any]", value)
    outer = frame.scope.get("loop")
    for index, item in enumerate(items):
        frame.limits.check_iterations(index + 1, frame.at(step.verb_node))
        frame.scope.bind(step.var.name, Bound(item, origin))
        if not await _round(frame, step.do, index, len(items)):
            break
    frame.scope.unbind(step.var.name)
    _restore_loop(frame, outer)


async def _while(frame: Frame, step: While) -> None:
    most = int(await frame.option(step.max, "max") or 1)
    outer = frame.scope.get("loop")
    index = 0
    while True:
        # The condition sees the loop it belongs to: in the first check, round 1 is about to run.
        frame.scope.bind("loop", Bound(loop_record(index, None)))
        if not await frame.condition(step.condition):
            break
        if index >= most:
            if step.on_max == "stop":
                break
            message = f"the condition is still true after {most} rounds"
            raise frame.error("S704", message, step.verb_node, help="`on_max: stop` leaves the loop instead.")
        frame.limits.check_iterations(index + 1, frame.at(step.verb_node))
        if not await _round(frame, step.do, index, None):
            break
        index += 1
    _restore_loop(frame, outer)


async def _round(frame: Frame, steps: list[AnyStep], index: int, length: int | None) -> bool:
    """One round of a loop; False when it was left by `break`."""
    frame.scope.bind("loop", Bound(loop_record(index, length)))
    rounds = frame.rounds
    frame.rounds = (*rounds, index)
    # A loop that never waits for the model must still let cancellation and the time limit in.
    await asyncio.sleep(0)
    try:
        await run_steps(frame, steps)
    except NextRound:
        pass
    except BreakLoop:
        return False
    finally:
        frame.rounds = rounds
    return True


def _restore_loop(frame: Frame, outer: Bound | None) -> None:
    if outer is None:
        frame.scope.unbind("loop")
    else:
        frame.scope.bind("loop", outer)


async def _break(frame: Frame, step: Break) -> None:
    raise BreakLoop


async def _continue(frame: Frame, step: Continue) -> None:
    raise NextRound


async def _fork(frame: Frame, step: Fork) -> None:
    await run_fork(frame, step, run_steps)


async def _scratch(frame: Frame, step: Scratch) -> None:
    await run_scratch(frame, step, run_steps)


async def _include(frame: Frame, step: Include) -> None:
    await run_include(frame, step, run_steps)


async def _call(frame: Frame, step: Call) -> None:
    await run_call(frame, step, run_steps)


async def _return(frame: Frame, step: Return) -> None:
    if step.values is None:
        raise ReturnProgram(None)
    values = {name: Bound(*await frame.value_at(value.node)) for name, value in step.values.items()}
    raise ReturnProgram(values)


async def _fail(frame: Frame, step: Fail) -> None:
    raise frame.authored("S701", await frame.plain(step.fail), step.verb_node)


async def _check(frame: Frame, step: Check) -> None:
    if not await frame.condition(step.check):
        if step.message is not None:
            raise frame.authored("S702", await frame.plain(step.message), step.at("check"))
        raise frame.error("S702", f"the check `{step.check.source}` does not hold", step.at("check"))


HANDLERS: dict[type[Any], Callable[[Frame, Any], Awaitable[None]]] = {
    TextStep: _text,
    Raw: _raw,
    System: _role,
    User: _role,
    Assistant: _role,
    Gen: run_gen,
    Select: run_select,
    Messages: _messages,
    Set: _set,
    Capture: _capture,
    If: _if,
    Match: _match,
    For: _for,
    While: _while,
    Break: _break,
    Continue: _continue,
    Fork: _fork,
    Scratch: _scratch,
    Include: _include,
    Call: _call,
    Tool: run_tool,
    Return: _return,
    Fail: _fail,
    Check: _check,
}
"""Verb model → its function. Verbs that are not here are refused by `check` (S220)."""

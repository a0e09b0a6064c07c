"""`tool`: a function of the host, awaited where it stands; what it returns is data."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast

import sglspec.expressions as ev
from sglspec.analysis.program import reply_keys
from sglspec.backends.base import EngineError, ToolReplies
from sglspec.diagnostics import SpecError
from sglspec.diagnostics.suggest import nearest
from sglspec.document.model import Tool as ToolStep
from sglspec.document.nodes import Mapping as MappingNode
from sglspec.document.nodes import Node
from sglspec.runtime.fork import error_value
from sglspec.runtime.frame import Frame
from sglspec.runtime.limits import LimitReached
from sglspec.runtime.scope import Bound, Value
from sglspec.runtime.threads import TookTooLong
from sglspec.tools import Tool, error_text

NOT_CAUGHT = ("S710", "S711")
"""Errors of the script, not of the tool or program: `on_error` does not hide them."""
LONGEST = 2_000
"""Characters of a tool's message that are shown."""


async def run_tool(frame: Frame, step: ToolStep) -> None:
    tool = frame.shared.tools.find(step.tool)
    name = reply_keys(step)[0]
    frame.emit("tool.started", step.verb_node, tool=step.tool, name=name)
    error: SpecError | None = None
    value: Value = None
    try:
        given = await _arguments(frame, step, tool)
        with frame.span("tool", step.tool):
            value = await _answer(frame, step, tool, given)
        _check_picks(frame, step, value)
    except SpecError as problem:
        caught = step.on_error in ("skip", "keep") and problem.diagnostics[0].code not in NOT_CAUGHT
        if isinstance(problem, LimitReached) or not caught:
            raise
        error = problem
        value = error_value(problem) if step.on_error == "keep" else None
    face = error.diagnostics[0].as_dict() if error is not None else None
    frame.emit("tool.finished", step.verb_node, tool=step.tool, name=name, error=face)
    await _bind(frame, step, value)


async def _arguments(frame: Frame, step: ToolStep, tool: Tool | None) -> dict[str, Any]:
    """The values of `with`, converted as the tool's annotations say. Raises S707."""
    given: dict[str, Any] = {}
    for name, value in (step.args or {}).items():
        given[name], _ = await frame.value_at(value.node)
    if tool is None:
        return given  # a script answers, and knows nothing of arguments
    for name in tool.unknown(given):
        help = _did_you_mean(name, tool.parameters)
        raise frame.data_error("S406", f"the tool `{tool.name}` has no argument `{name}`", _key(step, name), help)
    if missing := tool.missing(given):
        names = ", ".join(f"`{name}`" for name in missing)
        raise frame.data_error("S406", f"the tool `{tool.name}` needs {names}", step.verb_node)
    for name, value in given.items():
        if name not in tool.parameters:
            continue
        try:
            given[name] = tool.parameters[name].convert(value)
        except ValueError as problem:
            message = f"the argument `{name}` of the tool `{tool.name}`: {frame.shared.masked(str(problem))}"
            raise frame.data_error("S408", message, _key(step, name)) from None
    return given


def _key(step: ToolStep, name: str) -> Node:
    given = step.at("with")
    return (given.get(name) if isinstance(given, MappingNode) else None) or step.verb_node


def _did_you_mean(name: str, known: Iterable[str]) -> str | None:
    close = nearest(name, known)
    return f"Did you mean `{close}`?" if close is not None else None


async def _answer(frame: Frame, step: ToolStep, tool: Tool | None, arguments: dict[str, Any]) -> Value:
    """The tool's result as a value without secrets. Raises S716, S717, and for a script S710."""
    if not frame.shared.backend.capabilities.tools:
        try:
            return frame.shared.masked(cast("ToolReplies", frame.session).tool_reply(reply_keys(step)))
        except EngineError as problem:
            raise frame.engine_error(problem, step.verb_node) from None
    assert tool is not None, "the run was checked against its tools"
    seconds = None if step.timeout is None else await frame.option(step.timeout, "timeout")
    try:
        return frame.shared.masked(await frame.shared.threads.call(tool, arguments, seconds))
    except TookTooLong:
        message = f"the tool `{tool.name}` took longer than {seconds:g} seconds"
        raise frame.error("S717", message, step.verb_node) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        message = "it was cancelled"
    except Exception as problem:  # a tool fails with whatever it likes
        message = error_text(problem)
    message = _shortened(frame.shared.masked(message))
    raise frame.error("S716", f"the tool `{tool.name}` failed: {message}", step.verb_node) from None


def _shortened(message: str) -> str:
    return message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…"


def _check_picks(frame: Frame, step: ToolStep, value: Value) -> None:
    """`into: {mine: theirs}` takes parts of an object that has them."""
    if step.into is None or not step.into.picks:
        return
    if not isinstance(value, dict):
        message = f"`into` takes parts of an object, and the tool `{step.tool}` gave {ev.describe(value)}"
        raise frame.data_error("S408", message, step.into.node)
    keys = list(cast("dict[str, Any]", value))
    for target, theirs in step.into.picks:
        if theirs not in value:
            message = f"the result of the tool `{step.tool}` has no `{theirs}`"
            raise frame.data_error("S408", message, target.node, _did_you_mean(theirs, keys))


async def _bind(frame: Frame, step: ToolStep, value: Value) -> None:
    if step.into is None:
        return
    if step.into.target is not None:
        target = step.into.target
        await frame.bind(target.name, target.append, Bound(value, "tool"), step.verb_node)
    parts: Mapping[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    for target, theirs in step.into.picks:
        await frame.bind(target.name, target.append, Bound(parts.get(theirs), "tool"), step.verb_node)


__all__ = ["run_tool"]

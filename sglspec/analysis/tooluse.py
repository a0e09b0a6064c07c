"""Tools: whether the host has them, and whether the arguments are theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sglspec.analysis.declarations import nearest
from sglspec.analysis.program import CompiledValue, Constant, ListValue, MapValue
from sglspec.analysis.sites import own_sites
from sglspec.analysis.types import ANY
from sglspec.diagnostics import Diagnostic
from sglspec.document.load import Document
from sglspec.document.model import Tool as ToolStep
from sglspec.document.nodes import Mapping, Node, to_python
from sglspec.tools import Tool, Tools, ToolsFault

if TYPE_CHECKING:
    from sglspec.analysis.flow import Flow


def walk_tool(flow: Flow, step: ToolStep) -> None:
    flow.names.secrets_allowed = True
    for value in (step.args or {}).values():
        flow.value(value.node)
    flow.names.secrets_allowed = False
    flow.option(step.timeout, "timeout")
    problem = unknown_tool(flow.document, step, flow.tools)
    if problem is not None:
        # Without a host nobody knows what it will offer.
        flow.report.add(problem if flow.host_known else replace(problem, severity="warning"))
    elif (tool := flow.tools.find(step.tool)) is not None:
        _arguments(flow, step, tool)
    for site in own_sites(step):
        flow.names.bind(site, ANY, flow.state, flow.place)


def unknown_tool(document: Document, step: ToolStep, tools: Tools) -> Diagnostic | None:
    """S320 when the host does not have the tool."""
    try:
        if tools.find(step.tool) is not None:
            return None
        message = f"nobody registered the tool `{step.tool}`"
    except ToolsFault as fault:
        message = str(fault)
    close = nearest(step.tool, tools.names())
    help = f"Did you mean `{close}`?" if close else f"Registered: {', '.join(tools.names())}."
    return document.diagnostic("S320", message, step.at("tool"), help=help)


def _arguments(flow: Flow, step: ToolStep, tool: Tool) -> None:
    given = step.args or {}
    for name in tool.unknown(given):
        message = f"the tool `{tool.name}` has no argument `{name}`"
        close = nearest(name, list(tool.parameters))
        help = f"Did you mean `{close}`?" if close else _listed(tool)
        flow.report.add(flow.document.diagnostic("S406", message, _key(step, name), help=help))
    if missing := tool.missing(given):
        names = ", ".join(f"`{name}`" for name in missing)
        place = step.key("with") if step.args is not None else step.verb_node
        help = "Give it in `with`." if len(missing) == 1 else "Give them in `with`."
        flow.report.add(flow.document.diagnostic("S406", f"the tool `{tool.name}` needs {names}", place, help=help))
    for name, value in given.items():
        compiled = flow.compiler.values.get(value.node)
        if name not in tool.parameters or compiled is None or not is_literal(compiled):
            continue
        try:
            tool.parameters[name].convert(to_python(value.node))
        except ValueError as problem:
            message = f"the argument `{name}` of the tool `{tool.name}`: {problem}"
            flow.report.add(flow.document.diagnostic("S408", message, value.node))


def _listed(tool: Tool) -> str:
    return f"Its arguments are: {', '.join(tool.parameters)}." if tool.parameters else "It has no arguments."


def is_literal(compiled: CompiledValue) -> bool:
    """Whether a value holds no template."""
    match compiled:
        case Constant():
            return True
        case ListValue(items=items):
            return all(is_literal(item) for item in items)
        case MapValue(entries=entries):
            return all(is_literal(item) for _, item in entries)
        case _:
            return False


def _key(step: ToolStep, name: str) -> Node:
    given = step.at("with")
    return (given.key(name) if isinstance(given, Mapping) else None) or given


__all__ = ["is_literal", "unknown_tool", "walk_tool"]

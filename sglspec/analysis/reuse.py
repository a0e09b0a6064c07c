"""`include` and `call`: what they mean, what they are given, and what comes back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sglspec.analysis.declarations import check_input, nearest
from sglspec.analysis.inputs import fill
from sglspec.analysis.program import Routine, Target, Used
from sglspec.analysis.sites import own_sites
from sglspec.analysis.tooluse import is_literal
from sglspec.analysis.types import ANY, Type, of_decl
from sglspec.document.fields import Value
from sglspec.document.model import Call, Decl, Include, Use
from sglspec.document.nodes import Mapping as MappingNode
from sglspec.document.nodes import Node, Scalar, to_python

if TYPE_CHECKING:
    from sglspec.analysis.flow import Flow

MAX_NESTING = 16
"""Lists of steps that include one another, and documents that use one another."""


@dataclass(slots=True)
class Reuse:
    """What `include` and `call` of one document can name. `faulty`: names that are there, but of something with errors
    of its own, about which nothing more is said."""

    lists: dict[str, Routine] = field(default_factory=dict[str, Routine])
    used: Mapping[str, Used] = field(default_factory=dict[str, Used])
    faulty: set[str] = field(default_factory=set[str])

    def target(self, name: str) -> Target | None:
        if name in self.lists:
            return Target(self.lists[name], {}, None)
        used = self.used.get(name)
        return Target(used.program.routine, used.bound, used.program) if used is not None else None


def walk_include(flow: Flow, step: Include) -> None:
    target = flow.reuse.target(step.include)
    if target is None:
        if step.include not in flow.reuse.faulty:
            _unknown(flow, step, step.include, [*flow.reuse.lists, *flow.reuse.used])
        _loose(flow, step)
        return
    routine = target.routine
    declared = routine.params if target.program is None else target.program.inputs
    noun = "param" if target.program is None else "input"
    _arguments(flow, step, declared, target.bound, f"`{step.include}`", noun)
    _comes_back(flow, step, routine.gives, f"no step of `{step.include}` binds", "S301")


def walk_call(flow: Flow, step: Call) -> None:
    used = flow.reuse.used.get(step.call)
    if used is None:
        if step.call in flow.reuse.lists:
            message = f"`{step.call}` is a list of steps, and `call` runs another program"
            help = f"Write `include: {step.call}`: its steps run in this context."
            flow.report.add(flow.document.diagnostic("S321", message, step.at("call"), help=help))
        elif step.call not in flow.reuse.faulty:
            _unknown(flow, step, step.call, list(flow.reuse.used))
        _loose(flow, step)
        return
    _arguments(flow, step, used.program.inputs, used.bound, f"`{step.call}`")
    outputs = used.program.outputs
    if step.on_error == "keep":
        outputs = dict.fromkeys(outputs, ANY)
    elif step.on_error == "skip":
        outputs = {name: replace(type, nullable=True) for name, type in outputs.items()}
    _comes_back(flow, step, outputs, f"the program `{step.call}` has no output", "S307")


def check_bound(flow: Flow, alias: str, use: Use, used: Used | None) -> None:
    """The inputs that `use` binds. Its values see the document's inputs."""
    for name, value in (use.args or {}).items():
        if used is None:
            _loose_value(flow, value)
        else:
            _argument(flow, name, value, _key(use.at("with"), name), used.program.inputs, f"`{alias}`")


def _unknown(flow: Flow, step: Include | Call, name: str, known: list[str]) -> None:
    what = "alias of `use`" if isinstance(step, Call) else "list of steps in `defs`, and no alias of `use`,"
    close = nearest(name, known)
    shown = ", ".join(known[:12])
    help = f"Did you mean `{close}`?" if close else f"Known here: {shown}." if shown else None
    if help is None:
        help = f"Say where it is: `use: {{{name}: ./{name}.sglspec.yaml}}`."
    flow.report.add(
        flow.document.diagnostic("S321", f"there is no {what} called `{name}`", step.at(step.VERB), help=help)
    )


def _loose(flow: Flow, step: Include | Call) -> None:
    """Nothing is known of what is named: its values still have names in them, and what it binds is bound."""
    for value in (step.args or {}).values():
        _loose_value(flow, value)
    for site in own_sites(step):
        flow.names.bind(site, ANY, flow.state, flow.place)


def _loose_value(flow: Flow, value: Value) -> None:
    flow.names.secrets_allowed = True
    flow.value(value.node)
    flow.names.secrets_allowed = False


def _arguments(
    flow: Flow,
    step: Include | Call,
    declared: Mapping[str, Decl],
    bound: Collection[str],
    what: str,
    noun: str = "input",
) -> None:
    given = step.args or {}
    for name, value in given.items():
        node = _key(step.at("with"), name)
        if name in bound:
            message = f"`use` has bound the input `{name}` of {what} already"
            flow.report.add(flow.document.diagnostic("S410", message, node, help="Leave one of them out."))
        _argument(flow, name, value, node, declared, what, noun)
    missing = [
        f"`{name}`"
        for name, decl in declared.items()
        if name not in given and name not in bound and decl.default is None and not decl.optional
    ]
    if missing:
        place = step.key("with") if step.args is not None else step.verb_node
        help = "Give it in `with`." if len(missing) == 1 else "Give them in `with`."
        flow.report.add(flow.document.diagnostic("S402", f"{what} needs {', '.join(missing)}", place, help=help))


def _argument(
    flow: Flow, name: str, value: Value, node: Node, declared: Mapping[str, Decl], what: str, noun: str = "input"
) -> None:
    """A value for an input or param: a secret goes to a secret one only."""
    decl = declared.get(name)
    flow.names.secrets_allowed = decl is None or decl.secret is True
    type = flow.value(value.node)
    flow.names.secrets_allowed = False
    if decl is None:
        close = nearest(name, list(declared))
        help = f"Did you mean `{close}`?" if close else None
        if help is None:
            help = f"It takes: {', '.join(declared)}." if declared else "It takes nothing."
        flow.report.add(flow.document.diagnostic("S403", f"{what} has no {noun} `{name}`", node, help=help))
        return
    problem: str | None = None
    compiled = flow.compiler.values.get(value.node)
    if compiled is not None and is_literal(compiled):
        given = to_python(value.node)
        if given is not None or not (decl.optional or decl.default is not None):
            problem = check_input(decl, fill(decl, given))
    elif not _may_fit(type, of_decl(decl)):
        problem = f"expected {_KINDS[of_decl(decl).kind]}, found {_KINDS[type.kind]}"
    if problem is not None:
        flow.report.add(flow.document.diagnostic("S401", f"{noun} `{name}` of {what}: {problem}", value.node))


_KINDS = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "a mapping", "null": "null", "any": "anything",
}  # fmt: skip


def _may_fit(given: Type, wanted: Type) -> bool:
    """Whether a value of one type can be one of another, as far as it is known."""
    if "any" in (given.kind, wanted.kind) or given.kind == "null" or given.nullable:
        return True
    numeric = ("integer", "number")
    return given.kind == wanted.kind or (given.kind in numeric and wanted.kind in numeric)


def _comes_back(flow: Flow, step: Include | Call, gives: Mapping[str, Type], none: str, code: str) -> None:
    """Binds what `into` says. `none` begins the message about a name that is not there."""
    into = step.into
    theirs = {id(target): name for target, name in into.picks} if into is not None else {}
    if into is not None:
        for target, name in into.picks:
            if name not in gives:
                close = nearest(name, list(gives))
                shown = ", ".join(list(gives)[:12])
                help = f"Did you mean `{close}`?" if close else f"It gives: {shown}." if shown else "It gives nothing."
                flow.report.add(
                    flow.document.diagnostic(code, f"{none} `{name}`", _value(into.node, target.node), help=help)
                )
    on_error = step.on_error if isinstance(step, Call) else None
    # an included list may come back with more than is known: what it returns
    closed = isinstance(step, Call)
    record = Type("object", fields=gives, nullable=on_error == "skip", closed=closed) if on_error != "keep" else ANY
    picks = {id(target.node): gives.get(theirs[id(target)], ANY) for target, _ in into.picks} if into else {}
    for site in own_sites(step):
        flow.names.bind(site, picks.get(id(site.node), record), flow.state, flow.place)


def _value(mapping: Node, key: Node) -> Node:
    text = key.text if isinstance(key, Scalar) else ""
    return (mapping.get(text) if isinstance(mapping, MappingNode) else None) or key


def _key(mapping: Node, name: str) -> Node:
    return (mapping.key(name) if isinstance(mapping, MappingNode) else None) or mapping


__all__ = ["MAX_NESTING", "Reuse", "check_bound", "walk_call", "walk_include"]

"""The whole static check of one document, in order."""

from __future__ import annotations

from sglspec.analysis import later
from sglspec.analysis.cases import CaseChecker
from sglspec.analysis.chat import ChatChecker, is_chat
from sglspec.analysis.declarations import nearest
from sglspec.analysis.declcheck import DeclChecker
from sglspec.analysis.flow import Flow
from sglspec.analysis.gens import GenChecker
from sglspec.analysis.names import Names
from sglspec.analysis.program import Program
from sglspec.analysis.sites import every_step
from sglspec.diagnostics import MAX_REPORTED, Related, Report
from sglspec.document.fields import Param, Target
from sglspec.document.load import Document, Partial, read_document
from sglspec.document.model import NOT_YET_KEYS, Gen, Outputs, Return, TextStep
from sglspec.document.nodes import Mapping, Node, Source
from sglspec.tools import Tools


def load_program(source: Source, report: Report, tools: Tools | None = None) -> Program | None:
    """Reads, validates and checks. None when the report has errors. tools: what the host offers; when None, a tool that
    is not known is a warning."""
    document = read_document(source, report)
    if isinstance(document, Partial):
        _check_rest(document, source, report)
        return None
    return check(document, report, tools) if document is not None else None


SURE = frozenset(
    {
        "S211", "S250", "S251", "S252", "S253", "S254", "S255", "S301", "S304", "S308", "S406", "S501", "S502", "S503",
        "S504", "S505", "S506", "S507", "S508",
    }
)  # fmt: skip
"""What is wrong whatever stands elsewhere; for unknown names (S301) see `_check_rest`."""


def _check_rest(partial: Partial, source: Source, report: Report) -> None:
    """The errors of a document whose structure has faults: those that cannot come from what is left out."""
    found = Report(source.name)
    check(partial.document, found)
    for problem in found.sorted():
        place = problem.range
        if problem.code not in SURE or place is None:
            continue
        text = source.text[source.offset(place.start) : source.offset(place.end)].strip("\"'")
        if problem.code == "S301" and (text in partial.lost or not partial.names_known):
            continue
        report.add(problem)


def check(document: Document, report: Report, tools: Tools | None = None) -> Program | None:
    """Every static check. None when the report has errors; warnings alone give a program."""
    spec = document.spec
    _not_yet(document, report)
    _ids(document, report)
    _limits(document, report)
    decls = DeclChecker(document, report)
    decls.check_all(spec.inputs, fields=False)
    faulty: set[Gen] = set()
    for step in every_step(spec.steps):
        if isinstance(step, Gen) and step.fields is not None and not decls.check_all(step.fields, fields=True):
            faulty.add(step)
    chat = is_chat(spec.steps)
    if chat:
        ChatChecker(document, report).check(spec.steps)
    names = Names.of(document, report)
    gens = GenChecker(document, report, {}, faulty)
    flow = Flow(document, report, names, gens, tools or Tools(installed=True), tools is not None)
    if spec.defaults is not None:
        flow.params(spec.defaults)
        gens.sampling(spec.defaults, None)
    flow.block(spec.steps)
    _outputs(document, report, flow)
    cases = CaseChecker(document, report, [*names.bound_in, *names.hidden_in])
    for case in spec.tests or ():
        cases.check(case)
    _unused(document, report, names.read | flow.compiler.words)
    if report.has_errors:
        return None
    compiler = flow.compiler
    appending = names.appending
    return Program(
        document, compiler.templates, compiler.expressions, compiler.values, gens.constraints, chat,
        tuple(names.bound_in), appending,
    )  # fmt: skip


def _not_yet(document: Document, report: Report) -> None:
    for key in NOT_YET_KEYS:
        node = document.root.key(key)
        if node is not None:
            report.add(document.diagnostic("S220", f"`{key}` is not yet in this build", node, help=later.KEYS[key]))


def _ids(document: Document, report: Report) -> None:
    first: dict[str, Node] = {}
    for step in every_step(document.spec.steps):
        if isinstance(step, TextStep) or step.id is None:
            continue
        node = step.at("id")
        if step.id in first:
            related = (Related("first used here", first[step.id].range),)
            message = f"the id `{step.id}` is used twice"
            report.add(document.diagnostic("S214", message, node, related=related))
        first.setdefault(step.id, node)


def _limits(document: Document, report: Report) -> None:
    limits = document.spec.limits
    for name in ("tokens", "branches", "depth", "iterations", "seconds") if limits is not None else ():
        param: Param | None = getattr(limits, name)
        if param is not None and param.template is not None:
            help = f"Write a number: `{name}: 1000`."
            report.add(document.diagnostic("S203", f"`{name}` takes a number, not a template", param.node, help=help))


def _outputs(document: Document, report: Report, flow: Flow) -> None:
    """Outputs name what some step binds; their values are templates over everything at the end."""
    outputs = document.spec.outputs
    names = flow.names
    returned = _returned(document, report, outputs, names)
    if outputs is None:
        return
    _twice(document, report, outputs)
    if outputs.values is None:
        for target in outputs.names:
            if target.name in names.inputs:
                names.read.add(target.name)
                if target.name in names.secrets:
                    message = f"the secret input `{target.name}` would be shown as an output"
                    report.add(document.diagnostic("S308", message, target.node))
            elif target.name not in names.bound_in and target.name not in returned:
                _unknown_output(document, report, target, names)
        return
    flow.at_end = True
    flow.state.muted = False
    for _, value in outputs.values:
        flow.value(value.node)


def _twice(document: Document, report: Report, outputs: Outputs) -> None:
    seen: set[str] = set()
    for target in outputs.names:
        if target.name in seen:
            report.add(document.diagnostic("S214", f"the output `{target.name}` is named twice", target.node))
        seen.add(target.name)


def _unknown_output(document: Document, report: Report, target: Target, names: Names) -> None:
    name = target.name
    help: str | None = None
    if name in names.kept_in:
        message = f"the output `{name}` is bound only inside a `scratch` that does not export it"
        help = f"Add it to its `export: [{name}]`."
    elif name in names.hidden_in:
        message = f"the output `{name}` is bound only inside a fork that brings back records"
        help = "Name the variable of `into` instead."
    elif name in names.loop_variables:
        message = f"the output `{name}` is the variable of a loop, which lives in its `do` only"
    else:
        message = f"no step binds the output `{name}`"
        close = nearest(name, [*names.bound_in, *names.inputs]) if report.count < MAX_REPORTED else None
        known = ", ".join(names.bound_in)
        help = f"Did you mean `{close}`?" if close else f"The steps bind: {known}." if known else None
    report.add(document.diagnostic("S307", message, target.node, help=help))


def _returned(document: Document, report: Report, outputs: Outputs | None, names: Names) -> set[str]:
    """The names that `return` sets; with declared outputs only those may appear."""
    declared = {target.name: None for target in outputs.names} if outputs is not None else None
    returned: set[str] = set()
    for step in every_step(document.spec.steps):
        if not isinstance(step, Return) or step.values is None:
            continue
        mapping = step.at("return")
        for name in step.values:
            node: Node = (mapping.key(name) if isinstance(mapping, Mapping) else None) or mapping
            returned.add(name)
            if declared is not None and name not in declared:
                close = nearest(name, list(declared)) if report.count < MAX_REPORTED else None
                help = f"Did you mean `{close}`?" if close else "The outputs are: " + ", ".join(declared) + "."
                message = f"`{name}` is not an output of this program"
                report.add(document.diagnostic("S307", message, node, help=help))
            elif declared is None and name in names.inputs:
                message = f"`{name}` is an input, and without `outputs` an input is no output"
                report.add(document.diagnostic("S307", message, node, help="Choose another name."))
            elif declared is None and name not in names.bound_in:
                message = f"`{name}` is not an output of this program: no step binds it, and there is no `outputs`"
                help = f"Declare it at the top level: `outputs: [{', '.join(step.values)}]`."
                report.add(document.diagnostic("S307", message, node, help=help))
    return returned


def _unused(document: Document, report: Report, read: set[str]) -> None:
    inputs = document.root.get("inputs")
    for name in document.spec.inputs:
        if name in read:
            continue
        key = (inputs.key(name) if isinstance(inputs, Mapping) else None) or inputs or document.root
        message = f"nothing reads the input `{name}`"
        help = f"Insert it with `{{{{ {name} }}}}`, or remove it."
        report.add(document.diagnostic("W302", message, key, severity="warning", help=help))


__all__ = ["check", "load_program"]

"""What a program gives: the outputs that it declares, and those that `return` names."""

from __future__ import annotations

from sglspec.analysis.declarations import nearest
from sglspec.analysis.flow import Flow
from sglspec.analysis.lists import given_back
from sglspec.analysis.names import Names
from sglspec.analysis.sites import every_step
from sglspec.analysis.types import ANY, Type, of_all
from sglspec.diagnostics import MAX_REPORTED, Report
from sglspec.document.fields import Target
from sglspec.document.load import Document
from sglspec.document.model import Outputs, Return
from sglspec.document.nodes import Mapping, Node


def check_outputs(document: Document, report: Report, flow: Flow) -> dict[str, Type]:
    """Outputs name what some step binds; their values are templates over everything at the end. Returns what is known
    of their types."""
    outputs = document.spec.outputs
    names = flow.names
    returned = _returned(document, report, outputs, names)
    gives = given_back(flow)
    if outputs is None:
        return gives
    _twice(document, report, outputs)
    good = [target for target in outputs.names if names.good(target.name, target.node)]
    if outputs.values is None:
        for target in good:
            if target.name in names.inputs:
                names.read.add(target.name)
                if target.name in names.secrets:
                    message = f"the secret input `{target.name}` would be shown as an output"
                    report.add(document.diagnostic("S308", message, target.node))
            elif target.name not in names.bound_in and target.name not in returned:
                _unknown_output(document, report, target, names)
        return {t.name: gives.get(t.name) or names.inputs.get(t.name, ANY) for t in outputs.names}
    flow.at_end = True
    flow.state.muted = False
    types = {target.name: flow.value(value.node) for target, value in outputs.values}
    returns = [ending.values for ending in flow.endings]
    if None in returns:
        return dict.fromkeys(types, ANY)  # evaluated where the `return` stands
    given = [values for values in (types if flow.state.alive else None, *returns) if values is not None]
    return {name: of_all(values.get(name, Type("null")) for values in given) for name in types}


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


__all__ = ["check_outputs"]

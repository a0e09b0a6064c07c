"""Where paths part and meet: conditions, cases and loops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sglspec.analysis.choices import check_cases
from sglspec.analysis.infer import infer
from sglspec.analysis.lints import braces_in_key
from sglspec.analysis.names import narrowed
from sglspec.analysis.scopes import Jumps, State, join
from sglspec.analysis.sites import sites
from sglspec.analysis.types import ANY, Type
from sglspec.document.fields import Target
from sglspec.document.model import AnyStep, For, If, Match, While
from sglspec.document.nodes import Mapping
from sglspec.expressions import ast

if TYPE_CHECKING:
    from sglspec.analysis.flow import Flow


def known(flow: Flow, state: State, name: str) -> None:
    """A condition has made sure that the name has a value."""
    if name in state.seen or name in flow.names.bound_in:
        state.assume(name)


def walk_if(flow: Flow, step: If) -> None:
    compiled = flow.condition(step.condition)
    yes, no = flow.state.part(), flow.state.part()
    if compiled is not None:
        if_true, if_false = narrowed(compiled.root)
        for name in if_true:
            known(flow, yes, name)
        for name in if_false:
            known(flow, no, name)
        if isinstance(compiled.root, ast.Literal):  # one arm is never taken
            (no if compiled.root.value else yes).alive = False
    ends = [flow.inside(step.then, yes, flow.place), flow.inside(step.orelse or [], no, flow.place)]
    flow.state = join(flow.state, ends)


def walk_match(flow: Flow, step: Match) -> None:
    compiled = flow.compiler.expression(step.subject)
    all_cases = False
    if compiled is not None:
        all_cases = check_cases(flow.document, flow.report, step, infer(compiled.root, flow.lookup))
    mapping = step.at("cases")
    for entry in mapping.entries if isinstance(mapping, Mapping) else ():
        help = "Write the text itself, or compare with `if`."
        braces_in_key(flow.document, flow.report, entry.key, help)
    ends = [flow.inside(block, flow.state.part(), flow.place) for block in step.cases.values()]
    if step.orelse is not None:
        otherwise = flow.state.part()
        otherwise.alive = otherwise.alive and not all_cases
        ends.append(flow.inside(step.orelse, otherwise, flow.place))
    flow.state = join(flow.state, ends)


def walk_for(flow: Flow, step: For) -> None:
    items, runs = flow.items(step.items)
    flow.names.local(step.var, flow.state, flow.place)
    _loop(flow, step.do, step.var, items, at_least_once=runs is True, never=runs is False)


def walk_while(flow: Flow, step: While) -> None:
    flow.option(step.max, "max")
    flow.state.may_change(binders(step.do))
    outer = flow.place
    flow.place = replace(outer, loop=True)
    with flow.own_loop():
        compiled = flow.condition(step.condition)
    flow.place = outer
    given = narrowed(compiled.root)[0] if compiled is not None else set[str]()
    never = compiled is not None and isinstance(compiled.root, ast.Literal) and not compiled.root.value
    _loop(flow, step.do, None, ANY, at_least_once=False, given=given, never=never)


def _loop(
    flow: Flow,
    do: list[AnyStep],
    variable: Target | None,
    items: Type,
    *,
    at_least_once: bool,
    given: set[str] | None = None,
    never: bool = False,
) -> None:
    flow.state.may_change(binders(do))
    jumps = Jumps()
    body = flow.state.part()
    body.alive = body.alive and not never
    for name in given or ():
        known(flow, body, name)
    if variable is not None:
        body.bind(variable.name, items, id(do))
    place = flow.place.in_loop(variable.name if variable is not None else None, jumps)
    with flow.own_loop():
        end = flow.inside(do, body, place)
    leaving = [end, *jumps.continues, *jumps.breaks]
    if variable is not None:
        for state in leaving:
            state.forget(variable.name, flow.state)
    flow.state = join(flow.state, leaving if at_least_once else [flow.state.part(), *leaving])


def binders(steps: list[AnyStep]) -> dict[str, frozenset[int]]:
    """The names that steps bind, with the steps that do."""
    out: dict[str, frozenset[int]] = {}
    for site in sites(steps):
        if not site.append:
            out[site.name] = out.get(site.name, frozenset()) | {site.binder}
    return out

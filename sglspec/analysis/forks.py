"""Forks: branches start from a snapshot, and what they bind comes back through the join only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from sglspec.analysis.scopes import Jumps, State, join
from sglspec.analysis.sites import Site, every_step, sites
from sglspec.analysis.types import ANY, Type, array
from sglspec.document.fields import Param, Target
from sglspec.document.model import DEFAULT_BRANCHES, DEFAULT_DEPTH, Call, Fork, Gen, Include, Sampling, Scratch, Tool

if TYPE_CHECKING:
    from sglspec.analysis.flow import Flow


def walk_fork(flow: Flow, step: Fork) -> None:
    """Walks every branch, then binds what the join brings back."""
    items, runs = ANY, None
    variable: Target | None = None
    if step.items is not None:
        items, runs = flow.items(step.items)
    if isinstance(step.spec, Target):
        variable = step.spec
        flow.names.local(variable, flow.state, flow.place)
    elif isinstance(step.spec, Param):
        flow.option(step.spec, "fork")
        runs = False if step.spec.template is None and step.spec.value == 0 else None
    _bounds(flow, step)
    before = flow.state.part()
    if step.branches is not None:
        with flow.own_loop():
            _named(flow, step, before)
        return
    outside, flow.used = flow.used, set()
    end = _branch(flow, step, variable, items, before, never=runs is False)
    _identical(flow, step, flow.used)
    flow.used = outside | (flow.used - {"loop"})
    inner = [site for site in sites(step.do or []) if not site.append]
    if step.into is not None:
        _into(flow, step, _record(step, inner, end, variable, items), records=True)
    else:
        flow.names.gathers(step, inner, before)
        for name in dict.fromkeys(site.name for site in inner):
            if name not in flow.names.inputs and name not in flow.names.appending:
                flow.state.bind(name, array(_brought_back(step, name, end)), id(step))


def _bounds(flow: Flow, step: Fork) -> None:
    """A fork wider than all branches of a run may be can only fail."""
    most, width = _limit(flow, "branches", DEFAULT_BRANCHES), _width(step)
    if width is not None and width > most:
        message = f"a run starts at most {most:,} branches, and this fork has {width:,}"
        place = step.at("in") if step.items is not None else step.at("fork")
        help = f"Make it narrower, or raise `limits: {{branches: {width}}}`."
        flow.report.add(flow.document.diagnostic("S212", message, place, help=help))
    check_depth(flow, step)


def check_depth(flow: Flow, step: Fork | Scratch) -> None:
    """S212 at a fork or aside that is nested deeper than a run allows."""
    deepest = _limit(flow, "depth", DEFAULT_DEPTH)
    if flow.place.depth == deepest:
        message = f"forks and asides are nested at most {deepest} deep, and this one is deeper"
        help = f"Nest fewer of them, or raise `limits: {{depth: {deepest + 1}}}`."
        flow.report.add(flow.document.diagnostic("S212", message, step.verb_node, help=help))


def _limit(flow: Flow, name: str, default: int) -> int:
    limits = flow.document.spec.limits
    given: Param | None = getattr(limits, name) if limits is not None else None
    return int(given.value) if given is not None and given.value is not None else default


def _width(step: Fork) -> int | None:
    """How many branches there are, where the document says it."""
    if step.branches is not None:
        return len(step.branches)
    if isinstance(step.spec, Param):
        return int(step.spec.value) if step.spec.value is not None else None
    literal = step.items.literal if step.items is not None else None
    return len(literal.items) if literal is not None else None


def _branch(flow: Flow, step: Fork, variable: Target | None, items: Type, before: State, *, never: bool) -> State:
    jumps = Jumps()
    state = before.part()
    state.alive = state.alive and not never
    if variable is not None:
        state.bind(variable.name, items, id(step))
    place = flow.place.in_fork(variable.name if variable is not None else None, jumps)
    end = flow.inside(step.do or [], state, place)
    return join(before, [end, *jumps.continues])


def _named(flow: Flow, step: Fork, before: State) -> None:
    """Branches with names bring their variables back plainly."""
    taken: dict[str, Site] = {}
    records: dict[str, Type] = {}
    for branch, steps in (step.branches or {}).items():
        jumps = Jumps()
        end = join(before, [flow.inside(steps, before.part(), flow.place.in_fork(None, jumps)), *jumps.continues])
        inner = {site.name: site for site in sites(steps) if not site.append}
        if step.into is not None:
            records[branch] = _record(step, inner.values(), end, None, ANY)
            continue
        flow.names.gathers(step, inner.values(), before)
        for name, site in inner.items():
            if name in taken:
                message = f"two branches of this fork bind `{name}`"
                help = "Use two names, or `into: r` to read `r.branch." + name + "`."
                flow.report.add(flow.document.diagnostic("S305", message, site.node, help=help))
            taken[name] = site
            if name not in flow.names.inputs and name not in flow.names.appending:
                flow.state.bind(name, _brought_back(step, name, end), id(step))
    if step.into is not None:
        _into(flow, step, Type("object", fields=records, closed=True), records=False)


def _record(step: Fork, inner: Iterable[Site], end: State, variable: Target | None, item: Type) -> Type:
    """What a branch bound, and the fork's variable."""
    if step.on_error == "keep":
        return ANY
    fields = {site.name: replace(end.bound.get(site.name, ANY), nullable=True) for site in inner}
    if variable is not None:
        fields[variable.name] = item
    return Type("object", fields=fields, nullable=step.on_error == "skip", closed=True)


def _brought_back(step: Fork, name: str, end: State) -> Type:
    """What a branch's variable is outside: null where the branch did not bind it, or failed under `skip`."""
    if step.on_error == "keep":
        return ANY
    type = end.bound.get(name, ANY)
    return replace(type, nullable=True) if step.on_error == "skip" else type


def _into(flow: Flow, step: Fork, record: Type, *, records: bool) -> None:
    assert step.into is not None
    site = Site(step.into.name, step.into.append, step.into.node, id(step))
    flow.names.bind(site, array(record) if records else record, flow.state, flow.place)


def _identical(flow: Flow, step: Fork, used: set[str]) -> None:
    """Branches that see the same and never draw at random all do the same."""
    if _width(step) in (0, 1):
        return
    steps = list(every_step(step.do or []))
    if any(isinstance(inner, Include | Call | Tool) for inner in steps):
        return  # what runs there is not looked at from here, and a tool may give something else each time
    gens = [inner for inner in steps if isinstance(inner, Gen)]
    if any(_may_vary(gen, flow.document.spec.defaults) for gen in gens):
        return
    if "loop" in used or (isinstance(step.spec, Target) and step.spec.name in used):
        return
    message = "the branches of this fork cannot differ: all see the same, and the temperature is 0"
    help = "Give the `gen` a `temperature` above 0, or use `loop.index` or the fork's variable in a text."
    flow.report.add(flow.document.diagnostic("W502", message, step.verb_node, severity="warning", help=help))


def _may_vary(gen: Gen, defaults: Sampling | None) -> bool:
    for layer in (gen, defaults):
        if layer is not None and layer.temperature is not None:
            return layer.temperature.template is not None or bool(layer.temperature.value)
    return False

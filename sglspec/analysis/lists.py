"""Lists of steps that others include: their order, how deep they go, and what they bring back."""

from __future__ import annotations

from collections.abc import Mapping

from sglspec.analysis.flow import Flow
from sglspec.analysis.names import Names
from sglspec.analysis.reuse import MAX_NESTING, Reuse
from sglspec.analysis.scopes import Ending
from sglspec.analysis.sites import every_step
from sglspec.analysis.types import ANY, Type, join_types, of_all
from sglspec.diagnostics import Report
from sglspec.document.load import Document
from sglspec.document.model import AnyStep, Include, StepsDef


def in_order(document: Document, report: Report, written: Mapping[str, StepsDef], reuse: Reuse) -> list[str]:
    """The lists of `defs.steps`, each behind those that it includes. One that includes itself is left out, with an
    error; its name is then among the faulty ones, as is that of a list which is also an alias."""
    order: list[str] = []
    state: dict[str, str] = {}
    for first in written:
        _visit(document, report, written, reuse, first, state, order)
    return order


def _visit(
    document: Document,
    report: Report,
    written: Mapping[str, StepsDef],
    reuse: Reuse,
    first: str,
    state: dict[str, str],
    order: list[str],
) -> None:
    """Depth first, without recursion: documents may hold thousands of lists."""
    path: list[tuple[str, list[Include]]] = []

    def enter(name: str) -> None:
        state[name] = "open"
        found = [step for step in every_step(written[name].steps) if isinstance(step, Include)]
        path.append((name, [step for step in found if step.include in written]))

    if first not in state:
        enter(first)
    while path:
        name, waiting = path[-1]
        if not waiting:
            path.pop()
            state[name] = "done"
            if name not in reuse.faulty:
                order.append(name)
            continue
        step = waiting.pop(0)
        inner = step.include
        if state.get(inner) == "open":
            names = [one for one, _ in path]
            circle = [*names[names.index(inner) :], inner]
            reuse.faulty.update(circle)
            message = f"the steps of `{inner}` include themselves: {' → '.join(circle)}"
            report.add(document.diagnostic("S322", message, step.at("include")))
        elif inner not in state:
            enter(inner)


def nesting(steps: list[AnyStep], reuse: Reuse) -> int:
    """How many lists are inside one another below these steps."""
    targets = [reuse.target(step.include) for step in every_step(steps) if isinstance(step, Include)]
    return max((target.routine.nesting for target in targets if target is not None), default=0)


def too_deep(document: Document, report: Report, steps: list[AnyStep], reuse: Reuse) -> None:
    """S322 at an `include` below which lists are nested too deep."""
    for step in every_step(steps):
        target = reuse.target(step.include) if isinstance(step, Include) else None
        if isinstance(step, Include) and target is not None and target.routine.nesting >= MAX_NESTING:
            message = f"lists of steps include one another more than {MAX_NESTING} deep"
            report.add(document.diagnostic("S322", message, step.at("include")))


def given_back(flow: Flow) -> dict[str, Type]:
    """Every name that walked steps bind or `return`, with what is known of its type wherever they end."""
    endings = _endings(flow)
    returned = {name: None for ending in endings for name in ending.values or ()}
    return {name: of_all(_at(flow.names, name, one) for one in endings) for name in {**flow.names.bound_in, **returned}}


def variables_at_end(flow: Flow) -> dict[str, Type]:
    """Every variable with what is known of its type wherever walked steps end, whatever `return` gives."""
    endings = [Ending(one.state, None) for one in _endings(flow)]
    return {name: of_all(_at(flow.names, name, one) for one in endings) for name in flow.names.bound_in}


def _endings(flow: Flow) -> list[Ending]:
    return [*flow.endings, *([Ending(flow.state, None)] if flow.state.alive else [])]


def _at(names: Names, name: str, ending: Ending) -> Type:
    """The type of a name where steps end. Null is what was bound on no path, and what a `return` leaves out."""
    if ending.values is not None and name in ending.values:
        return ending.values[name]
    state = ending.state
    type = Type("null")
    if name in state.bound or name in names.appending:
        type = names.type_of(name, state)
    elif name in state.seen:
        type = ANY
    return type if ending.values is None else join_types(type, Type("null"))


__all__ = ["given_back", "in_order", "nesting", "too_deep", "variables_at_end"]

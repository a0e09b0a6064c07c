"""What a plan says of a step, in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglspec.analysis.plan import Length, Plan, PlanNode


def facts(plan: Plan, node: PlanNode) -> list[str]:
    """All that is known of a step, each thing for itself."""
    found: list[str] = []
    if node.times.most == 0:
        return ["never runs"]
    if node.times.exact != 1 and node.kind != "way":
        found.append(f"× {node.times}")
    if node.size is not None:
        found.append(f"{node.size} {plan.unit}")
    if node.tokens is not None:
        found.append(f"{node.tokens} tokens" + (f" each, {node.drafts} texts" if node.drafts is not None else ""))
    if node.width is not None:
        one = {"fork": "branches", "loop": "rounds", "select": "choices"}.get(node.kind)
        found += [f"{node.width} {one}"] if one is not None else []
    if node.kind == "fork" and node.shared is not None and node.width is not None:
        found.append(f"share {length(plan, node.shared)}")
    if node.kind == "call" and node.shared is not None:
        found.append(f"a context of {length(plan, node.shared)}")
    if node.constraint is not None:
        found.append(node.constraint)
    if node.waits:
        names = {one.id: one for one in plan.every()}
        found.append("waits for " + ", ".join(_named(names[id]) for id in node.waits))
    if node.awaited == (-1,):
        found.append("awaited at the end")
    return found


def _named(node: PlanNode) -> str:
    return f"the {node.label} at line {node.line}"


def length(plan: Plan, length: Length) -> str:
    """A context in words."""
    if plan.unit == "tokens":
        return f"{length.text + length.written} tokens"
    if length.written.most == 0:
        return f"{length.text} characters"
    return f"{length.text} characters and {length.written} generated tokens"


def bounds(plan: Plan) -> list[tuple[str, str]]:
    """What a run does at most, line by line."""
    cost = plan.cost
    rows = [
        ("generations", f"{cost.generations}, {cost.generated} tokens"),
        ("in a row", f"{'?' if plan.in_a_row is None else f'≤ {plan.in_a_row:,}'} tokens" + _path(plan)),
    ]
    if cost.selections.most != 0:
        rows.append(("selections", f"{cost.selections}"))
    if cost.branches.most != 0:
        rows.append(("branches", f"{cost.branches}, {cost.depth} deep"))
    if cost.calls.most != 0:
        rows.append(("calls", f"{cost.calls}"))
    if cost.tools.most != 0:
        rows.append(("tools", f"{cost.tools}"))
    start, later = plan.constraints
    if start or later:
        rows.append(("constraints", f"{start} compiled when the run starts, {later} when they are reached"))
    text = f"{cost.text} {plan.unit} of text" + (f", {cost.choices} of choices" if cost.choices.most != 0 else "")
    rows.append(("at best", _computed(plan, f"{text}, {cost.generated} generated tokens")))
    rows.append(("all runs share", f"{plan.beginning:,} {plan.unit}"))
    return rows


def _computed(plan: Plan, parts: str) -> str:
    return parts if plan.computed is None else f"{plan.computed} tokens computed: {parts}"


def _path(plan: Plan) -> str:
    names = {one.id: one for one in plan.every()}
    stretches = [_stretch(names[one.node], one.tokens, one.times) for one in plan.critical]
    return f": {' → '.join(stretches)}" if stretches else ""


def _stretch(node: PlanNode, tokens: int | None, times: int | None) -> str:
    label = node.label.removeprefix("gen ") if node.label != "gen" else f"gen at line {node.line}"
    once = f"{label} {'?' if tokens is None else f'{tokens:,}'}"
    return once if times == 1 else f"{'?' if times is None else f'{times:,}'} × {once}"


def inputs(plan: Plan) -> str:
    """Where the inputs' values are from."""
    return ", ".join(f"{name} {'?' if how == 'unknown' else how}" for name, how in plan.inputs.items())


__all__ = ["bounds", "facts", "inputs", "length"]

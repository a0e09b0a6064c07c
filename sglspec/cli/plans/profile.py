"""The tree of a plan with what really happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglspec.cli.plans.text import table, tree

if TYPE_CHECKING:
    from sglspec.analysis.plan import Plan, PlanNode
    from sglspec.runtime.measured import Line, Measured, Spent

LONGEST = 24
"""Characters of a branch's item."""


def text(plan: Plan, found: Measured) -> str:
    """Steps with what each of them spent, branches below their fork, then the sums."""
    by_id = {plan.keys[key]: spent for key, spent in found.steps.items() if key in plan.keys}
    nodes = tuple(_with_lines(plan, node, found) for node in plan.nodes)
    lines = [f"{plan.program}: {found.seconds:.2f} s", ""]
    lines += tree(nodes, lambda node: node.constraint or "" if node.kind == "line" else said(by_id.get(node.id)))
    return "\n".join([*lines, "", *table(_sums(found))])


def said(spent: Spent | None) -> str:
    """What was spent, in words."""
    if spent is None:
        return ""
    count = [f"{spent.times} ×"] if spent.times > 1 else []
    took = [f"{spent.seconds * 1000:,.0f} ms"] if spent.times else []
    return "  ".join([*count, *took, *_words(spent)])


def _words(spent: Spent) -> list[str]:
    found: list[str] = []
    if spent.waited:
        found.append(f"waited {spent.waited * 1000:,.0f} ms")
    tokens = spent.tokens
    if tokens["computed_tokens"] or tokens["prompt_tokens"]:
        found.append(f"{tokens['computed_tokens']:,} computed, {tokens['reused_tokens']:,} reused")
    if tokens["generated_tokens"]:
        forced = f" ({tokens['forced_tokens']:,} forced)" if tokens["forced_tokens"] else ""
        found.append(f"{tokens['generated_tokens']:,} generated{forced}")
    return found


def _with_lines(plan: Plan, node: PlanNode, found: Measured) -> PlanNode:
    """A node with a line for each branch that its fork has started, before its steps."""
    from dataclasses import replace

    from sglspec.analysis.plan import PlanNode, Range

    children = [_with_lines(plan, child, found) for child in node.children]
    started = [one for one in found.lines if one.branch and plan.keys.get(one.key) == node.id]
    lines = [
        PlanNode(-1, "line", _title(one), None, node.step, node.line, Range(), constraint=_spent(one))
        for one in started
    ]
    return replace(node, children=(*lines, *children))


def _title(line: Line) -> str:
    name = " ".join(line.name.split())
    name = name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
    return f"[{line.branch}{' ' + name if name else ''}]"


def _spent(line: Line) -> str:
    """When a line ran, and what the steps in it spent but for their time, which is a part of its own."""
    at = f"from {line.began * 1000:,.0f} to {line.ended * 1000:,.0f} ms"
    return "  ".join([at, *_words(line.spent)])


def _sums(found: Measured) -> list[tuple[str, str]]:
    count, seconds = found.compiled
    rows: list[tuple[str, str]] = []
    if count:
        rows.append(("constraints", f"{count} compiled, {seconds * 1000:,.0f} ms beside the run"))
    if found.optimum is not None:
        rows += [("computed", f"{found.computed:,} tokens"), ("at best", f"{found.optimum:,} tokens")]
    return rows


def face(plan: Plan, found: Measured) -> dict[str, Any]:
    """The same for programs."""
    by_id = {plan.keys[key]: spent for key, spent in found.steps.items() if key in plan.keys}
    steps = [
        {
            "id": node.id,
            "label": node.label,
            **({} if node.file is None else {"file": node.file}),
            "step": node.step,
            "line": node.line,
            **by_id[node.id].as_dict(),
        }
        for node in plan.every()
        if node.id in by_id
    ]
    return {
        "seconds": round(found.seconds, 4),
        "computed_tokens": found.computed,
        "optimal_tokens": found.optimum,
        "compiled": {"constraints": found.compiled[0], "seconds": round(found.compiled[1], 4)},
        "steps": steps,
        "branches": [line.as_dict() for line in found.lines],
    }


__all__ = ["face", "said", "text"]

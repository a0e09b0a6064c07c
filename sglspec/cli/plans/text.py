"""A plan as a tree of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sglspec.cli.plans.words import bounds, facts, inputs

if TYPE_CHECKING:
    from sglspec.analysis.plan import Plan, PlanNode

GAP = 2
WIDEST = 48
"""Columns up to which what is said of steps begins in one column."""


def text(plan: Plan) -> str:
    """The tree of steps, then the bounds."""
    head = f"{plan.program}: {'a chat' if plan.chat else 'a completion'}"
    head += f", tokens of {plan.model}" if plan.model is not None else ""
    lines = [head, *([f"inputs: {inputs(plan)}"] if plan.inputs else []), ""]
    lines += tree(plan.nodes, lambda node: "  ".join(facts(plan, node)))
    return "\n".join([*lines, "", *table(bounds(plan))])


def tree(nodes: Sequence[PlanNode], said: Callable[[PlanNode], str]) -> list[str]:
    """A line for each node: where it is in the tree, and what is said of it."""
    rows = list(_rows(nodes, "", said))
    widths = [len(left) for left, right in rows if right and len(left) <= WIDEST]
    column = max(widths, default=0) + GAP
    return [f"{left:<{column}}{' ' * (GAP if len(left) + GAP > column else 0)}{right}".rstrip() for left, right in rows]


def _rows(nodes: Sequence[PlanNode], indent: str, said: Callable[[PlanNode], str]) -> Iterator[tuple[str, str]]:
    for at, node in enumerate(nodes):
        last = at == len(nodes) - 1
        yield f"{indent}{'└─' if last else '├─'} {node.label}", said(node)
        yield from _rows(node.children, indent + ("   " if last else "│  "), said)


def table(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Names and what they are, in two columns."""
    column = max((len(name) for name, _ in rows), default=0) + GAP
    return [f"{name:<{column}}{value}" for name, value in rows]


__all__ = ["table", "text", "tree"]

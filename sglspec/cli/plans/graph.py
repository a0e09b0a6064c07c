"""A plan as a graph: steps in their order, branches beside each other, and who waits for whom.

Forks and what waits for them are drawn with edges of their own. Two formats that other tools draw: Mermaid and dot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sglspec.cli.plans.words import facts

if TYPE_CHECKING:
    from sglspec.analysis.plan import Plan, PlanNode

Edge = Literal["next", "starts", "waits"]

SHOWN = ("gen", "select", "fork", "scratch", "call", "tool", "include", "if", "match", "loop", "return", "fail")
"""Kinds of steps that are drawn; texts and messages are not, unless something waits in them."""


@dataclass(frozen=True, slots=True)
class Box:
    """A step in the graph. depth: of branches in one another."""

    id: int
    kind: str
    lines: tuple[str, ...]
    depth: int = 0


@dataclass(slots=True)
class Graph:
    """Boxes in the order of the document; edges between their ids. -1 is the start, -2 the end."""

    boxes: list[Box]
    edges: list[tuple[int, int, Edge]]


def graph(plan: Plan) -> Graph:
    """The boxes and edges of a plan."""
    found = Graph([], [])
    _Drawing(plan, found).all()
    return found


class _Drawing:
    def __init__(self, plan: Plan, found: Graph) -> None:
        self._plan = plan
        self._graph = found
        self._boxes: dict[int, int] = {}

    def all(self) -> None:
        self._graph.boxes.append(Box(-1, "end", (self._plan.program,)))
        ends = self._steps(self._plan.nodes, [-1], 0)
        self._graph.boxes.append(Box(-2, "end", ("end",)))
        self._connect(ends, -2, "next")
        for node in self._plan.every():
            for one in node.waits:
                self._graph.edges.append((one, self._boxes.get(node.id, -2), "waits"))
            if node.awaited == (-1,) and node.id in self._boxes:
                self._graph.edges.append((node.id, -2, "waits"))

    def _connect(self, froms: Sequence[int], to: int, kind: Edge) -> None:
        for one in froms:
            self._graph.edges.append((one, to, kind))

    def _steps(self, nodes: Sequence[PlanNode], before: list[int], depth: int, kind: Edge = "next") -> list[int]:
        """Draw steps behind others. Returns those that what follows comes after."""
        for node in nodes:
            if node.kind in SHOWN or node.waits or node.kind == "way":
                before, kind = self._one(node, before, depth, kind), "next"
            elif node.children:
                after = self._steps(node.children, before, depth, kind)
                if after != before:
                    before, kind = after, "next"
        return before

    def _one(self, node: PlanNode, before: list[int], depth: int, kind: Edge) -> list[int]:
        plan = self._plan
        if node.kind == "way":
            return self._steps(node.children, before, depth, kind)
        said = [fact for fact in facts(plan, node) if not fact.startswith(("waits", "awaited"))]
        self._graph.boxes.append(Box(node.id, node.kind, (node.label, *said), depth))
        self._boxes[node.id] = node.id
        for inner in node.every():  # a text that waits is a part of the box around it
            self._boxes.setdefault(inner.id, node.id)
        self._connect(before, node.id, kind)
        if node.kind in ("fork", "scratch", "call"):
            for branch in _branches(node):
                self._steps(branch, [node.id], depth + 1, "starts")
            return [node.id]
        if node.kind in ("return", "fail"):
            self._connect([node.id], -2, "next")
            return []
        if node.kind in ("if", "match"):
            ends = [end for way in node.children for end in self._steps(way.children, [node.id], depth)]
            only = node.kind == "if" and [way.times for way in node.children] not in ([node.times], [])
            past = only and len(node.children) == 1
            return list(dict.fromkeys([*ends, *([node.id] if past or not node.children else [])]))
        return self._steps(node.children, [node.id], depth)


def _branches(node: PlanNode) -> Iterator[Sequence[PlanNode]]:
    named = [child for child in node.children if child.kind == "branch"]
    if named:
        yield from (child.children for child in named)
    else:
        yield node.children


def mermaid(plan: Plan) -> str:
    """A flowchart in Mermaid's notation."""
    found = graph(plan)
    lines = ["flowchart TD"]
    for box in found.boxes:
        turns = box.kind in ("if", "match", "loop")
        shape = ("([", "])") if box.kind == "end" else ("{{", "}}") if turns else ("[", "]")
        lines.append(f'  {_name(box.id)}{shape[0]}"{"<br/>".join(_mermaid(line) for line in box.lines)}"{shape[1]}')
    arrows = {"next": "-->", "starts": "==>", "waits": "-. waits .->"}
    lines += [f"  {_name(one)} {arrows[kind]} {_name(other)}" for one, other, kind in found.edges]
    return "\n".join(lines)


def _name(id: int) -> str:
    return {-1: "start", -2: "finish"}.get(id, f"s{id}")


def _mermaid(text: str) -> str:
    """Mermaid takes numbered entities for what it would read as its own."""
    return "".join(c if c.isalnum() or c in " .,:×≤≥…→_-=?" else f"#{ord(c)};" for c in text)


def dot(plan: Plan) -> str:
    """A digraph in the language of Graphviz."""
    found = graph(plan)
    lines = ["digraph plan {", '  node [shape=box, style=rounded, fontname="sans-serif"];']
    for box in found.boxes:
        label = "\\n".join(_dot(line) for line in box.lines)
        shape = ", shape=oval" if box.kind == "end" else ", shape=diamond" if box.kind in ("if", "match") else ""
        lines.append(f'  {_name(box.id)} [label="{label}"{shape}];')
    styles = {"next": "", "starts": " [style=bold]", "waits": " [style=dashed, constraint=false]"}
    lines += [f"  {_name(one)} -> {_name(other)}{styles[kind]};" for one, other, kind in found.edges]
    return "\n".join([*lines, "}"])


def _dot(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


__all__ = ["Box", "Graph", "dot", "graph", "mermaid"]

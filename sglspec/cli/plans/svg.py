"""A plan as a picture: time runs down, branches stand to the right of the line that they come from."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from sglspec.cli.plans.graph import Box, graph

if TYPE_CHECKING:
    from sglspec.analysis.plan import Plan

CHARACTER = 6.6
"""Width of a character, on average, in units of the picture."""
LINE, PADDING, GAP, STEP, LANE = 15, 8, 22, 44, 12
LONGEST = 60
"""Characters of a line in a box."""
LINES = "#fef3c7"
COLORS = {"gen": "#dbeafe", "select": "#dcfce7", "tool": "#fae8ff", "fork": LINES, "scratch": LINES, "call": LINES}
STYLE = (
    "text{font:12px sans-serif;fill:#111}.box{stroke:#555}.next{stroke:#555;fill:none}"
    ".starts{stroke:#b45309;fill:none}.waits{stroke:#7c3aed;fill:none;stroke-dasharray:4 3}"
)


@dataclass(frozen=True, slots=True)
class _Placed:
    box: Box
    x: float
    y: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        return self.y + self.height


def svg(plan: Plan) -> str:
    """The whole picture; well-formed whatever the document's texts hold."""
    found = graph(plan)
    order = {box.id: at for at, box in enumerate(found.boxes)}
    past = [(one, other) for one, other, kind in found.edges if kind == "next" and order[other] > order[one] + 1]
    left = GAP + LANE * len(past)
    placed: dict[int, _Placed] = {}
    y = float(GAP)
    for box in found.boxes:
        width = max(len(_cut(line)) for line in box.lines) * CHARACTER + 2 * PADDING
        height = len(box.lines) * LINE + 2 * PADDING
        placed[box.id] = _Placed(box, left + box.depth * STEP, y, width, height)
        y += height + GAP
    right = max(one.x + one.width for one in placed.values())
    waits = [(one, other) for one, other, kind in found.edges if kind == "waits"]
    width = right + GAP * (2 + len(waits))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {y:g}" width="{width:g}" height="{y:g}">',
        f"<title>{_clean(plan.program)}</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="arrow" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
    ]
    for one, other, kind in found.edges:
        if kind != "waits" and (one, other) not in past:
            parts.append(_down(placed[one], placed[other], kind))
    for at, (one, other) in enumerate(past):
        parts.append(_around(placed[one], placed[other], left - LANE * (1 + at), "next"))
    for at, (one, other) in enumerate(waits):
        parts.append(_around(placed[one], placed[other], right + GAP * (1 + at), "waits"))
    parts += [_box(one) for one in placed.values()]
    return "\n".join([*parts, "</svg>"])


def _down(one: _Placed, other: _Placed, kind: str) -> str:
    """From below one box to the left side of the other, or to its top where they are in one column."""
    x = one.x + PADDING
    if other.x > one.x:
        y = other.y + PADDING
        return f'<path class="{kind}" marker-end="url(#arrow)" d="M{x:g} {one.bottom:g}V{y:g}H{other.x:g}"/>'
    return f'<path class="{kind}" marker-end="url(#arrow)" d="M{x:g} {one.bottom:g}V{other.y:g}"/>'


def _around(one: _Placed, other: _Placed, x: float, kind: str) -> str:
    """From one side of a box to the same side of another, around all that is between them."""
    right = x > one.x
    start, end = one.y + one.height / 2, other.y + other.height / 2
    begin, target = (one.x + one.width, other.x + other.width) if right else (one.x, other.x)
    d = f"M{begin:g} {start:g}H{x:g}V{end:g}H{target:g}"
    return f'<path class="{kind}" marker-end="url(#arrow)" d="{d}"/>'


def _box(one: _Placed) -> str:
    color = COLORS.get(one.box.kind, "#f5f5f5")
    place = f'x="{one.x:g}" y="{one.y:g}" width="{one.width:g}" height="{one.height:g}"'
    lines = [
        f'<text x="{one.x + PADDING:g}" y="{one.y + PADDING + LINE * (at + 0.8):g}">{_clean(_cut(line))}</text>'
        for at, line in enumerate(one.box.lines)
    ]
    return f'<rect class="box" rx="4" fill="{color}" {place}/>' + "".join(lines)


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _clean(text: str) -> str:
    """Text for XML, which cannot hold control characters even as entities."""
    return escape("".join(c if c.isprintable() else " " for c in text))


__all__ = ["svg"]

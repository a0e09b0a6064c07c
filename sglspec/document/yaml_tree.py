"""What the YAML composer holds while it works: open collections, finished nodes, anchors, copies for aliases."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglspec.diagnostics import Position, Range
from sglspec.document.nodes import Entry, Mapping, Node, Scalar, Sequence
from sglspec.document.yaml_events import Event


@dataclass(slots=True)
class Built:
    """A finished node with what an alias to it would cost, and whether a merge made it."""

    node: Node
    height: int = 0
    merged: bool = False
    braces: bool = False


@dataclass(slots=True)
class Anchor:
    """What `&name` stands for; `built` is None while the collection is still open."""

    place: Range
    built: Built | None = None
    size: int = 0
    used: bool = False
    swallowed: Event | None = None


@dataclass(slots=True)
class Frame:
    """A collection that is still open."""

    event: Event
    start: int
    counted: int
    end: Position
    anchor: Anchor | None = None
    height: int = 0
    items: list[Node] = field(default_factory=list[Node])
    entries: list[Entry] = field(default_factory=list[Entry])
    first_written: dict[str, Scalar] = field(default_factory=dict[str, Scalar])
    key: Scalar | None = None
    awaits_value: bool = False
    merges: list[Mapping] = field(default_factory=list[Mapping])
    merge_at: int | None = None
    merged: bool = False
    braces: bool = False


def merge_entries(frame: Frame) -> list[Entry]:
    """The author's entries, with those of `<<` in its place. Written keys win, then the earlier mapping."""
    if frame.merge_at is None:
        return frame.entries
    seen = {entry.key.text for entry in frame.entries}
    added: list[Entry] = []
    for mapping in frame.merges:
        for entry in mapping.entries:
            if entry.key.text not in seen:
                seen.add(entry.key.text)
                added.append(entry)
    return [*frame.entries[: frame.merge_at], *added, *frame.entries[frame.merge_at :]]


def copy(node: Node, place: Range | None = None) -> Node:
    """Fresh nodes for an alias. The top one stands where the alias stands, the others where they were written."""
    where = place or node.range
    match node:
        case Scalar():
            return Scalar(node.value, node.text, node.style, where)
        case Sequence():
            return Sequence(tuple(copy(item) for item in node.items), where)
        case Mapping():
            return Mapping(tuple(Entry(_copy_key(e.key), copy(e.value)) for e in node.entries), where)


def _copy_key(key: Scalar) -> Scalar:
    return Scalar(key.value, key.text, key.style, key.range)

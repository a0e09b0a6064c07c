"""What is left of a document without the places that are wrong in structure, so that the rest can still be checked.

An unknown key, a bad name and a stop that is no text are taken out. Any other fault takes out the step that it stands
in (an empty text keeps its place, so that the pointers of the others stay right), or an entry: one of `inputs`, `use`,
`limits`, `defaults`, a test, of a part of `defs`, or of the top level.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sglspec.diagnostics import Range
from sglspec.document.fields import KEY
from sglspec.document.model import TAG
from sglspec.document.nodes import Entry, Mapping, Node, Scalar, Sequence

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_BINDING = frozenset({"inputs", "gen", "select", "set", "capture", "for", "fork", "into", "export"})
"""Keys that say which names there are."""

_LOOSE = frozenset({"stop", "stop_regex"})
"""Keys of lists whose items do not depend on one another."""

_DEPTH = {"inputs": 2, "use": 2, "limits": 2, "defaults": 2, "tests": 2, "defs": 3}
"""How many keys deep the parts of an entry at the top level are that stand for themselves."""

Location = tuple[Any, ...]
"""Where pydantic found a fault: keys and indices, with the tags of unions."""


@dataclass(slots=True)
class _Faults:
    entries: set[int] = field(default_factory=set[int])
    """Keys to take out, with their values."""
    items: set[int] = field(default_factory=set[int])
    """Items of lists to take out."""
    steps: set[int] = field(default_factory=set[int])
    names_known: bool = True
    thinned: list[Range] = field(default_factory=list[Range])


@dataclass(frozen=True, slots=True)
class Remainder:
    """`root` is the document without its faults, `lost` every word that was taken out: what depends on one of these
    is not known to be wrong. `names_known` is false where a fault hides which names the author wanted to bind.
    `thinned` are the places of the mappings that lost a key."""

    root: Mapping
    lost: frozenset[str]
    names_known: bool
    thinned: tuple[Range, ...]


def remainder(root: Mapping, problems: Iterable[tuple[Location, str]]) -> Remainder | None:
    """The rest of a document; `problems` are locations with pydantic's word for what is wrong there. None when a
    fault concerns the document as a whole."""
    faults = _Faults()
    for location, kind in problems:
        if not _mark(root, location, kind, faults):
            return None
    lost: set[str] = set()
    rest = _rebuilt(root, faults, lost)
    if not isinstance(rest, Mapping):
        return None
    return Remainder(rest, frozenset(lost), faults.names_known, tuple(faults.thinned))


def _mark(root: Mapping, location: Location, kind: str, faults: _Faults) -> bool:
    node: Node = root
    path: list[Entry] = []
    last: Entry | None = None
    step: Node | None = None
    key = location[-1:] == (KEY,)
    for part in location[:-1] if key else location:
        if isinstance(part, str) and part.startswith(TAG):
            step = node
            continue
        following: Node | None = None
        if isinstance(node, Mapping) and isinstance(part, str):
            last = node.entry(part)
            if last is not None:
                path.append(last)
            following = last.value if last is not None else None
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            following = node.items[part]
        elif isinstance(part, int) or (part == "steps" and isinstance(node, Sequence)):
            continue
        if following is None:
            break
        node = following
    if kind.startswith("union_tag"):
        step = node
    if last is not None and last.key.text in _BINDING and not _is_text(node):
        faults.names_known = False
    if (key or kind == "extra_forbidden") and last is not None:
        faults.entries.add(id(last.key))
    elif last is not None and last.key.text in _LOOSE and isinstance(last.value, Sequence) and node is not last.value:
        faults.items.add(id(node))
    elif step is not None and step is not root:
        faults.steps.add(id(step))
    elif path and path[0].key.text != "steps":
        depth = _DEPTH.get(path[0].key.text, 1)
        faults.entries.add(id(path[:depth][-1].key))
    else:
        return False
    return True


def _is_text(node: Node) -> bool:
    return isinstance(node, Scalar) and isinstance(node.value, str)


def _rebuilt(node: Node, faults: _Faults, lost: set[str]) -> Node:
    """The tree without its faults. Parts without any are the same objects as before."""
    if id(node) in faults.steps:
        _words(node, lost)
        return Scalar("", "", "double", node.range)
    if isinstance(node, Sequence):
        items = tuple(_rebuilt(item, faults, lost) for item in node.items if id(item) not in faults.items)
        same = len(items) == len(node.items) and all(new is old for new, old in zip(items, node.items, strict=True))
        return node if same else Sequence(items, node.range)
    if isinstance(node, Mapping):
        entries: list[Entry] = []
        for entry in node.entries:
            if id(entry.key) in faults.entries:
                faults.thinned.append(node.range)
                lost.update(_WORD.findall(entry.key.text))
                _words(entry.value, lost)
                continue
            value = _rebuilt(entry.value, faults, lost)
            entries.append(entry if value is entry.value else Entry(entry.key, value))
        same = len(entries) == len(node.entries) and all(a is b for a, b in zip(entries, node.entries, strict=True))
        return node if same else Mapping(tuple(entries), node.range)
    return node


def _words(node: Node, into: set[str]) -> None:
    match node:
        case Scalar():
            into.update(_WORD.findall(node.text))
        case Sequence():
            for item in node.items:
                _words(item, into)
        case Mapping():
            for entry in node.entries:
                _words(entry.key, into)
                _words(entry.value, into)

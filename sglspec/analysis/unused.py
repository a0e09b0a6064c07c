"""Entries of `defs` and aliases of `use` that nothing names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sglspec.diagnostics import Report
from sglspec.document.load import Document
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_unused(document: Document, report: Report) -> None:
    """Adds warnings (W303). What may be a use counts as one, wherever it stands."""
    defs = document.root.get("defs")
    sections = {key: defs.get(key) if isinstance(defs, Mapping) else None for key in _KINDS}
    sections["use"] = document.root.get("use")
    if not any(isinstance(one, Mapping) and one.entries for one in sections.values()):
        return
    plain = {id(sections["regexes"]), id(sections["texts"])}  # nothing is inserted into these
    written = list(_scalars(document.root, plain))
    whole, words, texts = set(written), set[str](), set[str]()
    open_ended = False
    for text in written:
        found = _WORD.findall(text)
        words.update(found)
        if "texts" in found:
            texts.update(found)
            open_ended = open_ended or "texts." not in text
    for key, section in sections.items():
        used = words if key == "regexes" else texts if key == "texts" else whole
        for entry in section.entries if isinstance(section, Mapping) else ():
            if entry.key.text not in used and not (key == "texts" and open_ended):
                what, help = _KINDS[key]
                message = f"nothing uses the {what} `{entry.key.text}`"
                help = help.format(name=entry.key.text)
                report.add(document.diagnostic("W303", message, entry.key, severity="warning", help=help))


_KINDS = {
    "schemas": ("schema", "Name it with `schema: {name}`, or remove it."),
    "regexes": ("pattern", "Insert it into a `regex` with `{{{{ {name} }}}}`, or remove it."),
    "texts": ("text", "Insert it with `{{{{ texts.{name} }}}}`, or remove it."),
    "steps": ("list of steps", "Write `include: {name}`, or remove it."),
    "use": ("document", "Write `include: {name}` or `call: {name}`, or remove it."),
}


def _scalars(node: Node, without: set[int]) -> Iterator[str]:
    """The texts of all values, but not below these nodes."""
    if id(node) in without:
        return
    match node:
        case Scalar():
            yield node.text
        case Sequence():
            for item in node.items:
                yield from _scalars(item, without)
        case Mapping():
            for entry in node.entries:
                yield from _scalars(entry.value, without)


__all__ = ["check_unused"]

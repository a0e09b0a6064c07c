"""YAML → nodes: our own composer on libyaml's events, under limits (language.md § 8).

Events are taken one at a time and every limit is checked as they come, so a hostile document costs no more than
the part of it that was read. Faults that leave the structure readable (a key written twice, a tag) are collected;
syntax faults and limits end the reading.
"""

from __future__ import annotations

import re

from sglspec.diagnostics import Diagnostic, Range, Related, Report
from sglspec.document.bounds import MAX_ALIASES, MAX_DEPTH, MAX_NODES, too_deep, too_many, too_many_aliases
from sglspec.document.nodes import Entry, Mapping, Node, Primitive, Scalar, Sequence, Source
from sglspec.document.numbers import NumberError, resolve_plain
from sglspec.document.yaml_events import Event, SyntaxFault, read_events
from sglspec.document.yaml_faults import braces_fault, explain_fault, forbidden_characters
from sglspec.document.yaml_lints import anchor_lint, comment_lint, escape_lint, odd_space
from sglspec.document.yaml_place import quoted
from sglspec.document.yaml_tree import Anchor, Built, Frame, copy, merge_entries

_PROPERTIES = re.compile(r"(?:(?:&[0-9A-Za-z_-]+|![^ \t\r\n\[\]{},]*)(?:[ \t\r\n]+(?:#[^\n]*\n[ \t\r\n]*)*)?)+")
_TAG = re.compile(r"![^ \t\r\n\[\]{},]*")


def read_yaml(source: Source, report: Report) -> Node | None:
    """The tree of a YAML document, or None when it has errors; they and the lints are added to `report`."""
    composer = _Composer(source)
    composer.faults.extend(forbidden_characters(source))
    root = None if composer.faults else composer.compose()
    report.extend(composer.faults)
    if composer.faults:
        return None
    report.extend(composer.lints)
    return root


class _Stop(Exception):
    """Nothing after this place can be read."""


class _Composer:
    """One document. `faults` and `lints` are filled as it goes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.faults: list[Diagnostic] = []
        self.lints: list[Diagnostic] = []
        self._frames: list[Frame] = []
        self._anchors: dict[str, Anchor] = {}
        self._all_anchors: list[Anchor] = []
        self._aliases = 0
        self._nodes = 0
        self._root: Built | None = None

    def compose(self) -> Node | None:
        """Reads all events; None if the document is empty or breaks off."""
        try:
            self._read()
        except _Stop:
            return None
        except SyntaxFault as fault:
            self._syntax(fault)
            return None
        for anchor in self._all_anchors:
            if anchor.swallowed is not None and not anchor.used:
                self.lints.append(anchor_lint(self.source, anchor.place, anchor.swallowed))
        return self._root.node if self._root else None

    def _read(self) -> None:
        documents = 0
        for event in read_events(self.source.text):
            match event.kind:
                case "document":
                    documents += 1
                    if documents > 1:
                        self._several_documents(event)
                case "scalar":
                    self._attach(self._scalar(event))
                case "alias":
                    self._attach(self._alias(event))
                case "sequence" | "mapping":
                    self._open(event)
                case "end":
                    self._attach(self._close(event))
        root = self._root.node if self._root else None
        if root is None or (isinstance(root, Scalar) and root.style == "plain" and not root.text):
            self._fault("S112", "This document is empty.", 0, 0, "Start with a line that says `sglspec: v1`.")

    # Leaves

    def _scalar(self, event: Event) -> Built:
        text = self.source.text
        start, end = self._after_properties(event), event.end
        if event.style in ("literal", "folded"):
            end = start + len(text[start:end].rstrip(" \t\r\n"))
        place = self.source.span(start, end)
        self._count(1, place)
        self._check_tag(event, end)
        is_key = self._expects_key()
        value: Primitive = event.value
        if event.style == "plain":
            value = event.value if is_key else self._resolve(event.value, place)
            self._plain_faults(event, start, is_key)
        elif event.style == "double":
            self._double_faults(event, place)
        node = Scalar(value, event.value, event.style, place)
        built = Built(node)
        if event.anchor is not None:
            anchor = self._declare(event, built, 1)
            same_line = "\n" not in text[event.start : start]
            anchor.swallowed = event if event.style == "plain" and same_line else None
        return built

    def _resolve(self, text: str, place: Range) -> Primitive:
        try:
            return resolve_plain(text)
        except NumberError as error:
            help = (
                f"If it is text, put quotes around it: {quoted(text)}" if len(text) <= 40 else "Quote it if it is text."
            )
            self.faults.append(Diagnostic("S108", str(error), file=self.source.name, range=place, help=help))
            return text

    def _plain_faults(self, event: Event, start: int, is_key: bool) -> None:
        fault = odd_space(self.source, event.value, start, is_key)
        if fault is not None:
            self.faults.append(fault)
        if not is_key:
            lint = comment_lint(self.source, event.value, event.start, event.end)
            if lint is not None:
                self.lints.append(lint)

    def _double_faults(self, event: Event, place: Range) -> None:
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            message = "This text has half of a character: an escape from \\uD800 to \\uDFFF."
            self.faults.append(Diagnostic("S113", message, file=self.source.name, range=place))
        lint = escape_lint(self.source, event, place)
        if lint is not None:
            self.lints.append(lint)

    def _alias(self, event: Event) -> Built:
        name = event.anchor or ""
        place = self.source.span(event.start, event.end)
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            self._stop(too_many_aliases(self.source.name, place))
        anchor = self._anchors.get(name)
        if anchor is None or anchor.built is None:
            self._count(1, place)
            self._bad_alias(name, anchor, place)
            return Built(Scalar(None, "", "plain", place))
        anchor.used = True
        self._count(anchor.size, place)
        if len(self._frames) + anchor.built.height > MAX_DEPTH:
            self._stop(too_deep(self.source.name, place))
        duplicate = copy(anchor.built.node, place)
        return Built(duplicate, anchor.built.height, anchor.built.merged)

    def _bad_alias(self, name: str, anchor: Anchor | None, place: Range) -> None:
        if anchor is not None:
            related = (Related(f"`&{name}` starts here", anchor.place),)
            message = f"`*{name}` stands inside `&{name}`, so it would contain itself."
            self.faults.append(Diagnostic("S107", message, file=self.source.name, range=place, related=related))
            return
        message = f"`*{name}` refers to an anchor `&{name}`, and there is none above."
        help = f"If it is text, put quotes around it: {quoted('*' + name)}"
        self.faults.append(Diagnostic("S107", message, file=self.source.name, range=place, help=help))

    # Collections

    def _open(self, event: Event) -> None:
        start = self._after_properties(event)
        place = self.source.span(start, start + 1)
        if len(self._frames) >= MAX_DEPTH:
            self._stop(too_deep(self.source.name, place))
        self._count(1, place)
        self._check_tag(event, start)
        if self._opens_braces(event):
            parent = self._frames[-1]
            third = len(self._frames) > 1 and self._frames[-2].braces and self._frames[-2].start == parent.start - 1
            parent.braces = True
            if not third:
                self.faults.append(braces_fault(self.source, parent.start))
        frame = Frame(event, start, self._nodes - 1, place.end)
        if event.anchor is not None:
            frame.anchor = self._declare(event, None, 0)
        self._frames.append(frame)

    def _opens_braces(self, event: Event) -> bool:
        """Whether this is the second half of `{{`: a mapping that starts right behind the brace of another one."""
        if not (event.kind == "mapping" and event.flow and self._expects_key()):
            return False
        parent = self._frames[-1]
        return parent.event.flow and event.start == parent.start + 1

    def _close(self, event: Event) -> Built:
        frame = self._frames.pop()
        start = self.source.position(frame.start)
        end = self.source.position(event.end) if frame.event.flow else max(frame.end, start)
        place = Range(start, end)
        if frame.event.kind == "sequence":
            node: Node = Sequence(tuple(frame.items), place)
        else:
            node = Mapping(tuple(merge_entries(frame)), place)
        built = Built(node, frame.height + 1, frame.merged, frame.braces)
        if frame.anchor is not None:
            frame.anchor.built, frame.anchor.size = built, self._nodes - frame.counted
        return built

    def _attach(self, built: Built) -> None:
        """Puts a finished node where it belongs: into the open collection, or at the root."""
        if not self._frames:
            self._root = built
            return
        frame = self._frames[-1]
        frame.height = max(frame.height, built.height)
        frame.end = max(frame.end, built.node.range.end)
        if frame.event.kind == "sequence":
            frame.items.append(built.node)
            frame.merged = frame.merged or built.merged
        elif frame.awaits_value:
            frame.awaits_value = False
            self._value(frame, built)
        else:
            frame.awaits_value = True
            frame.key = self._key(frame, built)

    def _key(self, frame: Frame, built: Built) -> Scalar | None:
        """The key's node; None when it is refused and its value goes nowhere."""
        node = built.node
        if not isinstance(node, Scalar):
            if not built.braces and not frame.braces:
                message = "A key must be a piece of text, not a list or a mapping."
                help = "If this is one text, put quotes around all of it."
                self.faults.append(Diagnostic("S110", message, file=self.source.name, range=node.range, help=help))
            return None
        first = frame.first_written.get(node.text)
        if first is not None:
            related = (Related("first written here", first.range),)
            message = f"The key `{_short(node.text)}` is written twice in this mapping."
            help = "Remove one of them, or start a new list item with `- `."
            self.faults.append(
                Diagnostic("S103", message, file=self.source.name, range=node.range, help=help, related=related)
            )
            return None
        frame.first_written[node.text] = node
        return Scalar(node.text, node.text, node.style, node.range)

    def _value(self, frame: Frame, built: Built) -> None:
        key, frame.key = frame.key, None
        if key is None:
            return
        if key.text == "<<" and key.style == "plain":
            self._merge(frame, built, key)
        else:
            frame.entries.append(Entry(key, built.node))

    def _merge(self, frame: Frame, built: Built, key: Scalar) -> None:
        frame.merged, frame.merge_at = True, len(frame.entries)
        node = built.node
        candidates = list(node.items) if isinstance(node, Sequence) else [node]
        mappings = [item for item in candidates if isinstance(item, Mapping)]
        if len(mappings) != len(candidates):
            message = "`<<` takes a mapping, or a list of mappings."
            help = "Write `<<: *name`, where `&name` marks a mapping above."
            self.faults.append(Diagnostic("S106", message, file=self.source.name, range=node.range, help=help))
        elif built.merged:
            message = "What `<<` takes here has a `<<` of its own. Only one level is allowed."
            help = "Write the keys out, or put them into `defs` and refer to them by name."
            self.faults.append(Diagnostic("S106", message, file=self.source.name, range=key.range, help=help))
        else:
            frame.merges.extend(mappings)

    # Bookkeeping

    def _expects_key(self) -> bool:
        frame = self._frames[-1] if self._frames else None
        return frame is not None and frame.event.kind == "mapping" and not frame.awaits_value

    def _after_properties(self, event: Event) -> int:
        """Where the node itself starts, behind its anchor and tag."""
        if event.anchor is None and event.tag is None:
            return event.start
        found = _PROPERTIES.match(self.source.text, event.start)
        after = found.end() if found else event.start
        return min(after, event.end) if event.kind == "scalar" else after

    def _declare(self, event: Event, built: Built | None, size: int) -> Anchor:
        at = self.source.text.find(f"&{event.anchor}", event.start)
        anchor = Anchor(self.source.span(at, at + 1 + len(event.anchor or "")), built, size)
        self._anchors[event.anchor or ""] = anchor
        self._all_anchors.append(anchor)
        return anchor

    def _check_tag(self, event: Event, end: int) -> None:
        if event.tag is None:
            return
        found = _TAG.search(self.source.text, event.start)
        start, stop = found.span() if found else (event.start, event.start + 1)
        whole = self.source.text[start:end]
        help = "Remove the tag."
        if event.kind == "scalar" and event.style == "plain" and "\n" not in whole:
            help = f"If it is text, put quotes around it: {quoted(whole)}"
        tag = self.source.text[start:stop]
        self._fault("S104", f"`{_short(tag)}` is a YAML tag, and tags are not allowed.", start, stop, help)

    def _several_documents(self, event: Event) -> None:
        message = "A second document starts here. A file holds one program."
        help = "Remove the line `---`, or move what follows into a file of its own."
        self._fault("S105", message, event.start, max(event.end, event.start + 1), help)
        raise _Stop

    def _syntax(self, fault: SyntaxFault) -> None:
        found = explain_fault(self.source, fault)
        line = found.range.start.line if found.range else 0
        # Text after an unquoted `{{ x }}` is the same mistake, told once.
        if not any(f.code == "S207" and f.range and f.range.start.line == line for f in self.faults):
            self.faults.append(found)

    def _count(self, nodes: int, place: Range) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            self._stop(too_many(self.source.name, place))

    def _fault(self, code: str, message: str, start: int, end: int, help: str | None) -> None:
        place = self.source.span(start, end)
        self.faults.append(Diagnostic(code, message, file=self.source.name, range=place, help=help))

    def _stop(self, fault: Diagnostic) -> None:
        self.faults.append(fault)
        raise _Stop


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"

"""The layout of YAML documents.

The document is read as events and written anew from them: structure by our rules, texts as they were written, and
between them the comments and blank lines of the author. What lies between two events of YAML is white space, comments
and punctuation; only the first two are looked at, for the punctuation follows from the structure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sglspec.document.layout_json import INDENT, WIDTH
from sglspec.document.nodes import LONE_STEPS, Source
from sglspec.document.yaml_events import Event, read_events

_PROPERTIES = re.compile(r"&[0-9A-Za-z_-]+(?:[ \t\n]+(?:#[^\n]*\n[ \t\n]*)*)?")
_GAP = re.compile(r"(?P<blank>[ \t\n]+)|(?P<comment>#[^\n]*)|(?P<mark>^(?:%[^\n]*|---(?=\s|\Z)))|.", re.MULTILINE)
_EMPTY_LINE = re.compile(r"\n[ \t]*\n")
_HEADER = re.compile(r"([|>])([-+0-9]*)([^\n]*)")
# A text that reads the same without its quotes, in any version of YAML: words and the punctuation of prose.
_BARE = re.compile(r"[^\W\d](?:[\w .;!?'()/+-]*[\w.!?)])?")
_BARE_IN_BLOCK = re.compile(r"[^\W\d](?:[\w .,;!?'()/+-]*[\w.!?)])?")
_WORDS_OF_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def lay_out_yaml(source: Source) -> str:
    """The text of a document that can be read. Line breaks are line feeds, in and out."""
    return _Writer(source.text).document(_tree(source.text))


@dataclass(slots=True)
class _Item:
    """A node as it was written: its event, where it starts behind an anchor, where it ends, and what it holds (of a
    mapping keys and values in turn). `leaves` counts all the way down."""

    event: Event
    start: int
    end: int
    held: list[_Item] = field(default_factory=list["_Item"])
    leaves: int = 1

    @property
    def empty(self) -> bool:
        """Nothing was written where a value could stand."""
        return self.event.kind == "scalar" and self.event.style == "plain" and not self.event.value

    @property
    def quoted(self) -> bool:
        return self.event.kind == "scalar" and self.event.style in ("single", "double")

    @property
    def pairs(self) -> Iterator[tuple[_Item, _Item]]:
        return zip(self.held[::2], self.held[1::2], strict=True)


def _tree(text: str) -> _Item:
    open_items: list[_Item] = []
    root: _Item | None = None
    for event in read_events(text):
        if event.kind == "document":
            continue
        if event.kind == "end":
            closed = open_items.pop()
            closed.end = event.end
            closed.leaves = sum(item.leaves for item in closed.held)
            continue
        found = _PROPERTIES.match(text, event.start) if event.anchor is not None and event.kind != "alias" else None
        item = _Item(event, min(found.end(), event.end) if found else event.start, event.end)
        if event.kind in ("sequence", "mapping") and found:
            item.start = found.end()
        if open_items:
            open_items[-1].held.append(item)
        else:
            root = item
        if event.kind in ("sequence", "mapping"):
            open_items.append(item)
    assert root is not None, "a document that can be read is not empty"
    return root


@dataclass(frozen=True, slots=True)
class _Level:
    """The column of a block collection, as it was and as it is written."""

    was: int
    column: int


class _Writer:
    """Writes the document, line by line. `_at` is how far the author's text has been taken over."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: list[str] = []
        self._line = ""
        self._blank = False
        self._levels: list[_Level] = []
        self._closed: list[_Level] = []

    def document(self, root: _Item) -> str:
        if self._in_block(root, 0):
            self._advance(root.event.start, 0)
            self._block_or_anchor(root, 0)
        else:
            self._begin_line(root.event.start, 0)
            self._leaf(root, 0, bare=True)
        self._advance(len(self._text), 0, end=True)
        self._flush()
        return "\n".join(self._lines) + "\n"

    # Structure

    def _block_or_anchor(self, item: _Item, indent: int) -> None:
        """A collection whose first line begins a line of its own."""
        self._anchor(item, indent)
        self._block(item, indent, inline=False)

    def _block(self, item: _Item, indent: int, *, inline: bool) -> None:
        """A collection, one line or more for each thing in it. `inline`: the first goes on behind a `- `."""
        self._levels.append(_Level(self._column(item.start), indent))
        if item.event.kind == "mapping":
            self._block_mapping(item, indent, inline)
        else:
            self._block_sequence(item, indent, inline)
        self._closed.append(self._levels.pop())

    def _block_mapping(self, item: _Item, indent: int, inline: bool) -> None:
        for number, (key, value) in enumerate(item.pairs):
            start = key.event.start if not key.empty else self._at
            if inline and number == 0:
                self._join(start, indent, "")
            else:
                self._begin_line(start, indent)
            self._line += self._key(key) + ":"
            if not key.empty:
                self._at = key.end
            self._value(value, indent, bare=True)

    def _block_sequence(self, item: _Item, indent: int, inline: bool) -> None:
        bare = self._all_bare(item, in_block=True)
        for number, value in enumerate(item.held):
            start = value.event.start if item.event.flow else self._dash()
            if inline and number == 0:
                self._join(start, indent, "")
            else:
                self._begin_line(start, indent)
            self._line += "-"
            if not item.event.flow:
                self._at = start + 1
            if self._in_block(value, indent + INDENT) and value.event.anchor is None:
                self._line += " "
                self._block(value, indent + INDENT, inline=True)
            else:
                self._value(value, indent, bare=bare)

    def _value(self, item: _Item, indent: int, *, bare: bool) -> None:
        """What follows a `key:` or a `-` of a collection at `indent`."""
        if self._in_block(item, indent):
            self._block_or_anchor(item, indent + INDENT)
        else:
            self._leaf(item, indent, bare=bare)

    def _anchor(self, item: _Item, indent: int) -> None:
        if item.event.anchor is not None and item.event.kind != "alias":
            self._join(item.event.start, indent, " " if self._line.strip(" ") else "")
            self._line += f"&{item.event.anchor}"

    def _leaf(self, item: _Item, indent: int, *, bare: bool) -> None:
        """A scalar, an alias, or a collection on one line."""
        self._anchor(item, indent + INDENT)
        if item.empty:
            return
        self._join(item.start, indent + INDENT, " " if self._line.strip(" ") else "")
        if item.event.style in ("literal", "folded"):
            self._block_scalar(item, indent)
            return
        first, *others = self._inline(item, in_block=True, bare=bare).split("\n")
        self._line += first
        for line in others:
            self._lines.append(self._line)
            stripped = line.lstrip(" \t")
            self._line = " " * (indent + INDENT) + stripped if stripped else ""
        # what is inside the brackets of an empty collection may be a comment
        hollow = item.event.kind in ("sequence", "mapping") and not item.held
        self._at = item.start + 1 if hollow else item.end

    def _in_block(self, item: _Item, indent: int) -> bool:
        """Whether a collection is written in lines: it was, or it does not fit on one line."""
        if item.event.kind not in ("sequence", "mapping") or not item.held:
            return False
        if not item.event.flow or "\n" in self._text[item.start : item.end]:
            return True
        if item.leaves > WIDTH:
            return True
        column = max(len(self._line), indent) + 1
        return column + len(self._inline(item, in_block=True, bare=True)) > WIDTH

    # Texts

    def _inline(self, item: _Item, *, in_block: bool, bare: bool) -> str:
        """A node as it stands in a line; `bare`: quotes may go."""
        event = item.event
        if event.kind == "sequence":
            all_bare = self._all_bare(item, in_block=False)
            return "[" + ", ".join(self._in_flow(value, all_bare) for value in item.held) + "]"
        if event.kind == "mapping":
            return "{" + ", ".join(self._flow_pair(key, value) for key, value in item.pairs) + "}"
        written = self._text[item.start : item.end]
        if not item.quoted or "\n" in written:
            return written
        # behind an anchor quotes stay: `&x a` looks as if `&x` belonged to the text
        if bare and event.anchor is None and _bare(event.value, in_block=in_block):
            return event.value
        if event.style == "single" and not set(event.value) & {'"', "\\"}:
            return f'"{event.value}"'
        return written

    def _in_flow(self, item: _Item, bare: bool) -> str:
        anchor = f"&{item.event.anchor} " if item.event.anchor is not None and item.event.kind != "alias" else ""
        return (anchor + self._inline(item, in_block=False, bare=bare)).rstrip(" ")

    def _flow_pair(self, key: _Item, value: _Item) -> str:
        if value.empty and value.event.anchor is None:
            return self._key(key)
        return f"{self._key(key)}: {self._in_flow(value, True)}"

    def _key(self, key: _Item) -> str:
        anchor = f"&{key.event.anchor} " if key.event.anchor is not None and key.event.kind != "alias" else ""
        if key.event.kind == "alias":
            return self._text[key.start : key.end] + " "  # the colon would belong to its name
        if key.empty or "\n" in self._text[key.start : key.end]:
            name = key.event.value
            return anchor + (name if _bare(name, in_block=False) else json.dumps(name, ensure_ascii=False))
        return anchor + self._inline(key, in_block=False, bare=True)

    def _all_bare(self, item: _Item, *, in_block: bool) -> bool:
        """Whether no text of a list needs its quotes: a list keeps all of them or none."""
        texts = [value.event.value for value in item.held if value.quoted]
        return all(_bare(text, in_block=in_block) and text not in LONE_STEPS for text in texts)

    def _block_scalar(self, item: _Item, indent: int) -> None:
        """A text in lines of its own. They are moved, and otherwise stay as they are."""
        header = _HEADER.match(self._text, item.start)
        assert header is not None
        body = header.end() + 1
        digits, chomp = re.sub("[-+]", "", header[2]), re.sub("[0-9]", "", header[2])
        depth = self._depth(body, digits)
        kept: list[str] = []
        end = body  # where the line after the last one that is kept starts
        content = 0
        for start, line in self._lines_from(body):
            if line.strip(" ") and _indent_of(line) < depth:
                break
            kept.append(line[depth:])
            if kept[-1] or chomp == "+":
                content, end = len(kept), start + len(line) + 1
        else:
            if not item.event.value.endswith("\n"):
                chomp = "-"  # a document without a last line break gets one
        self._line += f"{header[1]}{INDENT if digits else ''}{chomp}{header[3]}"
        self._flush()
        inner = " " * (indent + INDENT)
        self._lines += [inner + line if line else "" for line in kept[:content]]
        self._at = min(end - 1, len(self._text))

    def _depth(self, body: int, digits: str) -> int:
        """By how much the lines of a block scalar are indented: as its header says, or as the deepest of its
        lines up to the first one that is not empty."""
        parent = self._levels[-1].was if self._levels else -1
        if digits:
            return max(parent, 0) + int(digits)
        depth = parent + 1
        for _, line in self._lines_from(body):
            depth = max(depth, _indent_of(line))
            if line.strip(" "):
                break
        return depth

    def _lines_from(self, start: int) -> Iterator[tuple[int, str]]:
        """The lines from an offset on, each with its own."""
        while start < len(self._text):
            end = self._text.find("\n", start)
            end = len(self._text) if end < 0 else end
            yield start, self._text[start:end]
            start = end + 1

    # What lies between

    def _join(self, until: int, indent: int, between: str) -> None:
        """Go on in the same line, unless there is a comment in the way."""
        if self._advance(until, indent):
            self._begin_line(until, indent)
        else:
            self._line += between

    def _begin_line(self, until: int, indent: int) -> None:
        self._advance(until, indent)
        self._flush()
        if self._blank and self._lines:
            self._lines.append("")
        self._blank = False
        self._line = " " * indent

    def _advance(self, until: int, indent: int, *, end: bool = False) -> bool:
        """Take over the comments up to `until`, where something at `indent` follows. Whether there were any."""
        start, self._at = self._at, max(until, self._at)
        found = False
        blank = ""
        level = _Level(-1 if end else self._column(until), indent)
        for match in _GAP.finditer(self._text, start, max(until, start)):
            if match["blank"]:
                blank += match["blank"]
                continue
            comment = match["comment"] or (match["mark"] if not self._levels and not self._closed else None)
            if comment is None:
                blank = ""
                continue
            column = self._column(match.start())
            if self._line.strip(" ") and self._text.find("\n", start, match.start()) < 0:
                space = blank.replace("\t", " ") or "  "
                self._line = self._line.rstrip(" ") + space + comment.rstrip(" \t")
            else:
                self._begin_comment(blank, self._comment_column(column, level))
                self._line += comment.rstrip(" \t")
            found, blank = True, ""
        self._blank = (self._blank and not found and not blank) or _EMPTY_LINE.search(blank) is not None
        self._closed.clear()
        return found

    def _begin_comment(self, blank: str, column: int) -> None:
        self._flush()
        if _EMPTY_LINE.search(blank) and self._lines:
            self._lines.append("")
        self._line = " " * column

    def _comment_column(self, column: int, following: _Level) -> int:
        """Comments belong to what follows, unless they stand deeper, under what has just ended."""
        best = following
        for level in sorted(self._closed, key=lambda level: level.column):
            if best.was < level.was <= column and level.column > best.column:
                best = level
        return best.column

    def _flush(self) -> None:
        if self._line.strip(" "):
            self._lines.append(self._line.rstrip(" "))
        self._line = ""

    def _dash(self) -> int:
        """Where the next item of a list has its `-`."""
        for match in _GAP.finditer(self._text, self._at):
            if match[0] == "-":
                return match.start()
        raise AssertionError("an item of a block list has a dash")

    def _column(self, offset: int) -> int:
        return offset - self._text.rfind("\n", 0, offset) - 1


def _bare(text: str, *, in_block: bool) -> bool:
    pattern = _BARE_IN_BLOCK if in_block else _BARE
    return pattern.fullmatch(text) is not None and text.lower() not in _WORDS_OF_YAML


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))

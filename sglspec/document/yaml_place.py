"""A place where the YAML parser stopped, with what stands around it."""

from __future__ import annotations

import re

from sglspec.diagnostics import Diagnostic, Related
from sglspec.document.nodes import Source
from sglspec.document.yaml_events import SyntaxFault

VALUE = re.compile(r"[ \t]*(?:[-?][ \t]+)*(?:[^\s:#\"'\[{][^:#]*:[ \t]+)?")
FIRST_KEY = re.compile(r"[ \t]*(?:[-?][ \t]+)*(?:[^\s#\"'\[{&*!|>%@`-][^:#]*|\"[^\"]*\"|'[^']*')[ \t]*:[ \t]+\S")
COMMENT = re.compile(r"[ \t]#")
LONGEST_QUOTE = 60
BLANKS = " \t\r"


def quoted(text: str) -> str:
    """`text` in YAML quotes, double ones where nothing in it needs escaping."""
    if '"' in text or "\\" in text:
        return "'" + text.replace("'", "''") + "'"
    return f'"{text}"'


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


class Place:
    """Where the parser stopped, and what stands around it."""

    def __init__(self, source: Source, fault: SyntaxFault) -> None:
        self.source = source
        self.problem = fault.problem
        self.context = fault.context
        self.index = min(fault.index, len(source.text))
        self.opened = self.index if fault.context_index is None else min(fault.context_index, len(source.text))
        position = source.position(self.index)
        self.line = source.lines[position.line - 1].rstrip("\r")
        self.line_number = position.line
        self.line_start = self.index - position.column + 1
        self.column = position.column - 1
        self.before = self.line[: self.column]
        self.at = source.text[self.index : self.index + 1]
        self.at_end = not source.text[self.index :].strip()

    def has(self, *words: str) -> bool:
        """Whether the parser's problem uses one of these words."""
        return any(word in self.problem for word in words)

    def value(self, line: str | None = None) -> tuple[int, str]:
        """The value on the line (behind `- ` and `key: `), with its column from 0."""
        line = self.line if line is None else line
        match = VALUE.match(line)
        start = match.end() if match else 0
        return start, line[start:].rstrip()

    def quote_help(self) -> str:
        """The fix "put quotes around it", with the value from this line where it is short."""
        _, value = self.value()
        if 0 < len(value) <= LONGEST_QUOTE:
            return f"Put quotes around the text: {quoted(value)}"
        return "Put quotes around the text, or start it on the next line after `|`."

    def previous_line(self) -> str:
        """The nearest line above that is neither empty nor a comment."""
        for line in reversed(self.source.lines[: self.line_number - 1]):
            if line.strip() and not line.lstrip().startswith("#"):
                return line.rstrip("\r")
        return ""

    def say(
        self,
        message: str,
        help: str | None,
        *,
        code: str = "S101",
        start: int | None = None,
        end: int | None = None,
        related: tuple[Related, ...] = (),
    ) -> Diagnostic:
        """The diagnostic, at the parser's place unless told otherwise."""
        start = self.index if start is None else start
        end = start + 1 if end is None else max(end, start + 1)
        place = self.source.span(start, end)
        return Diagnostic(code, message, file=self.source.name, range=place, help=help, related=related)

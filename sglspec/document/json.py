"""JSON → nodes: RFC 8259 to the letter, with the place of every value, under the limits of language.md § 8."""

from __future__ import annotations

import re
from typing import NoReturn

from sglspec.diagnostics import Diagnostic, Range, Related, Report
from sglspec.document.bounds import MAX_DEPTH, MAX_NODES, too_deep, too_many
from sglspec.document.nodes import Entry, Mapping, Node, Primitive, Scalar, Sequence, Source
from sglspec.document.numbers import NumberError, decimal, integer

_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?(?![0-9A-Za-z_.+-])")
_CHUNK = re.compile(r'[^"\\\x00-\x1f]*')
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_WORD = re.compile(r"[^\s\[\]{}:,\"]+")
_WORDS: dict[str, Primitive] = {"true": True, "false": False, "null": None}
_WORDS_ELSEWHERE = {
    "True": "true",
    "False": "false",
    "None": "null",
    "undefined": "null",
    "nil": "null",
    "Null": "null",
}
_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity", "+Infinity"})
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CONTROLS = {"\n": "A line break", "\r": "A line break", "\t": "A tab"}
_WRITTEN = {"\n": "\\n", "\r": "\\n", "\t": "\\t"}


def read_json(source: Source, report: Report) -> Node | None:
    """The tree of a JSON document, or None when it has errors; they are added to `report`."""
    reader = _Reader(source)
    root = reader.read()
    report.extend(reader.faults)
    return None if reader.faults else root


class _Stop(Exception):
    """Nothing after this place can be read."""


class _Reader:
    """One document. A syntax fault ends the reading; a key written twice or a wrong number does not."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.faults: list[Diagnostic] = []
        self._text = source.text
        self._at = 0
        self._nodes = 0
        self._depth = 0

    def read(self) -> Node | None:
        """The root value."""
        try:
            self._skip()
            if self._at == len(self._text):
                self._fail("This document is empty.", "Start with `{`.", code="S112")
            root = self._value()
            self._skip()
            if self._at < len(self._text):
                self._fail(
                    "There is something after the end of the document.", "A file holds one program: one `{ … }`."
                )
            return root
        except _Stop:
            return None

    def _value(self) -> Node:
        character = self._text[self._at : self._at + 1]
        if character == "{":
            return self._object()
        if character == "[":
            return self._array()
        self._count()
        if character == '"':
            return self._string()
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            return self._number(number)
        return self._literal()

    def _object(self) -> Mapping:
        opened = self._open()
        entries: list[Entry] = []
        first_written: dict[str, Scalar] = {}
        while not self._closes("}", opened, bool(entries) or bool(first_written)):
            key = self._key()
            self._skip()
            if self._text[self._at : self._at + 1] != ":":
                self._fail("A `:` is missing after the key.", None, related=self._related("the key", key.range))
            self._at += 1
            self._skip()
            value = self._value()
            first = first_written.setdefault(key.text, key)
            if first is key:
                entries.append(Entry(key, value))
                continue
            message = f"The key `{_short(key.text)}` is written twice in this object."
            related = self._related("first written here", first.range)
            help = "Remove one of them."
            self.faults.append(
                Diagnostic("S103", message, file=self.source.name, range=key.range, help=help, related=related)
            )
        self._depth -= 1
        return Mapping(tuple(entries), self.source.span(opened, self._at))

    def _array(self) -> Sequence:
        opened = self._open()
        items: list[Node] = []
        while not self._closes("]", opened, bool(items)):
            items.append(self._value())
        self._depth -= 1
        return Sequence(tuple(items), self.source.span(opened, self._at))

    def _open(self) -> int:
        self._count()
        if self._depth >= MAX_DEPTH:
            self._stop(too_deep(self.source.name, self.source.span(self._at, self._at + 1)))
        self._depth += 1
        self._at += 1
        return self._at - 1

    def _closes(self, closing: str, opened: int, has_items: bool) -> bool:
        """Goes over a closing bracket (True), or over the comma in front of the next item (False)."""
        self._skip()
        character = self._text[self._at : self._at + 1]
        if character == closing:
            self._at += 1
            return True
        if character == "":
            self._never_closed(opened)
        if not has_items and character != ",":
            return False
        if character != ",":
            place = self.source.span(opened, opened + 1)
            help = 'Check for a missing comma, or for a quote inside a text: there it is written \\".'
            self._fail(f"A comma or `{closing}` is missing here.", help, related=self._related("opened here", place))
        comma = self._at
        self._at += 1
        self._skip()
        if not has_items or self._text[self._at : self._at + 1] in (closing, ","):
            self._at = comma
            message = f"There is nothing between this comma and what follows. JSON allows no comma before `{closing}`."
            self._fail(message if has_items else "There is nothing before this comma.", "Remove the comma.")
        if self._at == len(self._text):
            self._never_closed(opened)
        return False

    def _never_closed(self, opened: int) -> NoReturn:
        self._at = opened
        mark = self._text[opened]
        self._fail(f"`{mark}` opens here and is never closed.", f"Add the closing `{'}' if mark == '{' else ']'}`.")

    def _key(self) -> Scalar:
        self._count()
        if self._text[self._at : self._at + 1] == '"':
            return self._string()
        word = _WORD.match(self._text, self._at)
        if word is None:
            self._fail("A key must be a text in double quotes.", None, code="S110")
        self._comment_or_quote(word[0])
        self._fail("A key needs double quotes in JSON.", f'Write "{_short(word[0])}".', length=len(word[0]))

    def _string(self) -> Scalar:
        start = self._at
        parts: list[str] = []
        self._at += 1
        while True:
            chunk = _CHUNK.match(self._text, self._at)
            if chunk is not None and chunk.end() > self._at:
                parts.append(chunk[0])
                self._at = chunk.end()
            character = self._text[self._at : self._at + 1]
            if character == '"':
                self._at += 1
                break
            if character == "\\":
                parts.append(self._escape())
            elif character == "" or (character in "\r\n" and not self._closed_later()):
                self._at = start
                self._fail("A quote opens here and is never closed.", 'Add the closing " at the end of the text.')
            else:
                name = _CONTROLS.get(character, f"The character U+{ord(character):04X}")
                written = _WRITTEN.get(character, f"\\u{ord(character):04x}")
                self._fail(f"{name} cannot stand inside a JSON text.", f"Write it as {written}.")
        text = "".join(parts)
        place = self.source.span(start, self._at)
        if any("\ud800" <= character <= "\udfff" for character in text):
            message = "This text has half of a character: an escape from \\uD800 to \\uDFFF without its other half."
            self.faults.append(Diagnostic("S113", message, file=self.source.name, range=place))
        return Scalar(text, text, "json", place)

    def _closed_later(self) -> bool:
        """Whether a text that runs over a line end looks as if it were meant to: the next line closes it."""
        line_end = self._text.find("\n", self._at + 1)
        line = self._text[self._at + 1 : line_end if line_end >= 0 else len(self._text)]
        return line.count('"') % 2 == 1

    def _escape(self) -> str:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter != "u":
            if letter not in _ESCAPES or not letter:
                shown = f"\\{letter}".rstrip()
                self._fail(f"`{shown}` is not an escape that JSON knows.", "Write a backslash as \\\\.", length=2)
            self._at += 2
            return _ESCAPES[letter]
        code = self._code_unit(self._at)
        self._at += 6
        if 0xD800 <= code < 0xDC00 and self._text.startswith("\\u", self._at):
            low = self._code_unit(self._at)
            if 0xDC00 <= low < 0xE000:
                self._at += 6
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
        return chr(code)

    def _code_unit(self, at: int) -> int:
        digits = _HEX.match(self._text, at + 2)
        if digits is None:
            self._at = at
            self._fail("`\\u` needs 4 hexadecimal digits after it.", None, length=2)
        return int(digits[0], 16)

    def _number(self, match: re.Match[str]) -> Scalar:
        text = match[0]
        place = self.source.span(match.start(), match.end())
        self._at = match.end()
        value: Primitive = text
        try:
            value = decimal(text) if match[1] or match[2] else integer(text)
        except NumberError as error:
            help = f'If it is text, put quotes around it: "{text}"' if len(text) <= 40 else "Quote it if it is text."
            self.faults.append(Diagnostic("S108", str(error), file=self.source.name, range=place, help=help))
        return Scalar(value, text, "json", place)

    def _literal(self) -> Scalar:
        found = _WORD.match(self._text, self._at)
        if found is None:
            character = self._text[self._at : self._at + 1]
            if not character:
                self._fail("A value is missing at the end of the document.", None)
            self._fail("A value is missing here.", None)
        word = found[0]
        if word in _WORDS:
            place = self.source.span(self._at, self._at + len(word))
            self._at += len(word)
            return Scalar(_WORDS[word], word, "json", place)
        self._comment_or_quote(word)
        if word in _NOT_FINITE:
            self._fail(f"JSON has no `{word}`.", "Use a number, or null.", length=len(word))
        if word in _WORDS_ELSEWHERE:
            self._fail(f"JSON has no `{word}`.", f"Write {_WORDS_ELSEWHERE[word]}.", length=len(word))
        if re.match(r"[-+.]?[0-9]", word):
            help = "No leading zeros, no `+`, a digit on both sides of the point. Text needs double quotes."
            self._fail(f"`{_short(word)}` is not a number in JSON.", help, length=len(word))
        self._fail("A text needs double quotes in JSON.", f'Put quotes around it: "{_short(word)}"', length=len(word))

    def _comment_or_quote(self, word: str) -> None:
        """The two faults that stand for keys and for values alike."""
        if word.startswith(("//", "/*", "#")):
            help = "Remove it, write a `note`, or use a YAML file: there a comment starts with `#`."
            self._fail("JSON has no comments.", help, length=len(word))
        if word[0] in "'‘’“”`":
            self._fail("A text in JSON stands in double quotes.", f'Write " instead of {word[0]}.')

    def _skip(self) -> None:
        blank = _BLANK.match(self._text, self._at)
        if blank is not None:
            self._at = blank.end()
        if self._text.startswith(("//", "/*", "#"), self._at):
            self._comment_or_quote(self._text[self._at : self._at + 2])

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._stop(too_many(self.source.name, self.source.span(self._at, self._at + 1)))

    def _related(self, message: str, place: Range) -> tuple[Related, ...]:
        return (Related(message, place),)

    def _fail(
        self,
        message: str,
        help: str | None,
        *,
        code: str = "S102",
        length: int = 1,
        related: tuple[Related, ...] = (),
    ) -> NoReturn:
        place = self.source.span(self._at, self._at + length)
        self._stop(Diagnostic(code, message, file=self.source.name, range=place, help=help, related=related))

    def _stop(self, fault: Diagnostic) -> NoReturn:
        self.faults.append(fault)
        raise _Stop


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"

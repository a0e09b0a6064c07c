"""From a place inside a scalar's text back to the place in the document, for every way to write a scalar."""

from __future__ import annotations

from sglspec.diagnostics import Position, Range
from sglspec.document.nodes import Scalar, Source, Style

_FIRST: dict[Style, str] = {"single": "'", "double": '"', "literal": "|", "folded": ">", "json": ""}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "\t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
_ALL_INDENTED = 1 << 30

_Character = tuple[str, int, int]
"""A character of the text, and the offsets in the source that it comes from."""


def locate(source: Source, scalar: Scalar, offset: int) -> Position:
    """Where the character `scalar.text[offset]` stands in the document; the end of the text for larger offsets.

    A scalar that an alias brought in stands where the alias stands.
    """
    return locate_range(source, scalar, offset, offset).start


def locate_range(source: Source, scalar: Scalar, start: int, end: int) -> Range:
    """Where `scalar.text[start:end]` stands in the document."""
    return Locator(source).range(scalar, start, end)


class Locator:
    """Finds places in one document. It remembers the last scalar, since errors of one text come together."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._last: tuple[Scalar, list[_Character] | None] | None = None

    def range(self, scalar: Scalar, start: int, end: int) -> Range:
        """As `locate_range`."""
        if self._last is None or self._last[0] is not scalar:
            self._last = scalar, _characters(self._source, scalar)
        return _range(self._source, scalar, self._last[1], start, end)


def _range(source: Source, scalar: Scalar, characters: list[_Character] | None, start: int, end: int) -> Range:
    if characters is None:
        return scalar.range
    first = _offset(source, scalar, characters, start)
    last = characters[min(end, len(characters)) - 1][2] if end > start and characters else first
    return source.span(first, max(first, last))


def _offset(source: Source, scalar: Scalar, characters: list[_Character], index: int) -> int:
    if index < len(characters):
        return characters[max(index, 0)][1]
    if characters:
        return characters[-1][2]
    opening = source.offset(scalar.range.start)
    return opening + 1 if source.text[opening : opening + 1] in ("'", '"') else opening


def _characters(source: Source, scalar: Scalar) -> list[_Character] | None:
    """Every character of `scalar.text` with its place; None if the scalar is not written at its range."""
    text, start = source.text, source.offset(scalar.range.start)
    end = source.offset(scalar.range.end)
    if text[start : start + 1] == "*" or not text.startswith(_FIRST.get(scalar.style, ""), start):
        return None
    match scalar.style:
        case "plain":
            found = [_flow(text, start, end, "plain")]
        case "single" | "double":
            found = [_flow(text, start + 1, end - 1, scalar.style)]
        case "literal" | "folded":
            wanted = scalar.text
            found = [_block(text, start, indent, wanted) for indent in _indents(text, start)]
        case "json":
            found = [_json(text, start, end)]
    return next((one for one in found if _spelled(one) == scalar.text), None)


def _spelled(characters: list[_Character]) -> str:
    return "".join([character for character, _, _ in characters])


def _flow(text: str, start: int, end: int, style: Style) -> list[_Character]:
    """Plain and quoted scalars: blanks around line breaks go, one break is a space, more are one fewer."""
    out: list[_Character] = []
    at = start
    while at < end:
        character = text[at]
        if character in " \t\r\n":
            at = _fold(text, at, end, out)
        elif style == "single" and character == "'":
            out.append(("'", at, at + 2))
            at += 2
        elif style == "double" and character == "\\":
            at = _escape(text, at, end, out)
        else:
            out.append((character, at, at + 1))
            at += 1
    return out


def _fold(text: str, start: int, end: int, out: list[_Character]) -> int:
    """A run of blanks and line breaks."""
    blanks: list[_Character] = []
    breaks: list[_Character] = []
    at = start
    while at < end and text[at] in " \t\r\n":
        if text[at] in "\r\n":
            after = _after_break(text, at)
            breaks.append(("\n", at, after))
        else:
            after = at + 1
            blanks.append((text[at], at, after))
        at = after
    if not breaks:
        out.extend(blanks)
    elif len(breaks) == 1:
        out.append((" ", breaks[0][1], breaks[0][2]))
    else:
        out.extend(breaks[1:])
    return at


def _escape(text: str, start: int, end: int, out: list[_Character]) -> int:
    """One escape of a double-quoted scalar, a broken line included."""
    letter = text[start + 1 : start + 2]
    if letter in ("\r", "\n"):
        at = _after_break(text, start + 1)
        while at < end and text[at] in " \t\r\n":
            if text[at] in "\r\n":
                after = _after_break(text, at)
                out.append(("\n", at, after))
                at = after
            else:
                at += 1
        return at
    digits = _HEX_ESCAPES.get(letter, 0)
    stop = start + 2 + digits
    out.append((chr(int(text[start + 2 : stop], 16)) if digits else _ESCAPES.get(letter, letter), start, stop))
    return stop


def _indents(text: str, start: int) -> list[int]:
    """The indentations that a block scalar may have, likeliest first."""
    header_end = text.find("\n", start)
    header = text[start : header_end if header_end >= 0 else len(text)].split("#")[0]
    widest, at = 0, header_end + 1 if header_end >= 0 else len(text)
    while at < len(text):
        line_end = text.find("\n", at)
        line = text[at : line_end if line_end >= 0 else len(text)].rstrip("\r")
        indent = len(line) - len(line.lstrip(" "))
        widest = max(widest, indent)
        if line.strip(" ") or line_end < 0:
            break
        at = line_end + 1
    explicit = any(character in "123456789" for character in header)
    likely = range(1, widest + 1) if explicit else (max(widest, 1),)
    return [*likely, _ALL_INDENTED]


def _block(text: str, start: int, indent: int, wanted: str) -> list[_Character]:
    """`|` and `>` scalars, the way libyaml's scanner goes through them (scanner.c, block scalars).

    Stops as soon as the wanted length is reached, so that the rest of the document costs nothing.
    """
    folded = text[start] == ">"
    header_end = _line_end(text, start)
    header = text[start:header_end].split("#")[0]
    out: list[_Character] = []
    line_break: list[_Character] = []
    leading_blank = False
    at = _after_break(text, header_end)
    at, empty = _empty_lines(text, at, indent)
    while at < len(text) and _indented(text, at, indent) and len(out) <= len(wanted):
        at += indent
        blank = text[at : at + 1] in (" ", "\t")
        if folded and line_break and not leading_blank and not blank:
            if not empty:
                out.append((" ", line_break[0][1], line_break[0][2]))
        else:
            out.extend(line_break)
        out.extend(empty)
        leading_blank = blank
        end = _line_end(text, at)
        out.extend((text[i], i, i + 1) for i in range(at, end))
        after = _after_break(text, end)
        line_break = [("\n", end, after)] if after > end else []
        at, empty = _empty_lines(text, after, indent)
    if "-" not in header:
        out.extend(line_break)
    if "+" in header:
        out.extend(empty)
    return out


def _empty_lines(text: str, at: int, indent: int) -> tuple[int, list[_Character]]:
    """Lines with nothing but (at most `indent`) spaces; returns where the next line starts."""
    breaks: list[_Character] = []
    while at < len(text):
        end = at
        while end < len(text) and text[end] == " " and end - at < indent:
            end += 1
        if end >= len(text) or text[end] not in "\r\n":
            break
        after = _after_break(text, end)
        breaks.append(("\n", end, after))
        at = after
    return at, breaks


def _indented(text: str, at: int, indent: int) -> bool:
    return indent < _ALL_INDENTED and at + indent < len(text) and text.startswith(" " * indent, at)


def _line_end(text: str, at: int) -> int:
    """The offset of the line break at or after `at`, or of the end of the text."""
    line_feed = text.find("\n", at)
    end = line_feed if line_feed >= 0 else len(text)
    carriage_return = text.find("\r", at, end)
    return carriage_return if carriage_return >= 0 else end


def _after_break(text: str, at: int) -> int:
    """The offset behind the line break at `at`; `at` itself if there is none."""
    if text.startswith("\r\n", at):
        return at + 2
    return at + 1 if text[at : at + 1] in ("\r", "\n") else at


_JSON_ESCAPES: dict[str, str] = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _json(text: str, start: int, end: int) -> list[_Character]:
    """A JSON string, or another scalar as it stands."""
    if text[start : start + 1] != '"':
        return [(text[i], i, i + 1) for i in range(start, end)]
    out: list[_Character] = []
    at = start + 1
    while at < end - 1:
        stop, character = at + 1, text[at]
        if character == "\\":
            letter = text[at + 1]
            stop, character = at + 2, _JSON_ESCAPES.get(letter, letter)
            if letter == "u":
                stop, code = at + 6, int(text[at + 2 : at + 6], 16)
                if 0xD800 <= code < 0xDC00:
                    low = int(text[at + 8 : at + 12], 16)
                    stop, code = at + 12, 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                character = chr(code)
        out.append((character, at, stop))
        at = stop
    return out

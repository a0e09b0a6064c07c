"""The YAML parser's complaints, said again for a person: by what stands at the place, with the fix.

The parser tells where it stopped and, roughly, why. What the author meant shows in the characters around that
place, so the messages are chosen by these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sglspec.diagnostics import Diagnostic, Related
from sglspec.document.bounds import too_deep
from sglspec.document.nodes import Source
from sglspec.document.yaml_events import SyntaxFault
from sglspec.document.yaml_place import BLANKS, COMMENT, FIRST_KEY, LONGEST_QUOTE, VALUE, Place, indent_of, quoted

_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_CHARACTERS = 10
_BRACES = re.compile(r"\{[{%]")

_Rule = Callable[["Place"], Diagnostic | None]


def forbidden_characters(source: Source) -> list[Diagnostic]:
    """S113 for the first characters that YAML does not allow."""
    found: list[Diagnostic] = []
    for match in _FORBIDDEN.finditer(source.text):
        code = ord(match[0])
        name = "half of a character" if 0xD800 <= code <= 0xDFFF else "a character that YAML does not allow"
        help = "Remove it."
        if code < 0x100:
            help = f"Remove it, or write it as `\\x{code:02x}` inside double quotes."
        place = source.span(match.start(), match.end())
        found.append(Diagnostic("S113", f"U+{code:04X} is {name}.", file=source.name, range=place, help=help))
        if len(found) == _MAX_CHARACTERS:
            break
    return found


def braces_fault(source: Source, start: int) -> Diagnostic:
    """S207 for the `{{` or `{%` at offset `start`."""
    line, column = source.position(start).line, source.position(start).column
    rest = source.lines[line - 1].rstrip("\r")[column - 1 :]
    before = source.lines[line - 1][: column - 1].rstrip()
    if before.endswith(("[", ",", "{")) or _inside_flow(before):
        closing = rest.find("}}")
        whole = rest[: closing + 2] if closing >= 0 else ""
    else:
        comment = COMMENT.search(rest)
        whole = (rest[: comment.start()] if comment else rest).rstrip()
    help = "Put quotes around the whole text, or start it on the next line after `|`."
    if 0 < len(whole) <= LONGEST_QUOTE and ("}}" in whole or "%}" in whole):
        written = whole.replace("{{{", "{{").replace("}}}", "}}") if whole.startswith("{{{") else whole
        help = f"Put quotes around it: {quoted(written)}"
    message = f"A text that starts with `{rest[:2]}` needs quotes: without them YAML reads a mapping, not a template."
    return Diagnostic("S207", message, file=source.name, range=source.span(start, start + 2), help=help)


def explain_fault(source: Source, fault: SyntaxFault) -> Diagnostic:
    """The one diagnostic for what stopped the parser."""
    place = Place(source, fault)
    for rule in _RULES:
        found = rule(place)
        if found is not None:
            return found
    return place.say(f"This is not valid YAML: {fault.problem or 'the parser stopped here'}.", None)


def _value_starts(line: str) -> Iterator[int]:
    """Where braces stand in a line and a value starts: after a dash or a key, or inside brackets. What stands before is
    counted from one to the next: a line may be long."""
    before = dict.fromkeys("\"'[]{}", 0)
    counted = 0
    for match in _BRACES.finditer(line):
        start = match.start()
        for mark in before:
            before[mark] += line.count(mark, counted, start)
        counted = start
        value = VALUE.match(line, 0, start)
        if value is not None and value.end() == start:
            yield start
            continue
        in_quotes = before['"'] % 2 or before["'"] % 2
        in_flow = before["["] > before["]"] or before["{"] > before["}"]
        if in_flow and not in_quotes:
            last = start - 1
            while last >= 0 and line[last].isspace():
                last -= 1
            if last >= 0 and line[last] in "[{,:":
                yield start


def _inside_flow(before: str) -> bool:
    return before.count("[") > before.count("]") or before.count("{") > before.count("}")


def _limits(place: Place) -> Diagnostic | None:
    if place.has("nesting", "depth"):
        return too_deep(place.source.name, place.source.span(place.index, place.index + 1))
    return None


def _tab(place: Place) -> Diagnostic | None:
    if place.at == "\t" or place.has("tab character"):
        message = "A tab cannot indent a line in YAML."
        help = "Use spaces. Most editors have a command that turns tabs into spaces."
        return place.say(message, help, code="S111")
    return None


def _braces(place: Place) -> Diagnostic | None:
    """An unquoted `{{ … }}` or `{% … %}` that YAML could not even read as a mapping."""
    within = "flow" in place.context or "quoted" in place.context
    for offset in sorted({place.index, place.opened if within else place.index}):
        position = place.source.position(offset)
        line_start = offset - position.column + 1
        line = place.source.lines[position.line - 1]
        for column in _value_starts(line):
            if line_start + column <= place.index:
                return braces_fault(place.source, line_start + column)
    return None


def _quotes(place: Place) -> Diagnostic | None:
    if "quoted scalar" not in place.context:
        return None
    if place.has("end of stream", "document indicator"):
        mark = place.source.text[place.opened : place.opened + 1]
        help = f"Add the closing {mark} at the end of the text."
        if mark == "'":
            help += " An apostrophe inside single quotes is written twice: ''"
        return place.say("A quote opens here and is never closed.", help, start=place.opened)
    backslash = place.source.text.rfind("\\", 0, place.index + 1)
    if backslash < place.opened:
        return None
    escape = place.source.text[backslash : backslash + 2]
    if place.has("unknown escape"):
        message = f"`{escape.rstrip()}` is not an escape that double quotes know."
        help = "Use single quotes: there a backslash is just a backslash. Or write the backslash twice."
        return place.say(message, help, start=backslash, end=backslash + 2)
    if place.has("hexadecimal", "hexdecimal"):
        digits = {"x": 2, "u": 4, "U": 8}.get(escape[1:], 4)
        return place.say(f"`{escape}` needs {digits} hexadecimal digits after it.", None, start=backslash)
    message = "This escape is not a character."
    help = "Write the character itself. Half-characters such as `\\ud83d` are not allowed in YAML."
    return place.say(message, help, code="S113", start=backslash, end=backslash + 2)


def _colon(place: Place) -> Diagnostic | None:
    if not place.has("mapping values are not allowed"):
        return None
    if FIRST_KEY.match(place.before + "."):
        return place.say("A text with a colon and a space in it needs quotes.", place.quote_help())
    start = place.line_start + len(place.line) - len(place.line.lstrip())
    previous = place.previous_line()
    indent, above = indent_of(place.line), indent_of(previous)
    if indent > above and (FIRST_KEY.match(previous) or place.value(previous)[0] > above):
        message = "This line is indented as if it belonged to the line above, but that line has its value already."
        help = f"Start it in column {_key_column(previous) + 1}, below the key above, or put quotes around a long text."
        return place.say(message, help, start=start, end=place.index)
    if previous.strip():
        message = "The line above this one is neither `key: value` nor a list item."
        return place.say(message, "Check the line above for a missing colon, and a space after it.", start=start)
    return place.say("A colon does not fit here.", place.quote_help())


def _first_character(place: Place) -> Diagnostic | None:
    """Values that start with a character that means something in YAML."""
    wrong_start = place.has("cannot start any token", "node content")
    block_list = place.has("sequence entries are not allowed")
    question = place.has("mapping keys are not allowed")
    if place.has("node content") and (place.at_end or place.at == "."):
        return place.say("Something is missing here.", None)
    if block_list and not place.before.strip():
        return _layout_message(place)
    if wrong_start or block_list or question:
        shown = "a backtick" if place.at == "`" else f"`{place.at}{' ' if block_list or question else ''}`"
        message = f"A text cannot start with {shown} unless it is quoted."
        help = place.quote_help()
        if block_list and re.search(r":[ \t]+$", place.before):
            help += ". A list starts on the line below its key"
        return place.say(message, help)
    return None


def _block(place: Place) -> Diagnostic | None:
    if "block scalar" not in place.context:
        return None
    mark = place.source.text[place.opened : place.opened + 1]
    if place.has("indentation"):
        message = f"`{mark}` takes an indentation from 1 to 9."
        return place.say(message, f"Write `{mark}` alone and start the text on the next line.", start=place.opened)
    _, value = place.value()
    message = f"After `{mark}` the text starts on the next line."
    help = f"Move the text to the next line, indented. Or, if it starts with `{mark}`, put quotes around it"
    help += f": {quoted(value)}" if len(value) <= LONGEST_QUOTE else "."
    return place.say(message, help, start=place.opened)


def _anchor(place: Place) -> Diagnostic | None:
    if "alias" not in place.context and "anchor" not in place.context:
        return None
    mark = place.source.text[place.opened : place.opened + 1]
    message = f"A text cannot start with `{mark}` unless it is quoted."
    return place.say(message, place.quote_help(), start=place.opened)


def _tag(place: Place) -> Diagnostic | None:
    if " a tag" in place.context or place.has("tag"):
        at = place.source.text.find("!", place.opened)
        start = at if 0 <= at <= place.index else place.index
        return place.say(
            "A text cannot start with `!` unless it is quoted.", place.quote_help(), code="S104", start=start
        )
    return None


def _flow(place: Place) -> Diagnostic | None:
    if "flow" not in place.context:
        return None
    mark = place.source.text[place.opened : place.opened + 1]
    closing = {"[": "]", "{": "}"}.get(mark, "]")
    same_line = place.source.position(place.opened).line == place.line_number
    if place.at_end or not same_line:
        message = f"`{mark}` opens here and is never closed."
        return place.say(message, f"Add the closing `{closing}`, or put quotes around a text.", start=place.opened)
    message = f"A comma or the closing `{closing}` is missing here."
    return place.say(message, "A text with brackets, commas or colons in it needs quotes.")


def _after_closing(place: Place) -> Diagnostic | None:
    """Text right behind a closing quote or bracket."""
    before = place.before.rstrip()
    if not place.has("expected key", "block end", "'-' indicator", "document start") or not before:
        return None
    last, value_start = before[-1], place.value()[0]
    whole = place.quote_help() if before != place.before else None  # `"no" == x` is one text with quotes in it
    end = place.line_start + len(place.line.rstrip(BLANKS))
    if place.at in ("]", "}"):
        return place.say(f"There is one `{place.at}` too many.", "Remove it, or put quotes around the text.")
    if last == "'" and before[:value_start].rstrip() != before:
        message = "The text in single quotes ends before this."
        help = "An apostrophe inside single quotes is written twice (''). Or use double quotes around the text."
        return place.say(message, whole or help, end=end)
    if last == '"':
        message = "The text in double quotes ends before this."
        help = 'A double quote inside double quotes is written \\". Or use single quotes around the text.'
        return place.say(message, whole or help, end=end)
    if last in "]}":
        return place.say(
            f"Text after `{last}`: a text that starts with a bracket needs quotes.", place.quote_help(), end=end
        )
    return None


def _after_the_end(place: Place) -> Diagnostic | None:
    if not place.has("document start"):
        return None
    end = place.line_start + len(place.line.rstrip(BLANKS))
    message = "The document is complete before this, and nothing can follow it."
    return place.say(message, "A document is a list of `key: value` lines, or one `{ … }`.", end=end)


def _layout(place: Place) -> Diagnostic | None:
    if place.has("expected key", "block end", "'-' indicator"):
        return _layout_message(place)
    return None


def _layout_message(place: Place) -> Diagnostic:
    """A line that does not stand below the ones above."""
    previous = place.previous_line()
    start = place.line_start + indent_of(place.line)
    end = place.line_start + len(place.line.rstrip(BLANKS))
    opened = place.source.position(place.opened)
    related = (
        Related("the lines above belong to what starts here", place.source.span(place.opened, place.opened + 1)),
    )
    if re.match(r"[ ]*-[A-Za-z]", previous):
        message = "The line above has no space after its `-`, so it is no list item."
        return place.say(message, "Write `- ` with a space.", start=start, end=end)
    if COMMENT.search(previous) and not FIRST_KEY.match(place.line) and not place.line.lstrip().startswith("- "):
        message = "A text cannot go on after a comment."
        help = "The ` #` in the line above ended the text. If it belongs to the text, put quotes around all of it."
        return place.say(message, help, start=start, end=end)
    if indent_of(place.line) == opened.column - 1:
        if place.at == "-":
            message = "A list item stands where the lines above are `key: value`."
            help = "Indent it below the key that it belongs to."
        else:
            message = "This stands where the lines above are list items."
            help = "Start it with `- `, or indent it below the item that it belongs to."
        return place.say(message, help, start=start, end=end, related=related)
    message = "The indentation of this line fits none of the lines above."
    help = "Lines that belong together start in the same column."
    return place.say(message, help, start=start, end=end, related=related)


def _simple_key(place: Place) -> Diagnostic | None:
    if not place.has("could not find expected ':'", "':'"):
        return None
    line = place.source.position(place.opened).line
    end = place.source.offset(place.source.position(place.opened)) + len(place.source.lines[line - 1].strip())
    message = "This line is neither `key: value` nor a list item."
    help = "If it goes on with the text above, indent it more than the key, or start the text with `|`."
    return place.say(message, help, start=place.opened, end=end)


def _directive(place: Place) -> Diagnostic | None:
    if "directive" in place.context or place.line.startswith("%") or place.has("YAML document"):
        message = "A line that starts with `%` is an instruction to the YAML reader, and this one is not known."
        return place.say(message, "Remove the line, or put quotes around the text.", start=place.line_start)
    return None


_RULES: tuple[_Rule, ...] = (
    _limits,
    _tab,
    _braces,
    _quotes,
    _colon,
    _block,
    _anchor,
    _tag,
    _simple_key,
    _directive,
    _first_character,
    _flow,
    _after_closing,
    _after_the_end,
    _layout,
)


def _key_column(line: str) -> int:
    """Where the key on the line starts, behind list dashes; from 0."""
    match = re.match(r"[ ]*(?:-[ ]+)*", line)
    return match.end() if match else 0

"""Library functions over text."""

from __future__ import annotations

import re

from sglspec.expressions.errors import ArgumentProblem
from sglspec.expressions.function import (
    Context,
    Function,
    as_integer,
    as_list,
    as_text,
    folded,
    function,
    item_at,
)
from sglspec.expressions.values import Value, char_width, describe, equal, text_width, value_to_text

_WORD_START = re.compile(r"([-\s({\[<]+)")
_ASCII_SPACE = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"
_WIDE_SPACE = "\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

MAX_INDENT = 1_000


def str_(ctx: Context, value: Value) -> Value:
    """The value as text, as it would stand in a prompt."""
    return value_to_text(value, ctx.budget)


def strip(ctx: Context, value: Value, chars: Value = None) -> Value:
    """The text without spaces and newlines (or the given characters) at both ends."""
    return _copied(ctx, value, chars).strip(None if chars is None else as_text(chars))


def lstrip(ctx: Context, value: Value, chars: Value = None) -> Value:
    """The text without spaces and newlines (or the given characters) at its start."""
    return _copied(ctx, value, chars).lstrip(None if chars is None else as_text(chars))


def rstrip(ctx: Context, value: Value, chars: Value = None) -> Value:
    """The text without spaces and newlines (or the given characters) at its end."""
    return _copied(ctx, value, chars).rstrip(None if chars is None else as_text(chars))


def lower(ctx: Context, value: Value) -> Value:
    """The text in small letters."""
    return folded(ctx, as_text(value)).lower()


def upper(ctx: Context, value: Value) -> Value:
    """The text in capital letters."""
    return folded(ctx, as_text(value)).upper()


def title(ctx: Context, value: Value) -> Value:
    """The text with a capital letter at the start of every word."""
    text = folded(ctx, as_text(value))
    ctx.budget.charge(len(text))
    return "".join(part[0].upper() + part[1:].lower() for part in _WORD_START.split(text) if part)


def split(ctx: Context, value: Value, sep: Value = None, maxsplit: Value = -1) -> Value:
    """The parts of the text between separators (between spaces and newlines, if none is given)."""
    text, most = as_text(value), as_integer(maxsplit)
    ctx.budget.scan(len(text))
    if sep is None:
        spaces = _ASCII_SPACE if text.isascii() else _ASCII_SPACE + _WIDE_SPACE
        parts = sum(map(text.count, spaces)) + 1
    else:
        if sep == "":
            raise ArgumentProblem("needs a separator that is not empty.", "Leave it out to split at spaces.")
        parts = text.count(as_text(sep)) + 1
    ctx.budget.items(min(parts, most + 1) if most >= 0 else parts, 3)
    ctx.budget.text(len(text), char_width(text))
    return list(text.split(None if sep is None else as_text(sep), most))


def lines(ctx: Context, value: Value) -> Value:
    """The lines of the text, without their newlines."""
    text = _copied(ctx, value)
    ctx.budget.items(text.count("\n") + 1, 3)
    text = text.replace("\r\n", "\n")
    return list(text.removesuffix("\n").split("\n")) if text else []


def join(ctx: Context, value: Value, d: Value = "", attribute: Value = None) -> Value:
    """The texts of all items, with `d` between them; nulls are left out."""
    if isinstance(value, str):
        items: list[Value] = list(value) if len(value) < 100_000 else []
        ctx.budget.items(len(value), 2)
    else:
        items = as_list(value)
    ctx.budget.items(len(items), 2)
    if attribute is not None:
        ctx.budget.items(len(items), 4)
        items = [item_at(item, attribute) for item in items]
    texts = [value_to_text(item, ctx.budget) for item in items if item is not None]
    between = as_text(d)
    size = sum(map(len, texts)) + len(between) * max(0, len(texts) - 1)
    ctx.budget.text(size, text_width([between, *texts]))
    return between.join(texts)


def replace(ctx: Context, value: Value, old: Value, new: Value, count: Value = None) -> Value:
    """The text with every `old` (or the first `count` of them) replaced by `new`."""
    text, before, after = as_text(value), as_text(old), as_text(new)
    most = -1 if count is None else as_integer(count)
    ctx.budget.scan(len(text))
    found = text.count(before)
    found = min(found, most) if most >= 0 else found
    size = len(text) + found * (len(after) - len(before))
    ctx.budget.charge(found)
    ctx.budget.text(size, text_width((text, after)))
    return text.replace(before, after, most)


def startswith(ctx: Context, value: Value, start: Value) -> Value:
    """True if the text starts with `start`."""
    ctx.budget.scan(len(as_text(start)))
    return as_text(value).startswith(as_text(start))


def endswith(ctx: Context, value: Value, end: Value) -> Value:
    """True if the text ends with `end`."""
    ctx.budget.scan(len(as_text(end)))
    return as_text(value).endswith(as_text(end))


def contains(ctx: Context, value: Value, item: Value) -> Value:
    """True if the text, list or object has `item` in it."""
    if isinstance(value, list):
        ctx.budget.items(len(value))
        return any(equal(item, part, ctx.budget) for part in value)
    if isinstance(value, dict):
        return as_text(item) in value
    text = as_text(value)
    ctx.budget.scan(len(text))
    return as_text(item) in text


def index_of(ctx: Context, value: Value, item: Value) -> Value:
    """Where `item` first occurs in the text or list, counted from 0; null if nowhere."""
    if isinstance(value, list):
        ctx.budget.items(len(value))
        return next((at for at, part in enumerate(value) if equal(item, part, ctx.budget)), None)
    text = as_text(value)
    ctx.budget.scan(len(text))
    at = text.find(as_text(item))
    return at if at >= 0 else None


def truncate(
    ctx: Context,
    value: Value,
    length: Value = 255,
    killwords: Value = False,
    end: Value = "...",
    leeway: Value = None,
) -> Value:
    """The text cut to `length` characters, at a space unless `killwords`, with `end` after the cut."""
    text, mark = as_text(value), as_text(end)
    slack = 5 if leeway is None else as_integer(leeway, 0)
    size = as_integer(length)
    if size < len(mark):
        raise ArgumentProblem(f"needs a length of at least {len(mark)}, the length of `end`.")
    if len(text) <= size + slack:
        return text
    ctx.budget.text(size, char_width(text))
    kept = text[: size - len(mark)]
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + mark


def indent(ctx: Context, value: Value, width: Value = 4, first: Value = False, blank: Value = False) -> Value:
    """The text with its lines indented by `width` spaces (or that text), except the first and blank ones."""
    prefix = width if isinstance(width, str) else " " * as_integer(width, 0, MAX_INDENT)
    parts = _charged_lines(ctx, as_text(value), prefix)
    done = [prefix + line if (blank or line) else line for line in parts[1:]]
    return "\n".join([(prefix if first else "") + parts[0], *done])


def quote(ctx: Context, value: Value, prefix: Value = "> ") -> Value:
    """The text as a block quote: `prefix` before every line."""
    mark = as_text(prefix)
    parts = _charged_lines(ctx, as_text(value).removesuffix("\n"), mark)
    return "\n".join(mark + line if line else mark.rstrip(" ") for line in parts)


def bullets(ctx: Context, value: Value, marker: Value = "- ") -> Value:
    """The items of a list, one bullet each; nulls are left out, further lines of an item are indented."""
    mark = as_text(marker)
    items = as_list(value)
    ctx.budget.items(len(items), 4)
    texts = [value_to_text(item, ctx.budget) for item in items if item is not None]
    width = text_width([mark, *texts])
    for text in texts:
        ctx.budget.text(len(text) + len(mark) * (2 + text.count("\n")), width)
    space = "\n" + " " * len(mark)
    return "\n".join(mark + text.replace("\n", space) for text in texts)


def reverse(ctx: Context, value: Value) -> Value:
    """The list (or the text) backwards."""
    if isinstance(value, list):
        ctx.budget.items(len(value))
        return value[::-1]
    if not isinstance(value, str):
        raise ArgumentProblem(f"needs a list or text, and this is {describe(value)}.")
    ctx.budget.text(len(value), char_width(value))
    return value[::-1]


def _copied(ctx: Context, value: Value, chars: Value = None) -> str:
    """The text, charged for one copy of it."""
    text = as_text(value)
    ctx.budget.text(len(text), char_width(text))
    if chars is not None:
        ctx.budget.scan(len(text) * min(len(as_text(chars)), 64))
    return text


def _charged_lines(ctx: Context, text: str, prefix: str) -> list[str]:
    count = text.count("\n") + 1
    ctx.budget.scan(len(text))
    ctx.budget.items(count, 4)
    ctx.budget.text(len(text) + count * len(prefix), text_width((text, prefix)))
    return text.split("\n")


TEXT: tuple[Function, ...] = (
    function(str_, "string", "str(3.0)", "3.0"),
    function(strip, "string", "'  a b\n' | strip", "a b", aliases=("trim",)),
    function(lstrip, "string", "'  a ' | lstrip", "a "),
    function(rstrip, "string", "' a  ' | rstrip", " a"),
    function(lower, "string", "'Ab' | lower", "ab"),
    function(upper, "string", "'Ab' | upper", "AB"),
    function(title, "string", "'the old-new thing' | title", "The Old-New Thing"),
    function(split, "array", "'a, b' | split(', ')", ["a", "b"]),
    function(lines, "array", "'a\nb\n' | lines", ["a", "b"]),
    function(join, "string", "['a', null, 1] | join(', ')", "a, 1"),
    function(replace, "string", "'a-b-c' | replace('-', '+', 1)", "a+b-c"),
    function(startswith, "boolean", "'yes, it is' | startswith('yes')", True),
    function(endswith, "boolean", "'done.' | endswith('.')", True),
    function(contains, "boolean", "contains('abc', 'b')", True),
    function(index_of, "any", "['a', 'b'] | index_of('b')", 1),
    function(truncate, "string", "'one two three four' | truncate(11)", "one two..."),
    function(indent, "string", "'a\nb' | indent(2)", "a\n  b"),
    function(quote, "string", "'a\nb' | quote", "> a\n> b"),
    function(bullets, "string", "['a', 'b\nc'] | bullets", "- a\n- b\n  c"),
    function(reverse, "any", "[1, 2] | reverse", [2, 1]),
)

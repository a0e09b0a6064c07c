"""Our regular-expression dialect: what Python's `re` and llguidance's engine read alike, checked with positions.

The scanner walks a pattern once and writes it anew in a form that has one reading only. Left out on purpose:
look-around, back-references, word boundaries, set operations in classes, possessive and atomic groups, inline flags
other than `i` and `s`. Groups are only for grouping, and laziness has no meaning where the whole text must match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from sglspec.analysis.grammar import STUCK, ConstraintError, regex_grammar, verdict

MAX_PATTERN = 20_000
MAX_REPEAT = 10_000
MAX_SIZE = 100_000
"""Positions after counted repetitions are written out: `(a{100}){100}` has 10,000."""
MAX_NESTING = 100
MAX_STOP_SIZE = 500
"""The same for all stop patterns of a text together, which are looked for at every character."""

_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")
_PROPERTY = re.compile(r"\{\^?[A-Za-z_][A-Za-z0-9_ =]*\}|[A-Z]")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_NAMED = re.compile(r"\(\?P?<([A-Za-z_][A-Za-z0-9_]*)>")
_HEX = {"x": 2, "u": 4, "U": 8}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_BOUNDARY = "The pattern always matches the whole text. Spell out what may stand there instead."
_ANYWHERE = "A stop pattern is looked for anywhere in the text. Spell out what may stand there instead."
_REFUSED = {
    "b": ("word boundaries (`\\b`) cannot be enforced", _BOUNDARY),
    "B": ("word boundaries (`\\B`) cannot be enforced", _BOUNDARY),
    "A": ("the anchor `\\A` is not allowed", "Leave it out: the pattern always matches the whole text."),
    "Z": ("the anchor `\\Z` is not allowed", "Leave it out: the pattern always matches the whole text."),
    "z": ("the anchor `\\z` is not allowed", "Leave it out: the pattern always matches the whole text."),
    "k": ("back-references cannot be enforced", "Spell out the alternatives instead."),
    "g": ("back-references cannot be enforced", "Spell out the alternatives instead."),
    "0": ("`\\0` is not allowed", "Write \\x00."),
    "N": ("`\\N` is not allowed", "Write the character itself, or \\uXXXX."),
    "<": ("`\\<` means two things in two dialects", "Write < without the backslash."),
    ">": ("`\\>` means two things in two dialects", "Write > without the backslash."),
}
_GROUPS = (
    ("(?=", "look-ahead cannot be enforced", "Say what may stand there in the pattern itself, as alternatives."),
    ("(?!", "look-ahead cannot be enforced", "Say what may stand there in the pattern itself, as alternatives."),
    ("(?<=", "look-behind cannot be enforced", "Say what may stand there in the pattern itself, as alternatives."),
    ("(?<!", "look-behind cannot be enforced", "Say what may stand there in the pattern itself, as alternatives."),
    ("(?P=", "back-references cannot be enforced", "Spell out the alternatives instead."),
    ("(?P>", "recursion cannot be enforced", "Use a grammar or a JSON Schema for nested texts."),
    ("(?(", "conditionals cannot be enforced", "Spell out both cases as alternatives."),
    ("(?>", "atomic groups are not part of our dialect", "Write (?: and ): without backtracking it means the same."),
    ("(?#", "comments are not part of our dialect", "Put the remark into a `note`."),
    ("(?|", "branch reset is not part of our dialect", "Write (?: instead."),
)


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the rewritten pattern and how many positions it has when repetitions are written out."""

    text: str
    size: int


def normalise(pattern: str) -> str:
    """The pattern in llguidance's notation, safe between the slashes of a Lark grammar.

    Raises ConstraintError with offsets: S501 syntax, S502 dialect, S505 limits.
    """
    if len(pattern) > MAX_PATTERN:
        raise ConstraintError("S505", f"the pattern is longer than {MAX_PATTERN:,} characters")
    return _Scanner(pattern, whole=True).read()


def check_pattern(pattern: str) -> None:
    """Like `normalise`, for a JSON Schema `pattern`: also asks llguidance whether it can compile it."""
    normalised = normalise(pattern)
    reason = verdict(regex_grammar(normalised))
    if reason is not None and reason != STUCK:
        raise ConstraintError("S501", f"the pattern cannot be compiled: {reason}", start=0, end=len(pattern))


def stop_pattern(pattern: str) -> tuple[str, int]:
    """The pattern of a stop, in a notation with one reading only, and its positions with repetitions written out. It is
    looked for anywhere, so it has no anchors.

    Raises ConstraintError with offsets: S501 syntax, S502 dialect, S505 limits.
    """
    if len(pattern) > MAX_PATTERN:
        raise ConstraintError("S505", f"the pattern is longer than {MAX_PATTERN:,} characters")
    scanner = _Scanner(pattern, whole=False)
    normalised = scanner.read()
    if re.fullmatch(normalised, ""):
        help = "Write `+` where it says `*`: a stop needs at least one character."
        raise ConstraintError("S505", "the pattern matches the empty text, which is everywhere", help, start=0)
    return normalised, scanner.size


def check_stop_sizes(sizes: Iterable[int]) -> None:
    """Raises ConstraintError S505 where stop patterns of these sizes are too much together."""
    if sum(sizes) > MAX_STOP_SIZE:
        message = f"the stop patterns have more than {MAX_STOP_SIZE} positions together, counts written out"
        raise ConstraintError("S505", message, "Use fewer or shorter patterns, or `stop` for plain texts.")


def escape(text: str) -> str:
    """A pattern of our dialect that matches exactly this text, inside a set of characters too."""
    return "".join("\\" + char if char in r"\.+*?()|[]{}^$-&~" else char for char in text)


def _literal(char: str) -> str:
    if char in "\n\r\t":
        return {"\n": r"\n", "\r": r"\r", "\t": r"\t"}[char]
    if ord(char) < 32 or ord(char) == 127:
        return f"\\x{ord(char):02x}"
    return "\\" + char if char in '\\.+*?()|[]{}^$#&-~/"' else char


class _Scanner:
    """Recursive descent over one pattern. `at` is the offset of the next character. `whole`: the pattern is for whole
    texts; otherwise for a stop anywhere in one."""

    def __init__(self, pattern: str, *, whole: bool) -> None:
        self.pattern = pattern
        self.whole = whole
        self.max_size = MAX_SIZE if whole else MAX_STOP_SIZE
        self.size = 0
        self.at = 0

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def fault(self, code: str, message: str, start: int, end: int | None = None, help: str | None = None) -> NoReturn:
        raise ConstraintError(code, message, help, start=start, end=end if end is not None else start + 1)

    def read(self) -> str:
        """The whole pattern, written anew."""
        flags = ""
        if (found := _FLAGS.match(self.pattern)) and found[3] == ")" and found[1]:
            self.flags(found)
            flags, self.at = found[0], found.end()
        part = self.alternatives(0)
        self.size = part.size
        if self.at < len(self.pattern):
            self.fault("S501", "this `)` closes nothing", self.at, help=r"Write \) for the sign itself.")
        # without the group, flags would end at the first `|` in some engines
        return f"{flags}(?:{part.text})" if flags else part.text

    def alternatives(self, depth: int) -> _Part:
        parts = [self.sequence(depth)]
        while self.peek() == "|":
            self.at += 1
            parts.append(self.sequence(depth))
        return _Part("|".join(p.text for p in parts), sum(p.size for p in parts))

    def sequence(self, depth: int) -> _Part:
        texts: list[str] = []
        size = 0
        if self.whole and depth == 0 and self.peek() == "^":  # redundant: the whole text must match
            self.at += 1
        while (char := self.peek()) and char not in "|)":
            following = self.pattern[self.at + 1 : self.at + 2]
            if self.whole and depth == 0 and char == "$" and following in ("", "|"):
                self.at += 1
                continue
            start = self.at
            part = self.repeated(self.atom(depth), start)
            texts.append(part.text)
            size += part.size
            if size > self.max_size:
                self.fault(
                    "S505", "the repetitions of this pattern multiply beyond what can be enforced", start, self.at,
                    "Use smaller counts, or `*` or `+` with `max_tokens` as the bound.",
                )  # fmt: skip
        return _Part("".join(texts), size)

    def atom(self, depth: int) -> _Part:
        start, char = self.at, self.peek()
        if char == "(":
            return self.group(depth)
        if char == "[":
            return self.set_of_characters()
        if char == "\\":
            kind, text = self.escape()
            return _Part(text if kind == "class" else _literal(text), 1)
        if char in "^$" and self.whole:
            help = "Leave it out: the pattern always matches the whole text."
            self.fault("S502", f"`{char}` in the middle of a pattern can never match", start, help=help)
        if char in "^$":
            help = r"Write \n where a line begins or ends."
            self.fault("S502", f"the anchor `{char}` is not allowed in a stop pattern", start, help=help)
        if char in "*+?":
            self.fault(
                "S501", f"there is nothing before `{char}` to repeat", start, help=f"Write \\{char} for the sign."
            )
        if char == "{":
            self.fault("S502", "`{` starts a repetition like {2,5}", start, help=r"Write \{ for the sign itself.")
        self.at += 1
        return _Part("." if char == "." else _literal(char), 1)

    def group(self, depth: int) -> _Part:
        start = self.at
        if depth >= MAX_NESTING:
            self.fault("S505", f"groups are nested more than {MAX_NESTING} deep", start)
        opening = "(?:"
        if self.pattern.startswith("(?", start):
            opening = self.group_opening(start)
        else:
            self.at += 1
        part = self.alternatives(depth + 1)
        if self.peek() != ")":
            self.fault("S501", "this `(` is never closed", start, help=r"Write \( for the sign itself.")
        self.at += 1
        return _Part(f"{opening}{part.text})", max(part.size, 1))

    def group_opening(self, start: int) -> str:
        for mark, message, help in _GROUPS:
            if self.pattern.startswith(mark, start):
                self.fault("S502", message, start, start + len(mark), help)
        if named := _NAMED.match(self.pattern, start):
            self.at = named.end()
            return "(?:"
        found = _FLAGS.match(self.pattern, start)
        if found is None:
            self.fault("S501", "an unknown kind of group", start, start + 2, r"Write \( for the sign itself.")
        self.flags(found)
        if found[3] == ")":
            help = f"Put it at the very start, or write {found[0][:-1]}:…) around the part."
            self.fault("S502", "flags stand at the start of a pattern only", start, found.end(), help)
        self.at = found.end()
        return found[0]

    def flags(self, found: re.Match[str]) -> None:
        for letter in found[1] + (found[2] or ""):
            if letter not in "is":
                help = "`i` (ignore case) and `s` (`.` matches line breaks too) are the only flags."
                self.fault("S502", f"the flag `{letter}` is not allowed", found.start(), found.end(), help)

    def escape(self) -> tuple[str, str]:
        """An escape sequence: ("char", the character) or ("class", its pattern)."""
        start = self.at
        char = self.pattern[start + 1 : start + 2]
        self.at += 2
        if not char:
            self.fault("S501", "the pattern ends with a lone backslash", start, help=r"Write \\ for the sign itself.")
        if char in "dDwWsS":
            return "class", "\\" + char
        if char in "pP":
            return self.property_class(start, char)
        if char in _HEX:
            return "char", self.hex_escape(start, char)
        if char in _CONTROL:
            return "char", _CONTROL[char]
        if char in "123456789":
            self.fault(
                "S502", "back-references cannot be enforced", start, self.at, "Spell out the alternatives instead."
            )
        if char in _REFUSED:
            message, help = _REFUSED[char]
            self.fault("S502", message, start, self.at, help if self.whole or char not in "bBAZz" else _ANYWHERE)
        if char.isascii() and char.isalnum():
            self.fault("S501", f"`\\{char}` has no meaning", start, self.at, f"Write {char} for the letter itself.")
        return "char", char

    def property_class(self, start: int, char: str) -> tuple[str, str]:
        found = _PROPERTY.match(self.pattern, self.at)
        if found is None:
            self.fault("S501", f"`\\{char}` needs a class of characters", start, self.at, r"For example \p{Lu}.")
        self.at = found.end()
        if not self.whole:
            help = "Write the characters themselves in a set: [a-zäöü]."
            self.fault("S502", f"`\\{char}` is not allowed in a stop pattern", start, self.at, help)
        return "class", f"\\{char}{found[0]}"

    def hex_escape(self, start: int, char: str) -> str:
        length = _HEX[char]
        digits = self.pattern[self.at : self.at + length]
        if digits.startswith("{"):
            self.fault("S502", f"`\\{char}{{…}}` is not part of our dialect", start, self.at, r"Write \uXXXX.")
        if not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", digits):
            self.fault("S501", f"`\\{char}` needs {length} hexadecimal digits", start, self.at)
        point = int(digits, 16)
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            self.fault("S501", "this is not a character", start, self.at + length)
        self.at += length
        return chr(point)

    def set_of_characters(self) -> _Part:
        start = self.at
        self.at += 1
        out = "["
        if self.peek() == "^":
            out += "^"
            self.at += 1
        first = self.at
        while True:
            char = self.peek()
            if not char:
                self.fault("S501", "this `[` is never closed", start, help=r"Write \[ for the sign itself.")
            if char == "]" and self.at > first:
                self.at += 1
                return _Part(out + "]", 1)
            out += self.set_member()

    def set_member(self) -> str:
        start = self.at
        kind, text = self.set_item()
        if self.pattern.startswith("--", self.at):
            return text if kind == "class" else _literal(text)  # refused as the next member
        if self.peek() != "-" or self.pattern[self.at + 1 : self.at + 2] in ("]", ""):
            return text if kind == "class" else _literal(text)
        self.at += 1
        other_kind, other = self.set_item()
        if kind == "class" or other_kind == "class":
            self.fault(
                "S501", "a range needs a single character on both sides", start, self.at, r"Write \- for the sign."
            )
        if ord(text) > ord(other):
            self.fault("S501", f"the range {text}-{other} is empty", start, self.at, f"Write {other}-{text}.")
        return f"{_literal(text)}-{_literal(other)}"

    def set_item(self) -> tuple[str, str]:
        char = self.peek()
        if not char:
            return "char", ""
        if char == "\\":
            return self.escape()
        if char == "[":
            help = r"Write \[ for the sign itself; classes like [:alpha:] and sets in sets are not part of our dialect."
            self.fault("S502", "`[` inside a set", self.at, help=help)
        if char in "&~-" and self.pattern.startswith(char * 2, self.at):
            help = f"Write \\{char} for the sign itself."
            self.fault(
                "S502", f"`{char * 2}` inside a set is an operation in some dialects", self.at, self.at + 2, help
            )
        self.at += 1
        return "char", char

    def repeated(self, part: _Part, start: int) -> _Part:
        char = self.peek()
        if char not in ("*", "+", "?", "{"):
            return part
        if char == "{":
            text, factor = self.count()
        else:
            text, factor = char, 1
            self.at += 1
        if self.peek() == "?":  # lazy: no difference where the whole text must match
            self.at += 1
        elif self.peek() == "+":
            help = "Leave the second sign out: without backtracking it means the same."
            self.fault("S502", "possessive repetition is not part of our dialect", start, self.at + 1, help)
        if self.peek() in ("*", "+", "?") or (self.peek() == "{" and _COUNT.match(self.pattern, self.at)):
            self.fault("S501", "a repetition of a repetition", self.at, help="Put a group around the first: (…)*.")
        size = part.size * max(factor, 1)
        if size > self.max_size:
            self.fault(
                "S505", "the repetitions of this pattern multiply beyond what can be enforced", start, self.at,
                "Use smaller counts, or `*` or `+` with `max_tokens` as the bound.",
            )  # fmt: skip
        return _Part(part.text + text, size)

    def count(self) -> tuple[str, int]:
        start = self.at
        found = _COUNT.match(self.pattern, start)
        if found is None or not (found[1] or found[3]):
            self.fault("S502", "`{` starts a repetition like {2,5}", start, help=r"Write \{ for the sign itself.")
        if not found[1]:
            self.fault("S502", "a repetition needs its least count", start, found.end(), f"Write {{0,{found[3]}}}.")
        numbers = [found[1], *([found[3]] if found[3] else [])]
        if any(len(n) > 6 or int(n) > MAX_REPEAT for n in numbers):
            help = "Use `*` or `+`, and `max_tokens` as the bound."
            self.fault("S505", f"more than {MAX_REPEAT:,} repetitions", start, found.end(), help)
        low, high = int(found[1]), int(found[3]) if found[3] else None
        if high is not None and low > high:
            self.fault("S501", f"from {low} to {high} is no range", start, found.end(), f"Write {{{high},{low}}}.")
        self.at = found.end()
        return found[0], high if high is not None else max(low, 1)

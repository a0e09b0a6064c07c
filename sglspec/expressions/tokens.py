"""Tokens: what stands inside `{{ }}` and `{% %}`, with offsets and with the kinds that Jinja's parser knows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from sglspec.expressions.errors import ExpressionSyntaxError

MAX_TOKENS = 5_000

OPERATORS = {
    "+": "add",
    "-": "sub",
    "/": "div",
    "//": "floordiv",
    "*": "mul",
    "%": "mod",
    "**": "pow",
    "~": "tilde",
    "[": "lbracket",
    "]": "rbracket",
    "(": "lparen",
    ")": "rparen",
    "{": "lbrace",
    "}": "rbrace",
    "==": "eq",
    "!=": "ne",
    ">": "gt",
    ">=": "gteq",
    "<": "lt",
    "<=": "lteq",
    "=": "assign",
    ".": "dot",
    ":": "colon",
    "|": "pipe",
    ",": "comma",
}
CLOSERS = {"(": ")", "[": "]", "{": "}"}

FOREIGN = {
    "&&": ("`&&` is not an operator here.", "Write `and`."),
    "||": ("`||` is not an operator here.", "Write `or`; a filter follows one `|`."),
    "===": ("`===` is not an operator here.", "Write `==`."),
    "!==": ("`!==` is not an operator here.", "Write `!=`."),
    "++": ("`++` is not an operator here.", "Write `+ 1`."),
    "=>": ("`=>` is not an operator here.", "Write `>=` for “at least”."),
    "<>": ("`<>` is not an operator here.", "Write `!=`."),
    "->": ("`->` means nothing here.", "Take a part of an object with `x.name`."),
    "!": ("`!` is not an operator here.", "Write `not`."),
    "&": ("`&` is not an operator here.", "Write `and`; to put texts together write `~`."),
    "$": ("`$` means nothing here.", "Write the name alone: `{{ topic }}`, not `{{ $topic }}`."),
    "?": ("`?` is not an operator here.", "Write `a if condition else b`."),
    ";": ("`;` means nothing here.", "Write one expression."),
    "^": ("`^` is not an operator here.", "Write `**` for a power."),
    "`": ("A backtick means nothing here.", "Put text between `'` or `\"`."),
    "#": ("`#` means nothing here; there are no comments inside an expression.", None),
    "@": ("`@` means nothing here.", None),
    "\\": ("A backslash stands outside a text.", "Backslash escapes belong between quotes: `'\\n'`."),
    "“": ("Curly quotes are not quotes here.", "Write straight quotes: `'text'` or `\"text\"`."),
    "”": ("Curly quotes are not quotes here.", "Write straight quotes: `'text'` or `\"text\"`."),
    "‘": ("Curly quotes are not quotes here.", "Write straight quotes: `'text'`."),
    "’": ("Curly quotes are not quotes here.", "Write straight quotes: `'text'`."),
}

_WHITESPACE = re.compile(r"\s+")
_NAME = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?")
_DIGITS = re.compile(r"\d+")
_STRING = re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"", re.DOTALL)
_OPERATOR = re.compile(r"===|!==|\+\+|=>|<>|->|&&|\|\||\*\*|//|==|!=|>=|<=|[-+/*%~\[\](){}<>=.:|,]")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_SURROGATE = re.compile(r"[\ud800-\udfff]")
MAX_INTEGER = 2**63


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is Jinja's token type; `value` what its parser gets; `start`, `end` the place in the text."""

    kind: str
    value: str | int | float
    start: int
    end: int

    @property
    def is_operand_end(self) -> bool:
        """True for a token that can end an operand: a name, a constant, a closing bracket."""
        return self.kind in ("name", "string", "integer", "float", "rparen", "rbracket", "rbrace")


def shown_token(token: Token) -> str:
    """A token as an author would write it."""
    if token.kind == "string":
        return json.dumps(token.value, ensure_ascii=False)
    return str(token.value)


def fail(message: str, start: int, end: int, help: str | None = None, code: str = "S251") -> ExpressionSyntaxError:
    """The error to raise; by default an expression that does not parse."""
    return ExpressionSyntaxError(code, message, start, end, help)


def read_token(text: str, at: int, previous: Token | None, code: str) -> Token:
    """The token that starts at `at`, which is not whitespace. `code` is used where the trouble is a delimiter."""
    character = text[at]
    if match := _NAME.match(text, at):
        return Token("name", match.group(), at, match.end())
    if character.isdecimal() and character.isascii():
        return _number(text, at, previous)
    if character in "'\"":
        return _string(text, at)
    match = _OPERATOR.match(text, at)
    found = match.group() if match else character
    if found in FOREIGN:
        message, help = FOREIGN[found]
        raise fail(message, at, at + len(found), help)
    if match is None:
        raise fail(f"The character `{character}` means nothing here.", at, at + 1, code=code)
    return Token(OPERATORS[found], found, at, match.end())


def skip_whitespace(text: str, at: int) -> int:
    """The first place from `at` on that is not whitespace."""
    match = _WHITESPACE.match(text, at)
    return match.end() if match else at


def _number(text: str, at: int, previous: Token | None) -> Token:
    after_dot = previous is not None and previous.kind == "dot" and previous.end == at
    match = (_DIGITS if after_dot else _NUMBER).match(text, at)
    assert match is not None
    written, end = match.group(), match.end()
    if following := _NAME.match(text, end):
        raise fail(
            f"`{written}{following.group()}` is neither a number nor a name.",
            at,
            following.end(),
            "A name starts with a letter; text stands between quotes.",
        )
    digits = written.replace("_", "")
    if not digits.isdecimal():
        return _other_number(digits, at, end)
    if len(digits) > 1 and digits[0] == "0" and not after_dot:
        raise fail(f"The number `{written}` starts with 0.", at, end, f"Write {digits.lstrip('0') or '0'}.")
    if len(digits) > 19 or int(digits) > MAX_INTEGER:
        raise fail("This number is too large.", at, end)
    return Token("integer", int(digits), at, end)


def _other_number(digits: str, at: int, end: int) -> Token:
    if digits[:2].lower() in ("0x", "0b", "0o"):
        if len(digits) > 66 or int(digits, 0) > MAX_INTEGER:
            raise fail("This number is too large.", at, end)
        return Token("integer", int(digits, 0), at, end)
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise fail("This number is too large.", at, end)
    return Token("float", number, at, end)


def _string(text: str, at: int) -> Token:
    match = _STRING.match(text, at)
    written = match.group() if match else ""
    # An apostrophe that opens a "text" which runs over the end of the tag and of the line is a forgotten quote.
    if match is None or ("\n" in written and re.search(r"[}%]\}", written)):
        raise fail(
            f"The text that starts with {text[at]} has no closing {text[at]}.",
            at,
            at + 1,
            'Close the quote. Text with an apostrophe stands between double quotes: "it\'s".',
        )
    return Token("string", decode_string(written[1:-1], at + 1), at, match.end())


def decode_string(body: str, at: int) -> str:
    r"""Decode `\n \t \r \\ \' \" \uXXXX`; any other backslash stays. `at` is where the body stands."""
    if "\\" not in body:
        return body
    decoded = _ESCAPE.sub(_decode_escape, body)
    if _SURROGATE.search(decoded):
        # Two \u escapes may be the halves of one character; a half alone is not text.
        try:
            decoded = decoded.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise fail("A \\u escape names half a character.", at, at + len(body)) from None
    return decoded


def _decode_escape(match: re.Match[str]) -> str:
    escape = match.group(1)
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _SIMPLE_ESCAPES.get(escape, match.group())

"""From the text of a template or expression to tokens. Jinja's own lexer knows lines only; this one knows offsets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sglspec.expressions.tokens import (
    CLOSERS,
    MAX_TOKENS,
    Token,
    fail,
    read_token,
    skip_whitespace,
)

_OPENING = re.compile(r"\{\{|\{%")
_RAW = re.compile(r"\{%([-+]?)\s*raw\s*([-+]?)%\}")
_ENDRAW = re.compile(r"\{%([-+]?)\s*endraw\s*([-+]?)%\}")
_TAG_NAME = re.compile(r"\s*([^\W\d]\w*)")

_NO_CONSTRUCT = {
    "set": "Bind the value with a `set` step before this text.",
    "macro": "Put steps to reuse under `defs.steps` and use the `include` step.",
    "call": "Put steps to reuse under `defs.steps` and use the `include` step.",
    "filter": "Write `{{ value | filter }}`.",
    "block": "Put text to reuse under `defs.texts` and write `{{ texts.name }}`.",
    "extends": "Put text to reuse under `defs.texts` and write `{{ texts.name }}`.",
    "include": "Use the `include` step, or `defs.texts` and `{{ texts.name }}`.",
    "import": "Use the `use` key of the document.",
    "from": "Use the `use` key of the document.",
    "with": "Bind the value with a `set` step before this text.",
    "autoescape": "Inserted values are never changed.",
    "do": "Bind values with a `set` step.",
    "trans": None,
    "break": "Choose the items with `{% for x in items if … %}`.",
    "continue": "Choose the items with `{% for x in items if … %}`.",
    "debug": None,
    "print": "Write `{{ value }}`.",
    "namespace": "Bind the value with a `set` step before this text.",
    "while": "Use the `while` step.",
    "comment": "A comment belongs into the YAML, after `#`.",
}
_MISSPELT = {
    "elseif": "{% elif … %}",
    "elsif": "{% elif … %}",
    "elif": "{% elif … %}",
    "end": "{% endif %}` or `{% endfor %}",
    "endfi": "{% endif %}",
    "end_if": "{% endif %}",
    "end_for": "{% endfor %}",
    "fi": "{% endif %}",
    "foreach": "{% for x in items %}",
    "unless": "{% if not … %}",
    "switch": "{% if %}{% elif %}",
    "If": "{% if … %}",
    "For": "{% for … %}",
}
_TAGS = ("if", "elif", "else", "endif", "for", "endfor")


@dataclass(slots=True)
class Piece:
    """A run of literal text, an `{{ }}`, or a `{% %}`. `lo`, `hi`: what the whitespace rules left of a text."""

    kind: str
    start: int
    end: int
    left: str = ""
    right: str = ""
    tokens: list[Token] = field(default_factory=list[Token])
    lo: int = 0
    hi: int = 0


def split_template(text: str, lo: int, hi: int) -> list[Piece]:
    """Cut `text[lo:hi]` into its pieces, tags tokenized."""
    pieces: list[Piece] = []
    count = 0
    at = lo
    while match := _OPENING.search(text, at, hi):
        start = match.start()
        _add_text(pieces, at, start)
        if raw := _RAW.match(text, start, hi):
            at = _raw_block(text, raw, hi, pieces)
            continue
        piece = _variable(text, start, hi) if match.group() == "{{" else _tag(text, start, hi)
        count += len(piece.tokens) + 2
        if count > MAX_TOKENS:
            raise fail(f"The template has more than {MAX_TOKENS:,} tokens.", start, piece.end, code="S253")
        pieces.append(piece)
        at = piece.end
    _add_text(pieces, at, hi)
    return pieces


def tokenize_expression(text: str) -> list[Token]:
    """The tokens of a bare expression."""
    return _Inside(text, 0, len(text), None).read()[0]


def _add_text(pieces: list[Piece], start: int, end: int) -> None:
    if end > start:
        pieces.append(Piece("text", start, end, lo=start, hi=end))


def _raw_block(text: str, raw: re.Match[str], hi: int, pieces: list[Piece]) -> int:
    close = _ENDRAW.search(text, raw.end(), hi)
    if close is None:
        raise fail("`{% raw %}` is never closed.", raw.start(), raw.end(), "Add `{% endraw %}`.", code="S250")
    pieces.append(Piece("tag", raw.start(), raw.end(), raw.group(1), raw.group(2)))
    _add_text(pieces, raw.end(), close.start())
    pieces.append(Piece("tag", close.start(), close.end(), close.group(1), close.group(2)))
    return close.end()


def _variable(text: str, start: int, hi: int) -> Piece:
    if text.startswith("{{{", start):
        raise fail(
            "Three braces: values are inserted with two.",
            start,
            start + 3,
            "Write `{{ x }}`. For braces around a value write `{ {{ x }} }`; for an object `{{ {'a': 1} }}` with a "
            "space; for text with braces as it is `{% raw %}…{% endraw %}`.",
            code="S254",
        )
    left = text[start + 2 : start + 3]
    left = left if left in ("-", "+") else ""
    tokens, end, right = _Inside(text, start + 2 + len(left), hi, "}}", start).read()
    if not tokens:
        raise fail(
            "Nothing stands between `{{` and `}}`.",
            start,
            end,
            "Write the name of a variable: `{{ topic }}`. For the braces themselves write "
            "`{% raw %}{{ }}{% endraw %}`.",
            code="S250",
        )
    return Piece("variable", start, end, left, right, tokens)


def _tag(text: str, start: int, hi: int) -> Piece:
    left = text[start + 2 : start + 3]
    left = left if left in ("-", "+") else ""
    inside = start + 2 + len(left)
    name = _TAG_NAME.match(text, inside, hi)
    if name is not None:
        check_tag_name(name.group(1), name.start(1), name.end(1))
    tokens, end, right = _Inside(text, inside, hi, "%}", start).read()
    if not tokens or tokens[0].kind != "name":
        raise fail("`{%` must be followed by `if`, `for` or `raw`.", start, end, code="S250")
    return Piece("tag", start, end, left, right, tokens)


def check_tag_name(name: str, start: int, end: int) -> None:
    """Refuse what stands after `{%` unless templates have it."""
    if name in _TAGS:
        return
    bare = name.removeprefix("end")
    if name in _NO_CONSTRUCT or bare in _NO_CONSTRUCT:
        known = name if name in _NO_CONSTRUCT else bare
        raise fail(f"Templates have no `{{% {name} %}}`.", start, end, _NO_CONSTRUCT[known], code="S252")
    if name in ("raw", "endraw"):
        help = "Write `{% raw %}` before the text and `{% endraw %}` after it, with nothing else inside the tags."
        raise fail(f"`{{% {name} %}}` stands alone here.", start, end, help, code="S250")
    help = f"Write `{_MISSPELT[name]}`." if name in _MISSPELT else "Templates have `if`, `for` and `raw`."
    raise fail(f"`{{% {name} %}}` is not a tag.", start, end, help, code="S250")


class _Inside:
    """Reads the tokens of one tag, or of a bare expression where `closer` is None."""

    def __init__(self, text: str, at: int, hi: int, closer: str | None, opened: int = 0) -> None:
        self.text = text if hi == len(text) else text[:hi]
        self.at = at
        self.closer = closer
        self.opened = opened
        self.tokens: list[Token] = []
        self.brackets: list[Token] = []

    def read(self) -> tuple[list[Token], int, str]:
        """The tokens, where the tag ends, and its control mark (`-` or `+`) before the closing braces."""
        while True:
            self.at = skip_whitespace(self.text, self.at)
            if self.at >= len(self.text):
                return self._end_of_text()
            mark = self._closing()
            if mark is not None:
                return self.tokens, self.at, mark
            self._check_braces()
            token = read_token(self.text, self.at, self.tokens[-1] if self.tokens else None, "S251")
            self._balance(token)
            self.tokens.append(token)
            if len(self.tokens) > MAX_TOKENS:
                raise fail(f"This has more than {MAX_TOKENS:,} tokens.", self.opened, token.end, code="S253")
            self.at = token.end

    def _closing(self) -> str | None:
        if self.closer is None:
            return None
        marks = "-" if self.closer == "}}" else "-+"
        mark = self.text[self.at] if self.text[self.at] in marks else ""
        if not self.text.startswith(self.closer, self.at + len(mark)):
            return None
        if self.brackets:
            if self.closer == "}}" and self.brackets[-1].value == "{":
                return None
            raise self._unclosed_bracket()
        self.at += len(mark) + 2
        return mark

    def _check_braces(self) -> None:
        text, at = self.text, self.at
        opening = text[at : at + 2] if text[at : at + 2] in ("{{", "{%") else ""
        if self.closer is None:
            closing = "}}" if text.startswith("}}", at) and not self.brackets else ""
            if opening or closing:
                raise fail(
                    f"`{opening or closing}` stands inside an expression.",
                    at,
                    at + 2,
                    "An expression is written without braces: `topic == 'x'`.",
                    code="S255",
                )
            return
        begin = "{{" if self.closer == "}}" else "{%"
        if opening:
            raise self._never_closed(f"Close it with `{self.closer}` before the next `{opening}`.")
        other = "%}" if self.closer == "}}" else "}}"
        if text.startswith(other, at) and not self.brackets:
            help = f"Write `{self.closer}`."
            raise fail(f"`{begin}` is closed with `{other}`.", at, at + 2, help, code="S250")
        if text[at] == "}" and not self.brackets:
            help = f"Write `{self.closer}` to close the `{begin}`."
            raise fail("One `}` closes nothing here.", at, at + 1, help, code="S250")

    def _balance(self, token: Token) -> None:
        if token.kind in ("lparen", "lbracket", "lbrace"):
            self.brackets.append(token)
        elif token.kind in ("rparen", "rbracket", "rbrace"):
            if not self.brackets:
                raise fail(f"`{token.value}` closes nothing.", token.start, token.end)
            expected = CLOSERS[str(self.brackets[-1].value)]
            if token.value != expected:
                opener = self.brackets[-1]
                message = f"`{token.value}` closes `{opener.value}`, which wants `{expected}`."
                raise fail(message, token.start, token.end)
            self.brackets.pop()

    def _end_of_text(self) -> tuple[list[Token], int, str]:
        if self.closer is not None:
            raise self._never_closed(f"Close it with `{self.closer}`.")
        if self.brackets:
            raise self._unclosed_bracket()
        return self.tokens, self.at, ""

    def _never_closed(self, help: str) -> Exception:
        begin = self.text[self.opened : self.opened + 2]
        return fail(f"`{begin}` is never closed.", self.opened, self.opened + 2, help, code="S250")

    def _unclosed_bracket(self) -> Exception:
        opener = self.brackets[-1]
        help = f"Add `{CLOSERS[str(opener.value)]}`."
        return fail(f"`{opener.value}` is never closed.", opener.start, opener.end, help)

"""What is checked on the tokens before Jinja's parser sees them: nesting, the structure of tags, common slips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglspec.expressions.lexer import Piece
from sglspec.expressions.tokens import Token, fail

MAX_NESTING = 64

_OPENERS = ("lparen", "lbracket", "lbrace")
_CLOSERS = ("rparen", "rbracket", "rbrace")
_WORDS = frozenset({"and", "or", "not", "in", "is", "if", "else", "elif", "for", "recursive"})
_CAPITALS = {"AND": "and", "OR": "or", "NOT": "not", "IN": "in", "IS": "is", "IF": "if", "ELSE": "else"}


@dataclass(slots=True)
class _Open:
    """An open `{% if %}` or `{% for %}`."""

    name: Token
    has_else: bool = False


def check_template(pieces: Sequence[Piece]) -> int:
    """Check all tags and inserted expressions. Returns how deep the template is nested."""
    open_tags: list[_Open] = []
    deepest = 0
    for piece in pieces:
        if not piece.tokens:
            continue
        if piece.kind == "tag":
            _check_structure(piece, open_tags)
            _check_tag(piece)
        else:
            check_tokens(piece.tokens, commas=False)
        deepest = max(deepest, check_nesting(piece.tokens, len(open_tags)))
    if open_tags:
        name = open_tags[-1].name
        message = f"`{{% {name.value} %}}` is never closed."
        raise fail(message, name.start, name.end, f"Add `{{% end{name.value} %}}`.", code="S250")
    return deepest


def _check_structure(piece: Piece, open_tags: list[_Open]) -> None:
    name = piece.tokens[0]
    word = str(name.value)
    if word in ("if", "for"):
        open_tags.append(_Open(name))
        return
    current = open_tags[-1] if open_tags else None
    if word in ("endif", "endfor"):
        if current is None or word != f"end{current.name.value}":
            wanted = f"`{{% end{current.name.value} %}}` comes first." if current else None
            raise fail(f"`{{% {word} %}}` closes nothing here.", name.start, name.end, wanted, code="S250")
        open_tags.pop()
        return
    if current is None or (word == "elif" and current.name.value == "for"):
        belongs = "an `{% if %}`" if word == "elif" else "an `{% if %}` or `{% for %}`"
        raise fail(f"`{{% {word} %}}` stands outside {belongs}.", name.start, name.end, code="S250")
    if current.has_else:
        message = f"`{{% {word} %}}` comes after `{{% else %}}`."
        raise fail(message, name.start, name.end, code="S250")
    current.has_else = word == "else"


def _check_tag(piece: Piece) -> None:
    name, rest = piece.tokens[0], piece.tokens[1:]
    word = str(name.value)
    if word in ("else", "endif", "endfor"):
        if rest:
            is_elif = word == "else" and rest[0].value == "if"
            help = "Write `{% elif … %}`." if is_elif else f"Write `{{% {word} %}}`."
            raise fail(f"Nothing may follow `{word}`.", rest[0].start, rest[-1].end, help, code="S250")
        return
    if not rest:
        missing = "x in items" if word == "for" else "condition"
        help = f"Write `{{% {word} {missing} %}}`."
        raise fail(f"`{{% {word} %}}` is not complete.", piece.start, piece.end, help, code="S250")
    if word == "for":
        _check_for(piece)
    check_tokens(rest, commas=word == "for")


def _check_for(piece: Piece) -> None:
    rest = piece.tokens[1:]
    at = 0
    while at < len(rest) and rest[at].kind in ("name", "comma", "lparen", "rparen") and rest[at].value != "in":
        if rest[at].value in ("loop", "null", "true", "false", "none", "True", "False", "None"):
            token = rest[at]
            raise fail(f"`{token.value}` cannot be the variable of a loop.", token.start, token.end, code="S250")
        at += 1
    help = "Write `{% for x in items %}`, or `{% for a, b in pairs %}`."
    if at == len(rest) or rest[at].value != "in" or at == 0:
        token = rest[min(at, len(rest) - 1)]
        raise fail("The loop wants a name and `in`.", token.start, token.end, help, code="S250")
    if at + 1 == len(rest):
        raise fail("Nothing follows `in`.", rest[at].start, rest[at].end, help, code="S250")
    for token in rest:
        if token.kind == "name" and token.value == "recursive":
            raise fail("Templates have no recursive loops.", token.start, token.end, code="S252")


def check_tokens(tokens: Sequence[Token], commas: bool) -> None:
    """Common slips in one expression; `commas` allows a comma outside all brackets."""
    depth = 0
    brackets: list[bool] = []
    for at, token in enumerate(tokens):
        previous = tokens[at - 1] if at else None
        if token.kind in _OPENERS:
            is_call = token.kind == "lparen" and previous is not None and previous.kind == "name"
            brackets.append(is_call)
            depth += 1
        elif token.kind in _CLOSERS:
            brackets.pop()
            depth -= 1
        elif token.kind == "assign":
            if not _is_keyword_argument(tokens, at, brackets):
                raise fail("One `=` does not compare.", token.start, token.end, "Write `==`.")
        elif token.kind == "comma" and depth == 0 and not commas:
            help = "Write `[a, b]` for a list; put texts together with `~`."
            raise fail("A comma does not belong here.", token.start, token.end, help)
        elif previous is not None:
            _check_neighbours(tokens, at, previous, token)


def _is_keyword_argument(tokens: Sequence[Token], at: int, brackets: list[bool]) -> bool:
    return (
        at >= 2
        and bool(brackets)
        and brackets[-1]
        and tokens[at - 1].kind == "name"
        and tokens[at - 2].kind in ("lparen", "comma")
    )


def _check_neighbours(tokens: Sequence[Token], at: int, previous: Token, token: Token) -> None:
    """Two operands side by side: a forgotten operator, comma or quote."""
    if token.kind not in ("name", "string", "integer", "float") or not previous.is_operand_end:
        return
    after_dot = at >= 2 and tokens[at - 2].kind == "dot"
    if previous.kind == "name" and previous.value in _WORDS and not after_dot:
        return
    if token.kind == "name" and token.value in _WORDS:
        return
    if previous.kind == "name" and at >= 2 and tokens[at - 2].value in ("is", "not"):
        return
    capital = next((str(t.value) for t in (token, previous) if t.kind == "name" and t.value in _CAPITALS), None)
    if capital is not None:
        help = f"Write `{_CAPITALS[capital]}` in small letters."
    elif at >= 2 and tokens[at - 2].kind == "pipe":
        help = f"Arguments stand in parentheses: `{_show(previous)}({_show(token)})`."
    elif token.kind == "string" and previous.kind == "string":
        help = "Put a comma or `~` between the two texts."
    else:
        help = "Text stands between quotes: `'so'`. Names have no spaces. `~` puts texts together."
    message = f"`{_show(token)}` cannot follow `{_show(previous)}` directly."
    raise fail(message, token.start, token.end, help)


def _show(token: Token) -> str:
    text = f"'{token.value}'" if token.kind == "string" else str(token.value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= 30 else text[:27] + "…"


def check_nesting(tokens: Sequence[Token], base: int) -> int:
    """How deep the parser will go, counted like brackets: `not`, signs and `else` nest as well. Raises above 64."""
    deepest = depth = base
    run = 0
    elses = [0]
    for token in tokens:
        if token.kind in _OPENERS:
            # What a run of signs stands before stays nested inside it until the bracket closes.
            elses.append(run)
            depth += run + 1
            run = 0
        elif token.kind in _CLOSERS:
            depth -= elses.pop() + 1
            run = 0
        elif token.kind in ("sub", "add") or (token.kind == "name" and token.value == "not"):
            run += 1
        elif token.kind == "name" and token.value == "else":
            elses[-1] += 1
            depth += 1
            run = 0
        else:
            run = 0
        deepest = max(deepest, depth + run)
        if deepest > MAX_NESTING:
            message = f"This is nested deeper than {MAX_NESTING} levels."
            raise fail(message, token.start, token.end, "Compute parts of it in a `set` step before.", code="S253")
    return deepest

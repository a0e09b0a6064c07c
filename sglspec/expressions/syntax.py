"""Templates and expressions: from text to a checked syntax tree. Jinja2's parser, our own tokens and tree."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.lexer import Token as JinjaToken
from jinja2.lexer import TokenStream
from jinja2.parser import Parser

from sglspec.expressions import ast, whitespace
from sglspec.expressions.checks import check_nesting, check_template, check_tokens
from sglspec.expressions.convert import Converter
from sglspec.expressions.errors import ExpressionSyntaxError
from sglspec.expressions.lexer import Piece, split_template, tokenize_expression
from sglspec.expressions.names import NameUse, reads_of_expression, reads_of_template
from sglspec.expressions.tokens import Token, fail

MAX_BYTES = 65_536
"""The longest template or expression; a text without tags may be longer."""

_DEEP = 20
"""Nesting from which on Jinja's recursive parser gets a stack of its own."""

_WORD = re.compile(r"[A-Za-z_]\w*")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    `names`: the variables that it reads, with their places; `functions`: the library functions that it calls.
    """

    text: str
    root: ast.Expr
    names: tuple[NameUse, ...] = ()
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template.

    `single` is the expression of a template that is exactly one `{{ }}`, which keeps the type of its value.
    `ends_in_tag_line`: the last line held only tags; of a `message`, the newline before it is not part of the text.
    """

    text: str
    body: tuple[ast.Stmt, ...]
    names: tuple[NameUse, ...] = ()
    functions: tuple[str, ...] = ()
    single: Expression | None = field(default=None)
    ends_in_tag_line: bool = False
    is_message: bool = False

    @property
    def is_constant(self) -> bool:
        """True when the template has no tags, so that its text is the same for all values."""
        return all(isinstance(part, ast.Text) for part in self.body)


def parse_template(text: str, *, message: bool = False) -> Template:
    """Parse a template. Offsets in the result and in errors are code points of `text`.

    With `message`, blank lines around the source are dropped, as they are around a message given as one string.
    Raises `ExpressionSyntaxError` (S250 to S254, S304, S406, S501, S502).
    """
    lo, hi = whitespace.message_bounds(text) if message else (0, len(text))
    if "{{" not in text and "{%" not in text:
        constant = (ast.Text(lo, hi, text[lo:hi]),) if hi > lo else ()
        return Template(text, constant, is_message=message)
    _check_size(text)
    pieces = split_template(text, lo, hi)
    nesting = check_template(pieces)
    ends_in_tag_line = whitespace.apply(text, pieces)
    body = _parse(_stream(text, pieces), nesting, Converter.body)
    reads = reads_of_template(body)
    single = None
    if len(pieces) == 1 and pieces[0].kind == "variable" and isinstance(body[0], ast.Output):
        single = Expression(text, body[0].value, reads.names, reads.functions)
    return Template(text, body, reads.names, reads.functions, single, ends_in_tag_line, message)


def without_piece(text: str, at: int) -> str | None:
    """A template with blanks for the `{{ }}` around an offset, which is wrong, to look at the others. None where none
    is there, or where it is not clear what the tags are."""
    if text.startswith("{{{", at):
        return _blanked(text, at, text.find("}}", at) + 2)
    try:
        pieces = split_template(text, 0, len(text))
    except ExpressionSyntaxError:
        return None
    around = (piece for piece in pieces if piece.kind == "variable" and piece.start <= at < piece.end)
    return next((_blanked(text, piece.start, piece.end) for piece in around), None)


def _blanked(text: str, start: int, end: int) -> str:
    return text[:start] + " " * (end - start) + text[end:]


def parse_expression(text: str) -> Expression:
    """Parse a bare expression; one `{{ }}` around the whole is tolerated.

    Raises `ExpressionSyntaxError` (S251 to S253, S255, S304, S406, S501, S502).
    """
    _check_size(text)
    stripped = text.strip()
    if stripped.startswith("{{") and not stripped.startswith("{{{"):
        return _braced_expression(text, stripped)
    tokens = tokenize_expression(text)
    if not tokens:
        raise fail("The expression is empty.", 0, max(1, len(text)), "Write a condition or a value: `topic == 'x'`.")
    check_tokens(tokens, commas=False)
    for token in tokens:
        if token.kind == "string" and "{{" in text[token.start : token.end] and "}}" in text[token.start : token.end]:
            help = "A text in an expression is not a template; put texts together with `~`: `'a ' ~ topic`."
            raise fail("Braces stand inside a text of an expression.", token.start, token.end, help, code="S255")
    nesting = check_nesting(tokens, 0)
    end = tokens[-1].end
    whole = [Token("variable_begin", "", 0, 0), *tokens, Token("variable_end", "", end, end)]
    body = _parse(whole, nesting, Converter.body)
    statement = body[0]
    assert isinstance(statement, ast.Output)
    reads = reads_of_expression(statement.value)
    return Expression(text, statement.value, reads.names, reads.functions)


def looks_like_expression(text: str, visible: Collection[str]) -> bool:
    """True for a text that an author most likely meant as an expression: it equals a visible name, or it parses as an
    operation on visible names and `loop` only (`i + 1`, `topic | upper`, `a.b`)."""
    if text in visible:
        return True
    if len(text) > 500 or "\n" in text or "{{" in text or "{%" in text:
        return False
    if not any(word in visible or word == "loop" for word in _WORD.findall(text)):
        return False
    try:
        expression = parse_expression(text)
    except ExpressionSyntaxError:
        return False
    if isinstance(expression.root, ast.Literal | ast.ListLit | ast.MapLit | ast.Name | ast.Unary):
        # "- topic" and "[topic]" are ordinary text; `not topic` is not.
        return isinstance(expression.root, ast.Unary) and expression.root.op == "not" and _all(expression, visible)
    return _all(expression, visible)


def _all(expression: Expression, visible: Collection[str]) -> bool:
    return bool(expression.names) and all(use.name in visible or use.name == "loop" for use in expression.names)


def _braced_expression(text: str, stripped: str) -> Expression:
    """`{{ x }}` where a bare expression stands."""
    offset = text.index("{{")
    pieces = split_template(text, offset, offset + len(stripped))
    if len(pieces) != 1 or pieces[0].kind != "variable":
        start, end = offset, offset + 2
        help = "Write the expression without braces: `topic == 'x'`."
        raise fail("`{{` stands inside an expression.", start, end, help, code="S255")
    nesting = check_template(pieces)
    body = _parse(_stream(text, pieces), nesting, Converter.body)
    statement = body[0]
    assert isinstance(statement, ast.Output)
    reads = reads_of_expression(statement.value)
    return Expression(text, statement.value, reads.names, reads.functions)


def _check_size(text: str) -> None:
    if len(text) * 4 > MAX_BYTES and len(text.encode("utf-8", "replace")) > MAX_BYTES:
        message = f"A template or expression is at most {MAX_BYTES // 1024} KB long."
        help = "Put long text into an input, or into `defs.texts`, and insert it."
        raise fail(message, 0, len(text), help, code="S253")


def _stream(text: str, pieces: Sequence[Piece]) -> list[Token]:
    """All tokens of a template as Jinja's parser wants them."""
    tokens: list[Token] = []
    for piece in pieces:
        if piece.kind == "text":
            if piece.hi > piece.lo:
                tokens.append(Token("data", text[piece.lo : piece.hi], piece.lo, piece.hi))
        elif piece.tokens:
            kind = "variable" if piece.kind == "variable" else "block"
            tokens.append(Token(f"{kind}_begin", "", piece.start, piece.start + 2))
            tokens.extend(piece.tokens)
            tokens.append(Token(f"{kind}_end", "", piece.end - 2, piece.end))
    return tokens


class _TokenEnvironment(Environment):
    """An environment whose templates are already tokenized; a token's line is its index in `tokens`."""

    tokens: Sequence[Token] = ()

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        # Jinja's annotation says that values are texts; its own lexer hands over numbers as well.
        stream = (JinjaToken(at, token.kind, token.value) for at, token in enumerate(self.tokens))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        return TokenStream(stream, None, None)


def _parse(tokens: Sequence[Token], nesting: int, convert: Callable[[Converter, Sequence[nodes.Node]], _T]) -> _T:
    def work() -> _T:
        environment = _TokenEnvironment()
        environment.tokens = tokens
        try:
            tree = Parser(environment, "").subparse()
        except TemplateSyntaxError as error:
            raise _unexpected(tokens, error.lineno) from None
        except RecursionError:
            end = tokens[-1].end
            raise fail("This is nested too deeply.", tokens[0].start, end, code="S253") from None
        return convert(Converter(tokens), tree)

    return work() if nesting < _DEEP else _on_own_stack(work)


def _on_own_stack(work: Callable[[], _T]) -> _T:
    """Run a recursive parse on a fresh stack, so that it does not matter how deep the caller already is."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _unexpected(tokens: Sequence[Token], at: int) -> ExpressionSyntaxError:
    """Jinja's parser stopped at this token."""
    token = tokens[min(at, len(tokens) - 1)]
    previous = tokens[at - 1] if at else token
    if token.kind in ("variable_end", "block_end", "data"):
        return fail(
            f"The expression ends too early: something is missing after `{_shown(previous)}`.",
            previous.start,
            previous.end,
        )
    if token.kind == "lbrace":
        return fail("`{` does not belong here.", token.start, token.end, "An object is written `{'key': value}`.")
    message, help = f"`{_shown(token)}` does not belong here.", None
    if previous.value in ("is", "not") and token.kind in ("string", "integer", "float"):
        help = "Write `==` to compare."
    elif token.value == "for":
        help = "Write `items | map('upper')`, `items | map(attribute='name')` or `items | select('odd')`."
    if previous.kind in ("variable_begin", "block_begin"):
        message = f"An expression cannot start with `{_shown(token)}`."
    return fail(message, token.start, token.end, help)


def _shown(token: Token) -> str:
    shown = f"'{token.value}'" if token.kind == "string" else str(token.value)
    return shown if len(shown) <= 30 else shown[:27] + "…"

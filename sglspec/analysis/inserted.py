"""Values inside the text of a constraint: how they are written there, and a look at the text before they are known."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sglspec.analysis.grammar import ConstraintError
from sglspec.analysis.regexes import escape
from sglspec.expressions import ast

MAX_VARIANTS = 64
"""Ways through the branches of one text that are looked at."""
_CONTROL = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(slots=True)
class GrammarText:
    """A Lark grammar that is put together from what its author wrote and from values, which match as they are written
    wherever they stand: by themselves, inside of `"…"`, and inside of `/…/`."""

    text: str = ""
    _inside: str = ""
    """What is open: `"`, `/`, `#` for a remark, or nothing."""

    def written(self, text: str) -> None:
        """A piece of the author's."""
        self.text += text
        escaped = False
        for at, char in enumerate(text):
            if escaped or (char == "\\" and self._inside in ('"', "/")):
                escaped = not escaped
            elif char == "\n" or char == self._inside != "#":
                self._inside = ""
            elif not self._inside and char in '"/#':
                self._inside = "#" if text[at : at + 2] == "//" else char

    def value(self, value: str) -> str:
        """A value. Returns what was written for it."""
        match self._inside:
            case '"':
                shown = json.dumps(value, ensure_ascii=False)[1:-1]
            case "/":
                shown = "".join(_CONTROL.get(char, char) for char in escape(value).replace("/", "\\/"))
            case "#":
                shown = " ".join(value.split())
            case _:
                shown = json.dumps(value, ensure_ascii=False)
        self.text += shown
        return shown


@dataclass(slots=True)
class _Variant:
    """One way through the branches: the text with a letter in place of each value. offsets: for each character the
    place in the template that it comes from; values: the characters that stand for a value."""

    grammar: bool
    text: str = ""
    offsets: list[int] = field(default_factory=list[int])
    values: set[int] = field(default_factory=set[int])
    _lark: GrammarText = field(default_factory=GrammarText)

    def written(self, part: ast.Text) -> None:
        self._lark.written(part.text)
        # a pattern of `defs` is longer than the `{{ name }}` that it stands for
        last = max(part.end - 1, part.start)
        self.offsets += [min(part.start + at, last) for at in range(len(part.text))]
        self.text += part.text

    def value(self, part: ast.Output) -> None:
        shown = self._lark.value("x") if self.grammar else "x"
        self.values |= set(range(len(self.text), len(self.text) + len(shown)))
        self.offsets += [part.start] * len(shown)
        self.text += shown


_Key = tuple[str, str, int, int]
"""A fault's code and message, and its place in the template."""


def early_faults(
    body: Sequence[ast.Stmt], compiled: Callable[[str], object], *, grammar: bool
) -> list[tuple[ConstraintError, int, int]]:
    """The faults that the text has whatever its values are, with their places in the template. Every branch of
    `{% if %}` counts as one that may be taken."""
    seen = [(set(variant.offsets), _fault(variant, compiled)) for variant in _variants(body, grammar)]
    faults = dict(found for _, found in seen if found is not None)
    return [
        (error, key[2], key[3])
        for key, error in faults.items()
        if all(found is not None and found[0] == key for places, found in seen if key[2] in places)
    ]


def _fault(variant: _Variant, compiled: Callable[[str], object]) -> tuple[_Key, ConstraintError] | None:
    try:
        compiled(variant.text)
    except ConstraintError as error:
        if error.start is None or not variant.offsets or _depends(error, variant):
            return None
        first = min(error.start, len(variant.offsets) - 1)
        last = min(max((error.end or 0) - 1, first), len(variant.offsets) - 1)
        if first in variant.values:
            message = "no value can be inserted here"
            error = ConstraintError(error.code, message, "Write this part of the constraint itself.")
        start, end = variant.offsets[first], variant.offsets[last] + 1
        return (error.code, error.message, start, max(end, start + 1)), error
    return None


def _depends(error: ConstraintError, variant: _Variant) -> bool:
    """Whether another value may be right: sizes depend on it, and what a pattern matches."""
    known = not variant.values or (variant.grammar and "no text matches" in error.message)
    return error.code == "S505" and not known


def _variants(body: Sequence[ast.Stmt], grammar: bool) -> Iterator[_Variant]:
    """All ways through the branches where they are few, else each branch once with the first of all others."""
    choices = list(_choices(body))
    ways: Iterable[tuple[int, ...]] = itertools.product(*(range(number) for _, number in choices))
    total = 1
    for _, number in choices:
        total *= number
    if total > MAX_VARIANTS:
        places = [(at, one) for at, (_, number) in enumerate(choices) for one in range(number)][:MAX_VARIANTS]
        ways = [tuple(one if at == here else 0 for here in range(len(choices))) for at, one in places]
    for way in ways:
        variant = _Variant(grammar)
        _walk(body, {id(statement): one for (statement, _), one in zip(choices, way, strict=True)}, variant)
        yield variant


def _choices(body: Sequence[ast.Stmt]) -> Iterator[tuple[ast.Stmt, int]]:
    """Every statement with branches, and how many ways lead through it."""
    for statement in body:
        match statement:
            case ast.If(branches=branches):
                closed = any(branch.test is None for branch in branches)
                yield statement, len(branches) + (0 if closed else 1)
                for branch in branches:
                    yield from _choices(branch.body)
            case ast.For(body=inner, otherwise=otherwise):
                yield statement, 2
                yield from _choices([*inner, *otherwise])
            case _:
                pass


def _walk(body: Sequence[ast.Stmt], way: dict[int, int], variant: _Variant) -> None:
    for statement in body:
        match statement:
            case ast.Text():
                variant.written(statement)
            case ast.Output():
                variant.value(statement)
            case ast.If(branches=branches):
                taken = way[id(statement)]
                _walk(branches[taken].body if taken < len(branches) else (), way, variant)
            case ast.For(body=inner, otherwise=otherwise):
                _walk(otherwise if way[id(statement)] else inner, way, variant)

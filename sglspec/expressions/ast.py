"""The syntax tree of templates and expressions. Every node knows its place as code-point offsets into its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf


@dataclass(frozen=True, slots=True)
class Node:
    """From `start` up to, not including, `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A constant that stands in the text: text, number, true, false, null."""

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class ListLit(Node):
    """`[a, b]`, and `(a, b)`, which means the same."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class MapLit(Node):
    """`{'a': b}`."""

    entries: tuple[tuple[Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class Attribute(Node):
    """`x.name`; `name_start` is where the name stands."""

    value: Expr
    name: str
    name_start: int


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`x[index]`, and `x.0`."""

    value: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """`x[lower:upper:step]`."""

    value: Expr
    lower: Expr | None
    upper: Expr | None
    step: Expr | None


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`function(args, key=value)`; `name_start`, `name_end` are the place of the function's name.

    `meta(x)` is a call whose argument is the name itself and not its value.
    """

    function: str
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...]
    name_start: int
    name_end: int


@dataclass(frozen=True, slots=True)
class Filter(Node):
    """`value | function(args, key=value)`: the call of a function with `value` as its first argument."""

    value: Expr
    function: str
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...]
    name_start: int
    name_end: int


@dataclass(frozen=True, slots=True)
class Test(Node):
    """`value is test`, `value is not test(arg)`."""

    value: Expr
    test: str
    args: tuple[Expr, ...]
    negated: bool


CompareOp = OneOf["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
BinaryOp = OneOf["+", "-", "*", "/", "//", "%", "**"]
UnaryOp = OneOf["-", "+", "not"]


@dataclass(frozen=True, slots=True)
class Compare(Node):
    """A chain: `first op value op value …`, true when every neighbouring pair is."""

    first: Expr
    rest: tuple[tuple[CompareOp, Expr], ...]


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """Arithmetic."""

    op: BinaryOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Concat(Node):
    """`a ~ b ~ c`: the texts of all parts, one after another."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """`-x`, `+x`, `not x`."""

    op: UnaryOp
    operand: Expr


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """`a and b and c`, `a or b`: the operand that decides, as in Python."""

    op: OneOf["and", "or"]
    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """`body if test else otherwise`; null where `otherwise` is missing."""

    test: Expr
    body: Expr
    otherwise: Expr | None


Expr = (
    Name
    | Literal
    | ListLit
    | MapLit
    | Attribute
    | Index
    | Slice
    | Call
    | Filter
    | Test
    | Compare
    | Binary
    | Concat
    | Unary
    | Logical
    | Conditional
)


@dataclass(frozen=True, slots=True)
class Text(Node):
    """Literal text of a template, after the whitespace rules."""

    text: str


@dataclass(frozen=True, slots=True)
class Output(Node):
    """`{{ expr }}`."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Branch(Node):
    """One arm of an `{% if %}`; `test` is None for `{% else %}`."""

    test: Expr | None
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If(Node):
    """`{% if %} {% elif %} {% else %} {% endif %}`."""

    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class For(Node):
    """`{% for targets in items if filter %} body {% else %} otherwise {% endfor %}`."""

    targets: tuple[Name, ...]
    items: Expr
    filter: Expr | None
    body: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...]
    uses_loop: bool


Stmt = Text | Output | If | For

"""What a library function is, and what functions get to work with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from sglspec.expressions.budget import Budget
from sglspec.expressions.errors import ArgumentProblem
from sglspec.expressions.values import Value, describe, value_to_text

Returns = Literal["string", "integer", "number", "boolean", "array", "object", "any"]
Names = Literal["function", "test"]


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter. `variadic` takes all further positional arguments; `own_name` is what Python calls it."""

    name: str
    own_name: str
    required: bool
    default: Value
    variadic: bool = False
    keyword_only: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the library; as a filter its first argument is the value before `|`.

    `example` is an expression without variables and the value that it has. `names` says what the text in the second
    argument names, for functions that apply another one to every item. `aliases` are other names of the same function.
    `open_keywords`: named arguments beyond the parameters are passed on.
    """

    name: str
    params: tuple[Param, ...]
    returns: Returns
    doc: str
    example: tuple[str, Value]
    implementation: Callable[..., Value]
    aliases: tuple[str, ...] = ()
    names: Names | None = None
    open_keywords: bool = False

    @property
    def signature(self) -> str:
        """`name(value, width=4)`."""
        parts: list[str] = []
        for param in self.params:
            if param.variadic:
                parts.append(f"{param.name}…")
            elif param.required:
                parts.append(param.name)
            else:
                default = "null" if param.default is None else _literal(param.default)
                parts.append(f"{param.name}={default}")
        return f"{self.name}({', '.join(parts)})"


def _literal(value: Value) -> str:
    return "'" + value.replace("\n", "\\n") + "'" if isinstance(value, str) else value_to_text(value)


@dataclass(frozen=True, slots=True)
class Context:
    """What an implementation may use: the budget, and other functions and tests for `map`, `select`, `reject`."""

    budget: Budget
    apply: Callable[[str, Sequence[Value], Mapping[str, Value]], Value]
    test: Callable[[str, Value, Sequence[Value]], bool]


def function(
    implementation: Callable[..., Value],
    returns: Returns,
    example: str,
    value: Value,
    *,
    name: str | None = None,
    aliases: tuple[str, ...] = (),
    names: Names | None = None,
) -> Function:
    """A table entry; parameters and the one-line doc come from the implementation (a trailing `_` is dropped)."""
    parameters = list(inspect.signature(implementation).parameters.values())[1:]
    open_keywords = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    params = tuple(
        Param(
            p.name.rstrip("_"),
            p.name,
            p.default is inspect.Parameter.empty and p.kind is not inspect.Parameter.VAR_POSITIONAL,
            None if p.default is inspect.Parameter.empty else cast(Value, p.default),
            p.kind is inspect.Parameter.VAR_POSITIONAL,
            p.kind is inspect.Parameter.KEYWORD_ONLY,
        )
        for p in parameters
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    )
    doc = (implementation.__doc__ or "").strip().split("\n")[0]
    own = name or implementation.__name__.rstrip("_")
    return Function(own, params, returns, doc, (example, value), implementation, aliases, names, open_keywords)


def bind(function: Function, args: Sequence[Value], kwargs: Mapping[str, Value]) -> tuple[list[Value], dict[str, Any]]:
    """Arguments as the implementation takes them: positional ones, and those by name."""
    problem = arity_problem(function, len(args), tuple(kwargs))
    if problem is not None:
        raise problem
    renamed = {param.name: param.own_name for param in function.params}
    return list(args), {renamed.get(name, name): value for name, value in kwargs.items()}


def arity_problem(function: Function, positional: int, keywords: Sequence[str]) -> ArgumentProblem | None:
    """Why a call with so many arguments and these keywords cannot be right, or None.

    Functions that pass arguments on take any number of them.
    """
    help = f"It is `{function.signature}`."
    plain = [p for p in function.params if not p.variadic and not p.keyword_only]
    variadic = any(p.variadic for p in function.params)
    if positional > len(plain) and not variadic:
        most = "no arguments" if not plain else "one argument" if len(plain) == 1 else f"{len(plain)} arguments"
        return ArgumentProblem(f"takes at most {most}, and there are {positional}.", help, "S406")
    taken = {p.name for p in plain[:positional]}
    known = {p.name for p in function.params if not p.variadic}
    for at, keyword in enumerate(keywords):
        if keyword not in known and not function.open_keywords:
            return ArgumentProblem(f"has no argument `{keyword}`.", help, "S406")
        if keyword in taken or keyword in keywords[:at]:
            return ArgumentProblem(f"gets its argument `{keyword}` twice.", help, "S406")
    for param in plain[positional:]:
        if param.required and param.name not in keywords:
            return ArgumentProblem(f"needs its argument `{param.name}`.", help, "S406")
    return None


# What implementations say about their arguments. Messages continue the name of the function.


def as_text(value: Value) -> str:
    """Text; numbers and booleans become text as they would in a prompt."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | dict):
        raise ArgumentProblem(f"needs text, and this is {describe(value)}.", _null_help(value))
    return value_to_text(value)


def folded(ctx: Context, text: str) -> str:
    """The text itself, charged for a change between capital and small letters.

    Outside ASCII, Python works in a buffer of twelve bytes for every character.
    """
    ctx.budget.text(len(text), 1 if text.isascii() else 12)
    return text


def as_list(value: Value) -> list[Value]:
    """A list."""
    if not isinstance(value, list):
        raise ArgumentProblem(f"needs a list, and this is {describe(value)}.", _null_help(value))
    return value


def as_object(value: Value) -> dict[str, Value]:
    """An object."""
    if not isinstance(value, dict):
        raise ArgumentProblem(f"needs an object, and this is {describe(value)}.", _null_help(value))
    return value


def as_number(value: Value) -> int | float:
    """A number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        help = "`int` and `float` turn text into a number." if isinstance(value, str) else _null_help(value)
        raise ArgumentProblem(f"needs a number, and this is {describe(value)}.", help)
    return value


def as_integer(value: Value, lowest: int | None = None, highest: int | None = None) -> int:
    """A whole number within bounds."""
    number = as_number(value)
    if isinstance(number, float):
        if not number.is_integer():
            raise ArgumentProblem(f"needs a whole number, and this is {number}.")
        number = int(number)
    if lowest is not None and number < lowest:
        raise ArgumentProblem(f"needs a number of at least {lowest}, and this is {number}.")
    if highest is not None and number > highest:
        raise ArgumentProblem(f"takes numbers up to {highest:,}, and this is larger.", cause="S253")
    return number


def _null_help(value: Value) -> str | None:
    return "`default` gives a value for null: `x | default('none')`." if value is None else None


def item_at(value: Value, path: Value) -> Value:
    """What `attribute='a.0.b'` names inside a value; null where a part is absent."""
    if isinstance(path, bool) or not isinstance(path, int | str):
        raise ArgumentProblem(f"needs the name of an attribute, and this is {describe(path)}.")
    for part in [path] if isinstance(path, int) else path.split("."):
        number = int(part) if isinstance(part, int) or (part.isdecimal() and len(part) < 10) else None
        if value is None:
            return None
        if isinstance(value, dict):
            value = value.get(str(part))
        elif isinstance(value, list) and number is not None:
            value = value[number] if -len(value) <= number < len(value) else None
        else:
            raise ArgumentProblem(f"looks for `{path}`, and {describe(value)} has no parts by that name.")
    return value

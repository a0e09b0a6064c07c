"""`format`: `%`-formatting as in Jinja, with bounded widths and without access to anything but the arguments."""

from __future__ import annotations

import re

from sglspec.expressions.errors import ArgumentProblem
from sglspec.expressions.function import Context, Function, as_number, as_text, function
from sglspec.expressions.values import Value, char_width, describe, to_json, value_to_text

_PLACEHOLDER = re.compile(r"%(?:\((\w+)\))?([-+ 0#]*)(\d+|\*)?(?:\.(\d+|\*)?)?[hlL]?(.)?", re.DOTALL)
MAX_WIDTH = 1_000
MAX_PRECISION = 100


def format_(ctx: Context, value: Value, *args: Value, **by_name: Value) -> Value:
    """The text with `%s`, `%d`, `%.2f`, `%(name)s` … replaced by the arguments."""
    text = as_text(value)
    ctx.budget.text(len(text), char_width(text))
    if args and by_name:
        raise ArgumentProblem("takes arguments by place or by name, not both.", cause="S406")
    named = args[0] if len(args) == 1 and isinstance(args[0], dict) and "%(" in text else by_name or None
    pieces: list[str] = []
    at, used = 0, 0
    for match in _PLACEHOLDER.finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        ctx.budget.charge(8)
        if match.group(5) == "%":
            pieces.append("%")
            continue
        if match.group(1) is not None:
            argument = _named(named, match.group(1))
        else:
            if used >= len(args):
                raise ArgumentProblem("has more placeholders than arguments.", "Write `%%` for a percent sign.", "S406")
            argument, used = args[used], used + 1
        piece = _one(ctx, match, argument)
        ctx.budget.text(len(piece), char_width(piece))
        pieces.append(piece)
    if named is None and used < len(args):
        raise ArgumentProblem(f"has {used} placeholders for {len(args)} arguments.", cause="S406")
    pieces.append(text[at:])
    return "".join(pieces)


def _named(named: Value, name: str) -> Value:
    if not isinstance(named, dict) or name not in named:
        raise ArgumentProblem(f"finds no value for `%({name})s`.", "Write `'%(a)s' | format(a=1)`.", "S406")
    return named[name]


def _one(ctx: Context, match: re.Match[str], argument: Value) -> str:
    _, flags, width, precision, kind = match.groups()
    if width == "*" or precision == "*":
        raise ArgumentProblem("takes no `*` in a placeholder.", cause="S406")
    if len(width or "") > 4 or int(width or 0) > MAX_WIDTH or len(precision or "") > 4:
        raise ArgumentProblem(f"takes widths up to {MAX_WIDTH:,}.", cause="S253")
    if kind in ("s", "r"):
        shown = value_to_text(argument, ctx.budget) if kind == "s" else to_json(argument, ctx.budget)
        if precision is not None:
            shown = shown[: int(precision)]
        pad = int(width or 0)
        return shown.ljust(pad) if "-" in flags else shown.rjust(pad)
    if kind is None or kind not in "diufFeEgGxXo":
        help = "Write `%%` for a percent sign."
        raise ArgumentProblem(f"does not know the placeholder `{match.group()}`.", help, "S406")
    if int(precision or 0) > MAX_PRECISION:
        raise ArgumentProblem(f"takes up to {MAX_PRECISION} digits.", cause="S253")
    number = as_number(argument)
    has_point = "." in match.group()
    spec = f"%{flags[:5]}{width or ''}{'.' + (precision or '') if has_point else ''}{kind}"
    if kind in "xXo" and isinstance(number, float):
        raise ArgumentProblem(f"needs a whole number for `%{kind}`, and this is {describe(argument)}.")
    return spec % number


FORMAT: tuple[Function, ...] = (function(format_, "string", "'%s: %.1f %%' | format('share', 12.34)", "share: 12.3 %"),)

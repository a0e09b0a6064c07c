"""What can be said about a call without running it: the function exists, the number and names of arguments fit."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sglspec.expressions import ast
from sglspec.expressions.errors import ArgumentProblem
from sglspec.expressions.function import Function, arity_problem
from sglspec.expressions.library import LIBRARY, SCOPE_FUNCTIONS, TESTS
from sglspec.expressions.library_regex import compile_pattern
from sglspec.expressions.tokens import fail

# What authors who know Jinja, Python or JavaScript write, and what it is called here.
_OTHER_NAMES = {
    "tojson": "to_json",
    "json": "to_json",
    "dumps": "to_json",
    "fromjson": "from_json",
    "loads": "from_json",
    "groupby": "group_by",
    "count": "len",
    "size": "len",
    "selectattr": "select(attribute='name')",
    "rejectattr": "reject(attribute='name')",
    "d": "default",
    "string": "str",
    "capitalize": "title",
    "average": "mean",
    "avg": "mean",
    "std": "stddev",
    "toUpperCase": "upper",
    "toLowerCase": "lower",
    "uppercase": "upper",
    "lowercase": "lower",
    "splitlines": "lines",
    "dictsort": "items",
    "append": "+",
    "center": "format",
    "wordcount": "split | len",
    "mode": "most_common",
    "majority": "most_common",
    "concat": "~",
    "includes": "contains",
    "starts_with": "startswith",
    "ends_with": "endswith",
    "re_search": "regex_search",
}


def check_call(call: ast.Call | ast.Filter, args: Sequence[ast.Expr]) -> None:
    """Raise S304 for an unknown function and S406 for arguments that cannot fit. `args` has the value of a filter."""
    name = call.function
    if name in SCOPE_FUNCTIONS:
        _check_scope_function(call, args)
        return
    entry = _known(name, call.name_start, call.name_end)
    problem = arity_problem(entry, len(args), [key for key, _ in call.kwargs])
    if problem is not None:
        raise fail(f"`{name}` {problem.message}", call.name_start, call.end, problem.help, code="S406")
    if entry.names is not None:
        _check_named(call, entry, args)
    if name.startswith("regex_"):
        _check_pattern(call, args)


def _known(name: str, start: int, end: int) -> Function:
    if name in LIBRARY:
        return LIBRARY[name]
    message = f"There is no function `{name}`."
    raise fail(message, start, end, nearest_function(name), code="S304")


def nearest_function(name: str) -> str | None:
    """Help for an unknown function: the nearest name."""
    if name in _OTHER_NAMES:
        return f"Write `{_OTHER_NAMES[name]}`."
    close = difflib.get_close_matches(name[:50], [*LIBRARY, *SCOPE_FUNCTIONS], 1, 0.7)
    return f"Did you mean `{close[0]}`?" if close else None


def method_help(receiver: str, method: str, arguments: str = "") -> str | None:
    """Help for `receiver.method(arguments)`; the arguments come with their brackets."""
    if method == "join" and arguments:
        return f"Write `{arguments[1:-1]} | join({receiver})`: the list comes first."
    if method in LIBRARY:
        return f"Write `{receiver} | {method}{arguments}`."
    if method in _OTHER_NAMES and _OTHER_NAMES[method] in LIBRARY:
        return f"Write `{receiver} | {_OTHER_NAMES[method]}{arguments}`."
    if method == "get":
        return f"Write `{receiver}.name | default('…')`."
    return nearest_function(method)


def _check_scope_function(call: ast.Call | ast.Filter, args: Sequence[ast.Expr]) -> None:
    name = call.function
    if name != "meta":
        if args or call.kwargs:
            raise fail(f"`{name}()` takes no arguments.", call.name_start, call.end, code="S406")
        return
    if len(args) != 1 or call.kwargs or not isinstance(args[0], ast.Name):
        help = "Write `meta(answer)`."
        raise fail("`meta` takes the name of one variable.", call.name_start, call.end, help, code="S406")


def _check_named(call: ast.Call | ast.Filter, entry: Function, args: Sequence[ast.Expr]) -> None:
    """`map('upper')`: the function or test that is named must exist and take what it will get."""
    if len(args) < 2:
        if entry.names == "function" and not any(key == "attribute" for key, _ in call.kwargs):
            help = "Write `map('upper')` or `map(attribute='name')`."
            raise fail(f"`{call.function}` needs the name of a function.", call.name_start, call.end, help, code="S406")
        return
    named = args[1]
    if not isinstance(named, ast.Literal) or not isinstance(named.value, str):
        message = f"`{call.function}` needs a name between quotes here."
        raise fail(message, named.start, named.end, "Write `map('upper')`.", code="S406")
    if named.value in SCOPE_FUNCTIONS:
        raise fail(f"`{named.value}` cannot be used here.", named.start, named.end, code="S406")
    if entry.names == "test" and named.value in TESTS:
        check_test(named.value, len(args) - 2, named.start, named.end)
        return
    if entry.names == "test" and named.value not in LIBRARY:
        message = f"There is no test `{named.value}`."
        raise fail(message, named.start, named.end, _nearest_test(named.value), code="S304")
    inner = _known(named.value, named.start, named.end)
    own = {param.name for param in entry.params} if entry.names == "test" else set[str]()
    problem = arity_problem(inner, len(args) - 1, [key for key, _ in call.kwargs if key not in own])
    if problem is not None:
        raise fail(f"`{named.value}` {problem.message}", named.start, call.end, problem.help, code="S406")


def check_test(name: str, arguments: int, start: int, end: int) -> None:
    """Raise S304 for an unknown test and S406 for a wrong number of arguments."""
    entry = TESTS.get(name)
    if entry is None:
        raise fail(f"There is no test `{name}`.", start, end, _nearest_test(name), code="S304")
    if entry.arguments != arguments:
        wanted = "one argument" if entry.arguments else "no argument"
        raise fail(f"The test `{name}` takes {wanted}, not {arguments}.", start, end, code="S406")


def _nearest_test(name: str) -> str | None:
    close = difflib.get_close_matches(name[:50], list(TESTS), 1, 0.7)
    if close:
        return f"Did you mean `{close[0]}`?"
    return f"Write `x | {name}`." if name in LIBRARY else "Compare with `==`."


def _check_pattern(call: ast.Call | ast.Filter, args: Sequence[ast.Expr]) -> None:
    """A pattern that stands in the text is compiled right away."""
    pattern = args[1] if len(args) > 1 else dict(call.kwargs).get("pattern")
    if isinstance(pattern, ast.Literal) and isinstance(pattern.value, str):
        try:
            compile_pattern(pattern.value)
        except ArgumentProblem as problem:
            message = f"`{call.function}` {problem.message}"
            raise fail(message, pattern.start, pattern.end, problem.help, code=problem.cause or "S501") from None

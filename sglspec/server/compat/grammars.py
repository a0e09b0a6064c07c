"""Constraints of other protocols as grammars of the engine."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from typing import Any, Literal, cast

from sglspec.analysis.constraints import grammar_constraint, regex_constraint, schema_constraint
from sglspec.analysis.grammar import ConstraintError
from sglspec.analysis.regexes import check_stop_sizes, escape, stop_pattern
from sglspec.server.compat.fields import Refused

Kind = Literal["regex", "schema", "lark"]
KEPT = 128
_MAX_KEPT_TEXT = 65_536


class Grammars:
    """Checks constraints beside the event loop, one at a time, and remembers what came out."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Kind, str], str] = OrderedDict()
        self._checking = asyncio.Lock()

    async def grammar(self, kind: Kind, source: str, param: str) -> str:
        """The grammar. source: the pattern, the schema as JSON, or the Lark text. Raises Refused."""
        key = (kind, source)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        async with self._checking:
            try:
                found = await asyncio.to_thread(_compile, kind, source)
            except ConstraintError as error:
                raise refusal(error, param) from None
        if len(source) <= _MAX_KEPT_TEXT:
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found


def read_schema(text: str, param: str) -> str:
    """A JSON Schema that came as a text, in one notation. Raises Refused."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refused(f"`{param}` is not JSON.", param) from None
    return write_schema(found, param)


def write_schema(schema: Any, param: str) -> str:
    """A JSON Schema as a text. Raises Refused."""
    if schema is True:
        schema = cast("dict[str, Any]", {})
    if not isinstance(schema, dict):
        raise Refused(f"`{param}` is not a JSON Schema: it must be an object.", param)
    return json.dumps(schema, ensure_ascii=False)


def choice_pattern(choices: tuple[str, ...]) -> str:
    """A pattern that matches exactly these texts."""
    return "|".join(map(escape, choices))


def stop_patterns(patterns: tuple[str, ...], param: str) -> tuple[str, ...]:
    """Stop patterns in the engine's notation. Raises Refused."""
    try:
        found = [stop_pattern(pattern) for pattern in patterns]
        check_stop_sizes(size for _, size in found)
    except ConstraintError as error:
        raise refusal(error, param) from None
    return tuple(pattern for pattern, _ in found)


def refusal(error: ConstraintError, param: str) -> Refused:
    """What is wrong with a constraint, and where in it."""
    where = "".join(f"/{step}" for step in error.pointer)
    place = f" (at `{where}`)" if where else f" (at character {error.start + 1})" if error.start else ""
    help = f" {error.help}" if error.help else ""
    return Refused(f"`{param}` cannot be used: {error.message}{place}.{help}", param, code="invalid_constraint")


def _compile(kind: Kind, source: str) -> str:
    if kind == "regex":
        return regex_constraint(source).grammar
    if kind == "lark":
        return grammar_constraint(source).grammar
    return schema_constraint(json.loads(source)).grammar


def _no_constant(word: str) -> Any:
    raise ValueError(word)


__all__ = ["Grammars", "Kind", "choice_pattern", "read_schema", "refusal", "stop_patterns", "write_schema"]

"""Settings of the local engine as they come from outside: `--engine prefix_cache=off,order=fcfs`, or a mapping.

Which there are and what they take follows from the fields of `EngineConfig`; torch is not needed to tell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from sglspec.diagnostics import Diagnostic, SpecError, sentence
from sglspec.diagnostics.suggest import nearest
from sglspec_engine.config import EngineConfig

_SWITCH = {"on": True, "off": False}
_ALSO = {"true": "on", "false": "off"}
_AUTO = "auto"
"""How None is written where a field may be None: the engine decides."""
_MAX_DIGITS = 18
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def split_switches(texts: Iterable[str]) -> dict[str, str]:
    """`name=value,name=value`, several times. Raises SpecError (S610), also for a name that is there twice."""
    found: dict[str, str] = {}
    for item in (item for text in texts for item in text.split(",")):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name:
            what = f"`{_short(item)}`" if item.strip() else "An empty text"
            _fail(f"{what} is no engine setting.", "Write `name=value`, with commas between several.")
        if name in found:
            _fail(f"The engine setting `{_short(name)}` is given twice.", "Leave one of them out.")
        found[name] = value
    return found


def engine_settings(given: Mapping[str, object]) -> dict[str, Any]:
    """Fields of `EngineConfig`. A value is of the field's type, or a text as `--engine` takes it.

    Raises SpecError (S610) for a name that is not known and for a value that the setting does not take.
    """
    kinds = get_type_hints(EngineConfig)
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if name not in kinds:
            near = nearest(name, kinds)
            hint = f"Did you mean `{near}`? " if near else ""
            what = f"`{_short(name)}`" if name else "with an empty name"
            _fail(f"There is no engine setting {what}.", f"{hint}Known: {', '.join(kinds)}.")
        settings[name] = _value(name, value, kinds[name])
    try:
        EngineConfig(**settings)
    except ValueError as error:
        _fail(sentence(f"The engine cannot be set like this: {error}"))
    return settings


def _value(name: str, value: object, kind: Any) -> Any:
    if kind is bool:
        return value if isinstance(value, bool) else _word(name, _ALSO.get(str(value), value), _SWITCH)
    if get_origin(kind) is Literal:
        return _word(name, value, {word: word for word in get_args(kind)})
    if kind is str:
        return value if isinstance(value, str) and value else _fail(f"`{name}` takes a name.")
    optional = type(None) in get_args(kind)
    if optional and (value is None or value == _AUTO):
        return None
    number = _number(value, float if kind is float else int)
    if number is None:
        expected = "a number" if kind is float else "a whole number"
        also = f" or {_AUTO}" if optional else ""
        _fail(f"`{name}` takes {expected}{also}, not `{_short(value)}`.")
    return number


def _number(value: object, kind: type[int] | type[float]) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, kind, str)) or len(str(value)) > _MAX_DIGITS:
        return None
    if isinstance(value, str) and _NUMBER.fullmatch(value) is None:
        return None
    try:
        number = kind(value)
    except ValueError:  # a fraction where a whole number is wanted
        return None
    return number if math.isfinite(number) else None


def _word(name: str, value: object, words: Mapping[str, Any]) -> Any:
    if isinstance(value, str) and value in words:
        return words[value]
    near = nearest(value, words) if isinstance(value, str) else None
    *some, last = words
    listed = f"{', '.join(some)} or {last}" if some else last
    _fail(f"`{name}` takes {listed}, not `{_short(value)}`.", f"Did you mean `{near}`?" if near else None)


def _short(value: object) -> str:
    """A value for a message: not too long, and nothing in it that a terminal would follow."""
    text = str(value)
    text = text if len(text) <= 40 else text[:39] + "…"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _fail(message: str, help: str | None = None) -> NoReturn:
    raise SpecError(Diagnostic("S610", message, help=help))

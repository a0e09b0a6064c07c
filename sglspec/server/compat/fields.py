"""Reading requests of other protocols: strict JSON, every key with its type and bounds, and no key passed over."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar, cast

from starlette.requests import Request

from sglspec.server.body import JSON_TYPES, receive_body
from sglspec.server.problems import clip

T = TypeVar("T")
_MAX_BODY = 8_000_000
_HALF = b"\\ud"


class Refused(Exception):
    """A request that is answered with an error. param: the key that is to blame; code: a word for programs."""

    def __init__(
        self,
        message: str,
        param: str | None = None,
        *,
        status: int = 400,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = clip(message)
        self.param = None if param is None else clip(param, 100)
        self.status = status
        self.code = code
        self.headers = headers or {}


async def read_object(request: Request) -> dict[str, Any]:
    """The body. Raises Refused (400), and Problem for one of another type or size."""
    raw = await receive_body(request, JSON_TYPES, _MAX_BODY)
    try:
        found = json.loads(raw.data, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
        if _HALF in raw.data.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise Refused("The body is nested too deeply.") from None
    except UnicodeEncodeError:
        raise Refused("The body has half a surrogate pair in a text.") from None
    except UnicodeDecodeError:
        raise Refused("The body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise Refused(f"The body is not JSON: {error.msg}, line {error.lineno}, column {error.colno}.") from None
    except ValueError:
        raise Refused("The body has a number with too many digits.") from None
    if not isinstance(found, dict):
        raise Refused("The body is not a JSON object.")
    return cast("dict[str, Any]", found)


class Fields:
    """The keys of an object. null is the same as no key. Every method raises Refused."""

    def __init__(self, data: dict[str, Any], within: str = "") -> None:
        self._data = {key: value for key, value in data.items() if value is not None}
        self._within = within
        self._known: set[str] = set()

    def path(self, name: str) -> str:
        """A key as errors name it."""
        return f"{self._within}.{name}" if self._within else name

    def get(self, name: str) -> Any:
        """The value as it is, None where there is none."""
        self._known.add(name)
        return self._data.get(name)

    def has(self, name: str) -> bool:
        self._known.add(name)
        return name in self._data

    def wrong(self, name: str, wanted: str) -> NoReturn:
        raise Refused(f"`{self.path(name)}` must be {wanted}.", self.path(name))

    def integer(self, name: str, default: T, low: int, high: int) -> int | T:
        value = self.get(name)
        return default if value is None else self.as_integer(name, value, low, high)

    def as_integer(self, name: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.wrong(name, f"a whole number from {low} to {high}")
        return value

    def number(self, name: str, default: float, low: float, high: float, *, above: bool = False) -> float:
        """above: `low` itself is too little."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(name, "a number")
        if not low <= value <= high or (above and value == low):
            self.wrong(name, f"{'above' if above else 'from'} {low:g} {'and at most' if above else 'to'} {high:g}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, "true or false")
        return value

    def text(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            self.wrong(name, "a text")
        return value

    def texts(self, name: str, most: int, longest: int) -> tuple[str, ...]:
        """A text or a list of texts, none of them empty."""
        value = self.get(name)
        found = [value] if isinstance(value, str) else [] if value is None else value
        wanted = f"a text or a list of at most {most} texts of 1 to {longest} characters"
        return tuple(
            self._list(name, found, most, wanted, lambda item: isinstance(item, str) and 0 < len(item) <= longest)
        )

    def ids(self, name: str, most: int, size: int | None) -> tuple[int, ...]:
        """A list of token ids. size: of the vocabulary."""
        value = self.get(name)
        return () if value is None else self.as_ids(name, value, most, size)

    def as_ids(self, name: str, value: Any, most: int, size: int | None) -> tuple[int, ...]:
        if size is None:
            raise Refused("This model has no tokens that a request could name.", self.path(name))
        wanted = f"a list of at most {most} token ids from 0 to {size - 1}"
        return tuple(self._list(name, value, most, wanted, lambda item: _is_id(item, size)))

    def items(self, name: str, value: Any, most: int) -> list[Any]:
        """A list that is not empty."""
        wanted = f"a list of 1 to {most} items"
        if not isinstance(value, list) or not value:
            self.wrong(name, wanted)
        return self._list(name, cast("list[Any]", value), most, wanted, lambda _: True)

    def object(self, name: str) -> dict[str, Any] | None:
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            self.wrong(name, "an object")
        return cast("dict[str, Any] | None", value)

    def biases(self, name: str, size: int | None) -> tuple[tuple[int, float], ...]:
        """An object of token ids and numbers from -100 to 100."""
        found: list[tuple[int, float]] = []
        for key, value in (self.object(name) or {}).items():
            number = isinstance(value, int | float) and not isinstance(value, bool) and -100 <= value <= 100
            digits = key.isascii() and key.isdigit() and len(key) <= 9
            if size is None or not digits or int(key) >= size or not number:
                self.wrong(name, "an object of token ids of this model and numbers from -100 to 100")
            found.append((int(key), float(value)))
        if len(found) > 1024:
            self.wrong(name, "an object of at most 1024 token ids")
        return tuple(found)

    def ignore(self, *names: str) -> None:
        """Keys that change nothing here."""
        self._known.update(names)

    def refuse(self, names: Iterable[str], allowed: Callable[[Any], bool] = lambda value: not value) -> None:
        """Keys of the protocol that are not supported: fine while they ask for nothing."""
        for name in names:
            value = self.get(name)
            if value is not None and not allowed(value):
                raise Refused(
                    f"`{self.path(name)}` is not supported here.", self.path(name), code="unsupported_parameter"
                )

    def done(self) -> None:
        """Refuse the keys that nobody asked for."""
        for name in self._data:
            if name not in self._known:
                close = get_close_matches(name, sorted(self._known), 1)
                more = f" Did you mean `{close[0]}`?" if close else ""
                raise Refused(
                    f"There is no `{clip(self.path(name), 100)}` here.{more}", self.path(name), code="unknown_parameter"
                )

    def _list(self, name: str, value: Any, most: int, wanted: str, good: Callable[[Any], bool]) -> list[Any]:
        if not isinstance(value, list) or len(cast("list[Any]", value)) > most:
            self.wrong(name, wanted)
        items = cast("list[Any]", value)
        if not all(good(item) for item in items):
            self.wrong(name, wanted)
        return items


def _is_id(value: Any, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


def _no_constant(word: str) -> NoReturn:
    raise Refused(f"The body is not JSON: {word} is no JSON value.")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Refused("The body has a number that is too large.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused(f"`{clip(twice, 100)}` stands twice in one object.")
    return found


__all__ = ["Fields", "Refused", "read_object"]

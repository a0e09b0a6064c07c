"""Variables: values with their origin, and values to come from forks that still run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sglspec.expressions import Origin, least_trusted

Value = Any
"""A JSON value. Values are never changed in place, so snapshots may share them."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A value that is there. `meta` says how a generation or selection made it."""

    value: Value
    origin: Origin = "author"
    meta: Any = None


def list_of(items: Iterable[Bound], behind: Bound | None = None) -> Bound:
    """Several values as a list, behind those that a list holds already. Its origin is that of the least trusted, its
    `meta` has theirs in the same places."""
    values: list[Value] = list(behind.value) if behind is not None else []
    metas: list[Any] = list(behind.meta or [None] * len(values)) if behind is not None else []
    origin: Origin = behind.origin if behind is not None else "author"
    for one in items:
        values.append(one.value)
        metas.append(one.meta)
        origin = least_trusted(origin, one.origin)
    return Bound(values, origin, metas)


def record_of(parts: Mapping[str, Bound]) -> Bound:
    """Several values as an object; see `list_of`."""
    origin: Origin = "author"
    for one in parts.values():
        origin = least_trusted(origin, one.origin)
    return Bound({n: one.value for n, one in parts.items()}, origin, {n: one.meta for n, one in parts.items()})


def characters(value: Value) -> int:
    """How much room a value takes, roughly: the characters of its texts, and one for each other value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return 1 + sum(map(characters, cast("list[Value]", value)))
    if isinstance(value, dict):
        items = cast("dict[str, Value]", value).items()
        return 1 + sum(len(key) + characters(item) for key, item in items)
    return 1


class Gathered:
    """The names that a running fork will bind. Readers wait for all of them at once."""

    def __init__(self) -> None:
        self._done: asyncio.Future[dict[str, Bound]] = asyncio.get_running_loop().create_future()

    def settle(self, values: dict[str, Bound]) -> None:
        if not self._done.done():
            self._done.set_result(values)

    @property
    def settled(self) -> dict[str, Bound] | None:
        done = self._done.done() and not self._done.cancelled()
        return self._done.result() if done else None

    async def values(self) -> dict[str, Bound]:
        return await asyncio.shield(self._done)


@dataclass(frozen=True, slots=True)
class Pending:
    gathered: Gathered


class Scope:
    """The variables of one line of execution. A branch gets a `snapshot`."""

    def __init__(self, names: Mapping[str, Bound | Pending] | None = None) -> None:
        self._names: dict[str, Bound | Pending] = dict(names or {})
        self.written: set[str] = set()
        """Names bound here since this scope was made or snapshot (a branch inherits the others)."""
        self.anew: set[str] = set()
        """Those of them that were bound to a value of their own, not by adding to a list: lists that were emptied."""

    def snapshot(self) -> Scope:
        return Scope(self._names)

    def bind(self, name: str, bound: Bound) -> None:
        self._names[name] = bound
        self.written.add(name)

    def expect(self, names: Iterable[str], gathered: Gathered) -> None:
        for name in names:
            self._names[name] = Pending(gathered)
            self.written.add(name)

    def held(self, name: str) -> Bound | Pending | None:
        """The value, or the promise of one."""
        return self._names.get(name)

    def unbind(self, name: str) -> None:
        self._names.pop(name, None)

    def awaited(self, names: Iterable[str]) -> list[str]:
        """Those of these names that are still being made."""
        held = {name: self._names.get(name) for name in names}
        return [n for n, one in held.items() if isinstance(one, Pending) and one.gathered.settled is None]

    async def ready(self, names: Iterable[str]) -> None:
        """Wait until none of these names is still to come."""
        for name in names:
            pending = self._names.get(name)
            if isinstance(pending, Pending):
                self._take(pending.gathered, await pending.gathered.values())

    def _take(self, gathered: Gathered, values: dict[str, Bound]) -> None:
        for name, held in list(self._names.items()):
            if isinstance(held, Pending) and held.gathered is gathered:
                if name in values:
                    self._names[name] = values[name]
                else:
                    del self._names[name]

    def take_settled(self) -> None:
        """Bind what has come in without waiting for the rest (for the result of a run that stopped early)."""
        for held in list(self._names.values()):
            if isinstance(held, Pending) and (values := held.gathered.settled) is not None:
                self._take(held.gathered, values)

    async def all_ready(self) -> None:
        await self.ready(list(self._names))

    def get(self, name: str) -> Bound | None:
        """The bound value; None when there is none (or it is still to come: call `ready` first)."""
        held = self._names.get(name)
        return held if isinstance(held, Bound) else None

    def bound(self) -> dict[str, Bound]:
        return {name: held for name, held in self._names.items() if isinstance(held, Bound)}

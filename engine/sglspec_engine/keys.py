"""Keys of JSON objects, each of them once.

A grammar can name the keys that an object may have, and says nothing of others: where a schema leaves an object open,
the same key may be written again, and what readers of JSON make of that differs. So a text is followed byte by byte,
and tokens that would end a key that its object has already are taken out of the mask.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sglspec_engine.text.tokens import Vocabulary

_QUOTE, _ESCAPE = 0x22, 0x5C
_OPEN, _CLOSE, _LIST, _UNLIST, _COMMA = 0x7B, 0x7D, 0x5B, 0x5D, 0x2C


@dataclass(frozen=True, slots=True)
class Place:
    """Where a JSON text has come to. stack: of each value that is open the keys that it has, None for a list. key: the
    bytes of the key that is being written. text: inside a string that is none; escaped: behind its backslash. expects:
    the next string is a key."""

    stack: tuple[frozenset[str] | None, ...] = ()
    key: bytes | None = None
    text: bool = False
    escaped: bool = False
    expects: bool = False

    def after(self, data: bytes) -> tuple[Place, bool]:
        """The place behind `data`, which goes on as JSON does; and whether a key came that its object has already."""
        stack: list[frozenset[str] | None] = list(self.stack)
        key, text, escaped, expects = self.key, self.text, self.escaped, self.expects
        again = False
        for byte in data:
            if key is not None or text:
                ends = byte == _QUOTE and not escaped
                escaped = byte == _ESCAPE and not escaped
                if not ends and key is not None:
                    key += bytes((byte,))
                elif ends and key is not None:
                    name, own, key = _read(key), stack[-1] or frozenset[str](), None
                    again |= name in own
                    stack[-1] = own | {name}
                elif ends:
                    text = False
            elif byte == _QUOTE:
                key, text, expects = (b"", False, False) if expects else (None, True, False)
            elif byte == _OPEN:
                stack.append(frozenset())
                expects = True
            elif byte == _LIST:
                stack.append(None)
                expects = False
            elif byte in (_CLOSE, _UNLIST):
                del stack[-1:]
                expects = False
            elif byte == _COMMA:
                expects = bool(stack) and stack[-1] is not None
        return Place(tuple(stack), key, text, escaped, expects), again


START = Place()


class Keys:
    """Which tokens of a vocabulary would write a key again."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def repeated(self, place: Place, allowed: NDArray[np.bool_]) -> list[int]:
        """Ids among those allowed behind which an object has a key twice. allowed: [vocabulary size]."""
        if not any(place.stack):
            return []
        looked_at = self._long
        found: list[int] = []
        if place.key is not None:
            if b"\\" in place.key:
                looked_at = self._quoting  # one key can be spelled in many ways
            for name in place.stack[-1] or ():
                rest = json.dumps(name, ensure_ascii=False)[1:].encode("utf-8", "replace")
                if rest.startswith(place.key):
                    ids = self._vocabulary.beginning_with(rest[len(place.key) :])
                    found += ids[allowed[ids]].tolist()
        table = self._vocabulary.token_bytes
        return found + [id for id in map(int, looked_at[allowed[looked_at]]) if place.after(table[id])[1]]

    @cached_property
    def _quoting(self) -> NDArray[np.int64]:
        """Tokens with a quotation mark."""
        return self._ids(1)

    @cached_property
    def _long(self) -> NDArray[np.int64]:
        """Those that may hold a whole key, or end one that they spell with an escape."""
        return self._ids(2)

    def _ids(self, marks: int) -> NDArray[np.int64]:
        table, control = self._vocabulary.token_bytes, self._vocabulary.control_ids
        return np.array(
            [
                id
                for id, data in enumerate(table)
                if id not in control and (data.count(b'"') >= marks or (b'"' in data and b"\\" in data))
            ],
            dtype=np.int64,
        )


def _read(key: bytes) -> str:
    text = key.decode("utf-8", "replace")
    return json.loads(f'"{text}"', strict=False) if "\\" in text else text

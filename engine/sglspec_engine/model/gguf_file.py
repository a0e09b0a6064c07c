"""Reading GGUF files, without trusting them, and without torch.

GGUF (version 2 and 3, little-endian): magic, version, counts, then typed key-value metadata, then the table of
tensors (name, dimensions innermost first, type, offset), then aligned tensor data. Layout and the two block formats
follow the public specification in the ggml repository (docs/gguf.md) and its block definitions. Every count and
offset is checked against the file's size before use; anything else than the types below is refused.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sglspec_engine.types import EngineError

Array = npt.NDArray[np.float32]

MAX_ENTRIES = 100_000
"""Metadata entries and tensors a file may have (large models have some thousands)."""
MAX_ITEMS = 4_000_000
"""Items an array may have (the longest real ones list a vocabulary's merges)."""
MAX_TEXT = 16 * 1024 * 1024

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_BLOCKS = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}
"""Tensor type → name, weights per block, bytes per block."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape` outermost first (rows, columns), `offset` into the file in bytes, `length` in bytes."""

    name: str
    shape: tuple[int, ...]
    kind: str
    offset: int
    length: int


class GgufFile:
    """An open GGUF file: `metadata` and `tensors`; `read` dequantises one tensor. A context manager."""

    def __init__(self, path: Path) -> None:
        """Raises EngineError("unsupported") if the file is damaged or of a kind we do not read."""
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise EngineError("unsupported", f"{path.name} cannot be read: {error}") from None
        try:
            self.metadata, self.tensors = _read_header(_Cursor(self._map))
        except Exception:
            self._map.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._map.close()

    def read(self, name: str) -> Array:
        """A tensor's values as float32, in its shape. The numbers are those that inference on the blocks uses."""
        info = self.tensors[name]
        data = np.frombuffer(self._map[info.offset : info.offset + info.length], dtype=np.uint8)
        return _DEQUANTISE[info.kind](data).reshape(info.shape)


class _Cursor:
    """Reads forward through the header; never past the end of the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)

    def scalar(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        self._need(size)
        (value,) = struct.unpack_from("<" + code, self.data, self.position)
        self.position += size
        return value

    def scalars(self, code: str, count: int) -> list[Any]:
        size = struct.calcsize("<" + code) * count
        self._need(size)
        values = list(struct.unpack_from(f"<{count}{code}", self.data, self.position))
        self.position += size
        return values

    def text(self) -> str:
        length = self.scalar("Q")
        if length > MAX_TEXT:
            raise _damaged("a text is too long")
        self._need(length)
        raw = self.data[self.position : self.position + length]
        self.position += length
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise _damaged("a text is not UTF-8") from None

    def _need(self, size: int) -> None:
        if size > self.end - self.position:
            raise _damaged("it ends too early")


def _damaged(what: str) -> EngineError:
    return EngineError("unsupported", f"not a usable GGUF file: {what}")


def _read_header(cursor: _Cursor) -> tuple[Mapping[str, Any], dict[str, TensorInfo]]:
    if cursor.end < 24 or cursor.data[:4] != b"GGUF":
        raise _damaged("it does not begin like one")
    cursor.position = 4
    if cursor.scalar("I") not in (2, 3):
        raise _damaged("its version is unknown, or it is big-endian")
    tensor_count, entry_count = cursor.scalar("Q"), cursor.scalar("Q")
    if max(tensor_count, entry_count) > MAX_ENTRIES:
        raise _damaged("it has too many entries")
    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        key = cursor.text()
        if key in metadata:
            raise _damaged(f"{key!r} is there twice")
        metadata[key] = _value(cursor, cursor.scalar("I"))
    rows = [_tensor_row(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise _damaged("its alignment is wrong")
    start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, shape, kind, offset in rows:
        info = _tensor(name, shape, kind, start + offset, cursor.end)
        if name in tensors:
            raise _damaged(f"tensor {name!r} is there twice")
        tensors[name] = info
    return metadata, tensors


def _value(cursor: _Cursor, kind: int) -> Any:
    if kind in _SCALARS:
        return cursor.scalar(_SCALARS[kind])
    if kind == _STRING:
        return cursor.text()
    if kind != _ARRAY:
        raise _damaged(f"metadata of the unknown type {kind}")
    item, count = cursor.scalar("I"), cursor.scalar("Q")
    if count > MAX_ITEMS:
        raise _damaged("an array is too long")
    if item in _SCALARS:
        return cursor.scalars(_SCALARS[item], count)
    if item != _STRING:
        raise _damaged("arrays of arrays are not supported")
    return [cursor.text() for _ in range(count)]


def _tensor_row(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.text()
    dimensions = cursor.scalar("I")
    if not 1 <= dimensions <= 4:
        raise _damaged(f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(reversed(cursor.scalars("Q", dimensions)))
    return name, shape, cursor.scalar("I"), cursor.scalar("Q")


def _tensor(name: str, shape: tuple[int, ...], kind: int, offset: int, end: int) -> TensorInfo:
    if kind not in _BLOCKS:
        raise EngineError("unsupported", f"GGUF tensor {name!r} has type {kind}; F32, F16, Q4_1 and Q8_0 are supported")
    label, weights, size = _BLOCKS[kind]
    count = math.prod(shape)
    if count == 0 or shape[-1] % weights:
        raise _damaged(f"tensor {name!r} has an impossible shape")
    length = count // weights * size
    if offset + length > end:
        raise _damaged(f"tensor {name!r} lies outside the file")
    return TensorInfo(name, shape, label, offset, length)


def _f32(data: npt.NDArray[np.uint8]) -> Array:
    return data.view("<f4").astype(np.float32)


def _f16(data: npt.NDArray[np.uint8]) -> Array:
    return data.view("<f2").astype(np.float32)


def _q8_0(data: npt.NDArray[np.uint8]) -> Array:
    """32 weights a block: fp16 scale d, 32 signed bytes q; the weight is d·q."""
    blocks = data.reshape(-1, 34)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return scale * blocks[:, 2:].view(np.int8).astype(np.float32)


def _q4_1(data: npt.NDArray[np.uint8]) -> Array:
    """32 weights a block: fp16 scale d, fp16 minimum m, 16 bytes with weights 0-15 in their low and 16-31 in their
    high halves; the weight is d·q + m. Its float32 value is kept: float16 would be off by up to 2⁻¹² of it."""
    blocks = data.reshape(-1, 20)
    factors = blocks[:, :4].copy().view("<f2").astype(np.float32)
    nibbles = blocks[:, 4:]
    out = np.concatenate([nibbles & 0x0F, nibbles >> 4], axis=1).astype(np.float32)
    out *= factors[:, :1]
    out += factors[:, 1:]
    return out


_DEQUANTISE = {"F32": _f32, "F16": _f16, "Q8_0": _q8_0, "Q4_1": _q4_1}

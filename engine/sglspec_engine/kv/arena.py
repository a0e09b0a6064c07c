"""Storage for keys and values: one arena per engine, handed out as contiguous spans of token slots.

Per layer there is one tensor of keys and one of values, in which a span is a view per head. On a CPU memory is
head-major, so that attention over a span reads on without gathering; on other devices it is slot-major, so that a token
lies in one piece, which gathering and paged kernels want. A span belongs to whoever allocated it until it is given
back; neighbouring free slots are one hole again. Spans may move (`compact`), so nobody keeps a view or a slot number
from one step to the next.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sglspec_engine.types import EngineError


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes of one layer's cache: key/value heads and the width of one key and one value."""

    heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What one token costs: the shape of every layer (index = layer), the element type and the device.

    slot_major: a token's heads lie next to each other in memory, not a head's tokens. Shapes are the same.
    """

    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    device: torch.device
    slot_major: bool = False

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over all layers."""
        return sum(s.heads * (s.key_dim + s.value_dim) for s in self.layers) * self.dtype.itemsize


@dataclass(slots=True, eq=False)
class Span:
    """Slots `start` to `end` of an arena. Changed by the arena only."""

    start: int
    length: int

    @property
    def end(self) -> int:
        """The slot after the last one."""
        return self.start + self.length


class Arena:
    """`slots` token slots. keys[layer] is [heads, slots, key_dim], values[layer] [heads, slots, value_dim].

    The memory is asked for at once and uninitialised: on a CPU the operating system provides a page when it is first
    written, and low slots are used first. With `poison`, freed slots are filled with NaN, so that whoever still reads
    them shows it.
    """

    def __init__(self, layout: KVLayout, slots: int, *, poison: bool = False) -> None:
        self.layout = layout
        self.slots = slots
        self.free = slots
        self.keys = [self._empty(s.heads, s.key_dim) for s in layout.layers]
        self.values = [self._empty(s.heads, s.value_dim) for s in layout.layers]
        self._poison = poison
        self._live: set[Span] = set()
        # Holes by their first slot, in order, and their lengths. No two of them touch.
        self._starts: list[int] = [0] if slots else []
        self._holes: dict[int, int] = {0: slots} if slots else {}

    @property
    def used(self) -> int:
        """Slots that belong to spans."""
        return self.slots - self.free

    def allocate(self, length: int, after: Span | None = None) -> Span | None:
        """`length` slots in a row, right behind `after` where those are free, else the first that fit; None where no
        hole is large enough (`compact` makes one hole of all)."""
        assert length > 0
        start = after.end if after is not None and self._holes.get(after.end, 0) >= length else None
        if start is None:
            start = next((s for s in self._starts if self._holes[s] >= length), None)
        if start is None:
            return None
        self._take(start, length)
        span = Span(start, length)
        self._live.add(span)
        return span

    def extend(self, span: Span, by: int) -> bool:
        """Lengthen a span in place; False (and no change) where the slots behind it are not free."""
        if self._holes.get(span.end, 0) < by:
            return False
        self._take(span.end, by)
        span.length += by
        return True

    def shrink(self, span: Span, length: int) -> None:
        """Give back all but the first `length` slots."""
        assert 0 < length <= span.length
        if length < span.length:
            self._give(span.start + length, span.length - length)
            span.length = length

    def split(self, span: Span, at: int) -> Span:
        """Cut the first `at` slots off a span. Returns them as a span of their own; `span` keeps the rest."""
        assert 0 < at < span.length
        head = Span(span.start, at)
        span.start += at
        span.length -= at
        self._live.add(head)
        return head

    def release(self, span: Span) -> None:
        """Give a whole span back."""
        self._live.remove(span)
        self._give(span.start, span.length)

    def copy(self, source: Span, target: Span, length: int) -> None:
        """Copy the first `length` tokens of a span to another one. They may overlap."""
        for tensor in (*self.keys, *self.values):
            old = tensor[:, source.start : source.start + length]
            tensor[:, target.start : target.start + length] = old.clone()

    def gather(self, slots: Sequence[int], start: int) -> None:
        """Copy tokens from `slots` to the slots from `start` on."""
        for tensor in (*self.keys, *self.values):
            tensor[:, start : start + len(slots)] = tensor[:, slots]

    def join(self, first: Span, second: Span) -> bool:
        """Make `second` the end of `first`, where it lies right behind it."""
        if first.end != second.start:
            return False
        first.length += second.length
        self._live.remove(second)
        return True

    @property
    def scattered(self) -> bool:
        """Whether no hole has half of what is free."""
        return 2 * max(self._holes.values(), default=0) < self.free

    def compact(self, limit: int | None = None) -> None:
        """Move all spans together, so that what is free is one hole; with `limit` stop after about as many slots. Costs
        a copy of what moves."""
        at = moved = 0
        self._starts, self._holes = [], {}
        for span in sorted(self._live, key=lambda s: s.start):
            if span.start != at and (limit is None or moved < limit):
                self.copy(span, Span(at, span.length), span.length)
                span.start = at
                moved += span.length
            self._note_hole(at, span.start)
            at = span.end
        self._note_hole(at, self.slots)

    def _note_hole(self, start: int, end: int) -> None:
        if start < end:
            self._starts.append(start)
            self._holes[start] = end - start
            if self._poison:
                self._fill(start, end - start)

    def check(self, spans: Iterable[Span]) -> None:
        """Raise AssertionError unless exactly `spans` are allocated, and spans and holes cover every slot once."""
        expected = set(spans)
        assert expected == self._live, f"{len(self._live - expected)} spans leaked, {len(expected - self._live)} freed"
        assert self._starts == sorted(self._holes)
        pieces = sorted([(s.start, s.length, True) for s in expected] + [(s, n, False) for s, n in self._holes.items()])
        at, was_hole = 0, False
        for start, length, owned in pieces:
            assert start == at, "slots are lost or owned twice"
            assert owned or not was_hole, "two holes touch"
            at, was_hole = start + length, not owned
        assert at == self.slots
        assert self.free == sum(self._holes.values())

    def _take(self, start: int, length: int) -> None:
        """Take the first slots of the hole at `start`."""
        size = self._holes.pop(start)
        index = bisect_left(self._starts, start)
        if size > length:
            self._starts[index] = start + length
            self._holes[start + length] = size - length
        else:
            del self._starts[index]
        self.free -= length

    def _give(self, start: int, length: int) -> None:
        """Make slots a hole, in one piece with the holes they touch."""
        self.free += length
        if self._poison:
            self._fill(start, length)
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == start + length:
            length += self._holes.pop(self._starts.pop(index))
        if index and self._starts[index - 1] + self._holes[self._starts[index - 1]] == start:
            self._holes[self._starts[index - 1]] += length
            return
        insort(self._starts, start)
        self._holes[start] = length

    def _fill(self, start: int, length: int) -> None:
        for tensor in (*self.keys, *self.values):
            tensor[:, start : start + length] = float("nan")

    def _empty(self, heads: int, dim: int) -> Tensor:
        layout = self.layout
        shape = (self.slots, heads, dim) if layout.slot_major else (heads, self.slots, dim)
        try:
            found = torch.empty(shape, dtype=layout.dtype, device=layout.device)
        except RuntimeError:
            wanted = self.slots * layout.bytes_per_token
            message = f"there is no memory for {wanted} bytes of keys and values: lower max_kv_bytes"
            raise EngineError("unsupported", message) from None
        return found.transpose(0, 1) if layout.slot_major else found

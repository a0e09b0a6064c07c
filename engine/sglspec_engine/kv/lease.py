"""Who owns keys and values.

A lease is a path of immutable nodes, shared with other leases and counted by reference, followed by a private tail
that grows. Forking turns the tail into a node, so it copies nothing; cutting into a node shortens this lease's view
of it. Only leases hold nodes, and only releasing (or cutting) them frees memory. Everything here belongs to the
thread that runs the model; others may only open a new, empty lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

import torch
from torch import Tensor

from sglspec_engine.types import EngineError

_FIRST_CAPACITY = 32
"""Slots of a new tail: most branches are short, and doubling reaches a long one quickly."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes of one layer's cache: key/value heads and the width of one key and one value."""

    heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What one token costs: the shape of every layer (index = layer), the element type and the device."""

    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over all layers."""
        return sum(s.heads * (s.key_dim + s.value_dim) for s in self.layers) * self.dtype.itemsize


@dataclass(slots=True)
class _Block:
    """Storage for `capacity` tokens: per layer keys [heads, capacity, key_dim], values [heads, capacity, value_dim]."""

    keys: list[Tensor]
    values: list[Tensor]
    capacity: int


@dataclass(slots=True, eq=False)
class Node:
    """A run of tokens whose keys and values never change, used by `refs` leases."""

    ids: tuple[int, ...]
    block: _Block
    refs: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """The first `length` tokens of a node."""

    node: Node
    length: int


@dataclass(slots=True)
class Pool:
    """Allocates blocks and counts what lives. `limit` is in bytes, None for none."""

    layout: KVLayout
    limit: int | None = None
    live_bytes: int = 0
    peak_bytes: int = 0
    live_leases: int = 0
    live_nodes: int = 0
    _leases: set[Lease] = field(default_factory=lambda: set[Lease]())
    _lock: Lock = field(default_factory=Lock)

    def open(self) -> Lease:
        """A new, empty lease."""
        return Lease(self)

    def fits(self, capacity: int) -> bool:
        """Whether storage for `capacity` more tokens is within the limit."""
        return self.limit is None or self.live_bytes + capacity * self.layout.bytes_per_token <= self.limit

    def allocate(self, capacity: int) -> _Block:
        """Uninitialised storage for `capacity` tokens. Raises EngineError("limit") beyond the limit."""
        size = capacity * self.layout.bytes_per_token
        if not self.fits(capacity):
            raise EngineError("limit", f"no memory left for keys and values ({self.limit} bytes allowed)")
        layout = self.layout
        keys = [self._empty(s.heads, capacity, s.key_dim) for s in layout.layers]
        values = [self._empty(s.heads, capacity, s.value_dim) for s in layout.layers]
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return _Block(keys, values, capacity)

    def free(self, block: _Block) -> None:
        """Give a block's storage back."""
        self.live_bytes -= block.capacity * self.layout.bytes_per_token
        block.keys.clear()
        block.values.clear()

    def enter(self, lease: Lease) -> None:
        """Count a lease that came to life."""
        with self._lock:
            self._leases.add(lease)
            self.live_leases += 1

    def leave(self, lease: Lease) -> None:
        """Count a lease that was released."""
        with self._lock:
            self._leases.discard(lease)
            self.live_leases -= 1

    def _empty(self, heads: int, capacity: int, dim: int) -> Tensor:
        return torch.empty(heads, capacity, dim, dtype=self.layout.dtype, device=self.layout.device)

    def check(self) -> None:
        """Raise AssertionError unless counts, references and bytes agree with the leases that live."""
        refs: dict[Node, int] = {}
        size = 0
        with self._lock:
            leases = list(self._leases)
        for lease in leases:
            lease.check()
            size += lease.tail_capacity
            for view in lease.path:
                refs[view.node] = refs.get(view.node, 0) + 1
        for node, count in refs.items():
            assert node.refs == count, f"a node of {len(node.ids)} tokens counts {node.refs} users and has {count}"
            assert len(node.block.keys) == len(self.layout.layers), "a node in use was freed"
            size += node.block.capacity
        assert len(refs) == self.live_nodes, f"{self.live_nodes} nodes counted, {len(refs)} reachable"
        assert len(leases) == self.live_leases
        assert size * self.layout.bytes_per_token == self.live_bytes, "bytes counted and bytes held differ"


class Lease:
    """The keys and values of one context. `ids` are the tokens they were computed from, in order."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.path: list[View] = []
        self.ids: list[int] = []
        self.logits: Tensor | None = None
        """Next-token logits [vocabulary] after the last of `ids`, where they are known."""
        self._tail: _Block | None = None
        self._tail_length = 0
        self._open = True
        pool.enter(self)

    @property
    def length(self) -> int:
        """Tokens computed."""
        return len(self.ids)

    @property
    def tail_capacity(self) -> int:
        """Slots the private tail holds."""
        return self._tail.capacity if self._tail is not None else 0

    @property
    def released(self) -> bool:
        """Whether `release` was called."""
        return not self._open

    def reserve(self, count: int) -> None:
        """Make room for `count` more tokens. Raises EngineError("limit"); the lease is unchanged then."""
        needed = self._tail_length + count
        if self._tail is not None and needed <= self._tail.capacity:
            return
        roomy = max(needed, 2 * self.tail_capacity, _FIRST_CAPACITY)
        block = self.pool.allocate(roomy if self.pool.fits(roomy) else needed)
        if self._tail is not None:
            _copy(self._tail, block, self._tail_length)
            self.pool.free(self._tail)
        self._tail = block

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store keys [heads, n, key_dim] and values [heads, n, value_dim] after the tail, within the reserve.

        They count only once `append` names their tokens, so a forward that fails leaves nothing behind.
        """
        assert self._tail is not None
        end = self._tail_length + keys.shape[1]
        self._tail.keys[layer][:, self._tail_length : end] = keys
        self._tail.values[layer][:, self._tail_length : end] = values

    def append(self, ids: Sequence[int]) -> None:
        """Count tokens whose keys and values every layer has written."""
        self._tail_length += len(ids)
        assert self._tail_length <= self.tail_capacity
        self.ids.extend(ids)
        self.logits = None

    def views(self, layer: int, written: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of one layer in order, without copies: every node's view, then the tail with `written`
        tokens that are not counted yet. Each pair is ([heads, n, key_dim], [heads, n, value_dim])."""
        shared = [(v.node.block, v.length) for v in self.path]
        found = [(block.keys[layer][:, :n], block.values[layer][:, :n]) for block, n in shared]
        end = self._tail_length + written
        if end:
            assert self._tail is not None
            found.append((self._tail.keys[layer][:, :end], self._tail.values[layer][:, :end]))
        return found

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens."""
        assert 0 <= length <= self.length
        if length == self.length:
            return
        self.logits = None
        del self.ids[length:]
        shared = sum(view.length for view in self.path)
        self._tail_length = max(0, length - shared)
        if self._tail_length == 0 and self._tail is not None:
            self.pool.free(self._tail)
            self._tail = None
        while shared > length:
            view = self.path.pop()
            shared -= view.length
            if shared < length:
                # The node stays as it is for its other users; this lease sees less of it.
                self.path.append(View(view.node, length - shared))
                return
            self._drop(view.node)

    def fork(self) -> Lease:
        """Another lease on the same tokens. Copies no keys or values but what trims a half-empty tail."""
        self._seal()
        other = Lease(self.pool)
        other.path = list(self.path)
        for view in other.path:
            view.node.refs += 1
        other.ids = list(self.ids)
        other.logits = self.logits
        return other

    def release(self) -> None:
        """Let go of everything. Idempotent."""
        if not self._open:
            return
        self.truncate(0)
        self.logits = None
        if self._tail is not None:
            self.pool.free(self._tail)
            self._tail = None
        self._open = False
        self.pool.leave(self)

    def check(self) -> None:
        """Raise AssertionError unless lengths and ids agree."""
        at = 0
        for view in self.path:
            assert 0 < view.length <= len(view.node.ids)
            assert tuple(self.ids[at : at + view.length]) == view.node.ids[: view.length], "ids differ from a node's"
            at += view.length
        assert at + self._tail_length == len(self.ids)
        assert self._tail_length <= self.tail_capacity
        assert self._open or not self.ids

    def _seal(self) -> None:
        """Make the tail a node."""
        if self._tail is None or not self._tail_length:
            return
        block = self._tail
        if block.capacity > self._tail_length and self.pool.fits(self._tail_length):
            # A node never grows again, so spare slots would be lost for as long as any branch lives.
            trimmed = self.pool.allocate(self._tail_length)
            _copy(block, trimmed, self._tail_length)
            self.pool.free(block)
            block = trimmed
        node = Node(tuple(self.ids[len(self.ids) - self._tail_length :]), block, refs=1)
        self.pool.live_nodes += 1
        self.path.append(View(node, self._tail_length))
        self._tail = None
        self._tail_length = 0

    def _drop(self, node: Node) -> None:
        node.refs -= 1
        if node.refs == 0:
            self.pool.free(node.block)
            self.pool.live_nodes -= 1


def _copy(source: _Block, target: _Block, length: int) -> None:
    for pairs in (zip(source.keys, target.keys, strict=True), zip(source.values, target.values, strict=True)):
        for old, new in pairs:
            new[:, :length] = old[:, :length]

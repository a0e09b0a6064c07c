"""All memory for keys and values of an engine: the arena, the tree over it, and the leases that live.

Memory that is short is made by steps: cached nodes go first, then what idle leases hold, and only then the caller is
told that there is none.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from sglspec_engine.kv.arena import Arena, KVLayout, Span
from sglspec_engine.kv.radix import Node, RadixTree
from sglspec_engine.types import EngineError

if TYPE_CHECKING:
    from sglspec_engine.kv.lease import Lease

_PIECE = 1024
"""Slots that are moved at once while the engine is idle: a request that comes waits for no more than that."""


class Pool:
    """`limit` is in bytes. Without `cache`, what no lease uses is freed at once, and only forks share. Without `hints`,
    the cache is evicted by age alone. parked: leases that had to give memory back. dropped: tokens that were freed as
    nobody was going to need them."""

    def __init__(
        self, layout: KVLayout, limit: int, *, cache: bool = True, hints: bool = True, poison: bool = False
    ) -> None:
        self.layout = layout
        self.limit = limit
        self.cache = cache
        self.hints = hints
        self.arena = Arena(layout, limit // layout.bytes_per_token, poison=poison)
        self.tree = RadixTree(self.arena)
        self.peak_bytes = 0
        self.parked = 0
        self.dropped = 0
        self._shared_root = self.tree.root()
        self._ticks = 0
        self._tidied: tuple[int, int] | None = None
        self._leases: set[Lease] = set()
        self._lock = Lock()

    @property
    def live_bytes(self) -> int:
        """Bytes that leases hold: locked nodes and private tails."""
        return (self.arena.used - self.tree.cached) * self.layout.bytes_per_token

    @property
    def cached_bytes(self) -> int:
        """Bytes of nodes that no lease uses."""
        return self.tree.cached * self.layout.bytes_per_token

    @property
    def live_leases(self) -> int:
        """Leases that were not released."""
        return len(self._leases)

    @property
    def available(self) -> int:
        """Tokens that fit without taking anything from a lease."""
        return self.arena.free + self.tree.cached

    def root(self) -> Node:
        """Where a new lease begins. On any thread."""
        return self._shared_root if self.cache else self.tree.private_root()

    def enter(self, lease: Lease) -> None:
        """Note a lease that came to life. On any thread."""
        with self._lock:
            self._leases.add(lease)

    def leave(self, lease: Lease) -> None:
        """Note a lease that was released."""
        with self._lock:
            self._leases.discard(lease)

    def tick(self) -> int:
        """A number that grows."""
        self._ticks += 1
        return self._ticks

    def has_room(self, tokens: int) -> bool:
        """Whether `tokens` more fit without taking anything from a lease."""
        return tokens <= self.available

    def take(self, owner: Lease, wanted: int, least: int, after: Span | None = None) -> Span:
        """A span of `wanted` tokens for `owner`, or of `least` where memory is short. Raises EngineError("limit")."""
        length = wanted if self.arena.free >= wanted else least
        span = self.arena.allocate(length, after)
        if span is None:
            self._make_room(owner, length)
            span = self.arena.allocate(length, after)
        if span is None:
            self.arena.compact()
            span = self.arena.allocate(length)
        assert span is not None
        self._note_peak()
        return span

    def extend(self, span: Span, by: int) -> bool:
        """Lengthen a span in place, where that is possible."""
        done = self.arena.extend(span, by)
        self._note_peak()
        return done

    def park_idle(self, tokens: int) -> None:
        """Make idle leases give back what they hold, those that were used last first kept, until `tokens` are
        available. What they held stays in the cache for as long as there is room."""
        if tokens <= self.available:
            return
        with self._lock:
            parkable = [lease for lease in self._leases if not (lease.busy or lease.pinned)]
        idle = [lease for lease in parkable if lease.length or lease.tail is not None]
        for lease in sorted(idle, key=lambda lease: lease.used):
            lease.park(back=True)
            self.parked += 1
            if tokens <= self.available:
                return

    def tidy(self) -> bool:
        """A piece of what may be done while nobody waits: put together what branches and long generations left in
        pieces, and what is free. Returns whether there is more to do."""
        now = (self.tree.version, self._ticks)
        if now == self._tidied:
            return False
        with self._lock:
            nodes = [lease.node for lease in self._leases]
        if self.tree.coalesce(nodes, _PIECE) >= _PIECE:
            return True
        if self.arena.scattered:
            self.arena.compact(_PIECE)
            return self.arena.scattered
        self._tidied = (self.tree.version, self._ticks)
        return False

    def check(self) -> None:
        """Raise AssertionError unless leases, tree and arena agree: every slot is free, cached, locked or private."""
        with self._lock:
            leases = list(self._leases)
        for lease in leases:
            lease.check()
        spans = self.tree.check(lease.node for lease in leases)
        spans += [lease.tail for lease in leases if lease.tail is not None]
        self.arena.check(spans)
        private = sum(lease.tail.length for lease in leases if lease.tail is not None)
        total = self.arena.free + self.tree.cached + self.tree.locked + private
        assert total == self.arena.slots, f"{self.arena.slots} slots, {total} accounted for"

    def _make_room(self, owner: Lease, length: int) -> None:
        """Free memory until `length` slots are free, anywhere."""
        busy, owner.busy = owner.busy, True
        try:
            self.park_idle(length)
        finally:
            owner.busy = busy
        if length > self.available:
            raise EngineError("limit", f"no memory left for keys and values ({self.limit} bytes allowed)")
        self.tree.evict(length - self.arena.free)

    def _note_peak(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

"""Who owns keys and values.

A lease is a locked path in the radix tree, shared with other leases, followed by a private tail that grows. Forking
publishes the tail as a node, so it copies nothing; cutting into a node splits it. What is published was committed
before. Where the tree has the same tokens already, the lease goes over to those and its own copy is freed: nobody but
the lease itself ever read that. Everything here belongs to the thread that runs the model; others may only open a new,
empty lease.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from sglspec_engine.kv.arena import Span
from sglspec_engine.kv.pool import Pool
from sglspec_engine.kv.radix import Node

_CHUNK = 32
"""Slots that a tail begins with: most branches are short, and doubling reaches a long one quickly."""
_SEALED = 256
"""Tokens from where a tail that cannot grow in place becomes a node, and a new tail begins, instead of moving."""


class Lease:
    """The keys and values of one context. `ids` are the tokens they were computed from, in order.

    busy: a request is working on it; the pool may make an idle one give back what it holds (`park`).
    used: when tokens were last added, in ticks of the pool. gang: what branches of one fork have in common.
    pinned: it cannot be computed again, so nobody makes it give anything back. random_from: the first token that was
    drawn at random, None where none was; what follows from there on is not going to be asked for again.
    """

    def __init__(self, pool: Pool, node: Node | None = None) -> None:
        """On `node`, which the caller locks; else empty, on any thread."""
        self.pool = pool
        self.node = node if node is not None else pool.root()
        self.ids: list[int] = []
        self.logits: Tensor | None = None
        """Next-token logits [n, vocabulary] after each of the last n of `ids`, where they are known."""
        self.busy = False
        self.used = 0
        self.gang: object | None = None
        self.pinned = False
        self.random_from: int | None = None
        self.tail: Span | None = None
        self._tail_length = 0
        self._open = True
        self._awaited: Node | None = None
        pool.enter(self)

    @property
    def length(self) -> int:
        """Tokens computed."""
        return len(self.ids)

    @property
    def tail_length(self) -> int:
        """Tokens in the private tail."""
        return self._tail_length

    @property
    def released(self) -> bool:
        """Whether `release` was called."""
        return not self._open

    @property
    def shared(self) -> bool:
        """Whether other leases may find what this one publishes."""
        return not self.node.root.private

    def reserve(self, count: int) -> None:
        """Make room for `count` more tokens. Raises EngineError("limit"); the lease holds the same tokens then."""
        needed = self._tail_length + count
        if self.tail is None:
            self.tail = self.pool.take(self, max(needed, _CHUNK), needed, after=self.node.span)
            return
        have = self.tail.length
        if needed <= have:
            return
        roomy = max(needed, min(2 * have, have + _SEALED))
        if self.pool.extend(self.tail, roomy - have) or self.pool.extend(self.tail, needed - have):
            return
        if self._tail_length < _SEALED and self.pool.has_room(roomy):
            moved = self.pool.take(self, roomy, needed)
            self.pool.arena.copy(self.tail, moved, self._tail_length)
            self.pool.arena.release(self.tail)
            self.tail = moved
            return
        self.publish()
        self.tail = self.pool.take(self, max(count, _CHUNK), count, after=self.node.span)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store keys [heads, n, key_dim] and values [heads, n, value_dim] after the tail, within the reserve.

        They count only once `append` names their tokens, so a forward that fails leaves nothing behind.
        """
        assert self.tail is not None
        begin = self.tail.start + self._tail_length
        assert begin + keys.shape[1] <= self.tail.end
        self.pool.arena.keys[layer][:, begin : begin + keys.shape[1]] = keys
        self.pool.arena.values[layer][:, begin : begin + keys.shape[1]] = values

    def append(self, ids: Sequence[int], shared: int = 0) -> None:
        """Count tokens whose keys and values every layer has written; for the first `shared` another lease has done so,
        and published them."""
        if shared:
            assert not self._tail_length, "a lease with a tail cannot go on with another's tokens"
            node = self.pool.tree.descend(self.node, [*self.ids, *ids[:shared]])
            assert node.end == len(self.ids) + shared
            self._move(node)
        self._tail_length += len(ids) - shared
        assert self.tail is not None and self._tail_length <= self.tail.length
        self.ids.extend(ids)
        self.logits = None
        self.used = self.pool.tick()

    def spans(self, written: int) -> list[tuple[int, int]]:
        """(first slot, tokens) in order: every node of the path, then the tail with `written` tokens that are not
        counted yet."""
        found = [(node.span.start, node.span.length) for node in self.node.path() if node.span is not None]
        if self._tail_length + written:
            assert self.tail is not None
            found.append((self.tail.start, self._tail_length + written))
        return found

    def views(self, layer: int, written: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of one layer over `spans`, without copies. Each pair is ([heads, n, key_dim],
        [heads, n, value_dim])."""
        keys, values = self.pool.arena.keys[layer], self.pool.arena.values[layer]
        return [(keys[:, at : at + n], values[:, at : at + n]) for at, n in self.spans(written)]

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens. Nodes that are cut stay whole for their other users."""
        assert 0 <= length <= self.length
        if length == self.length:
            return
        self.logits = None
        del self.ids[length:]
        self._tail_length = max(0, length - self.node.end)
        if self._tail_length == 0:
            self._drop_tail()
        self._climb(length)

    def graft(self, length: int, ids: Sequence[int], offsets: Sequence[int]) -> None:
        """Keep the first `length` tokens, then count `ids`: some of the tokens that were written behind the present
        end, `offsets` from there. What else was written is given up."""
        self.logits = None
        kept = max(0, length - self.node.end)
        if ids:
            assert self.tail is not None
            end = self.tail.start + self._tail_length
            self.pool.arena.gather([end + offset for offset in offsets], self.tail.start + kept)
        self.ids[length:] = ids
        self._tail_length = kept + len(ids)
        self._climb(length)
        self.trim(_CHUNK if self._tail_length else 0)

    def adopt(self, ids: Sequence[int]) -> int:
        """Go on with what the tree has of `ids`, which begin with all of this lease's. Returns the tokens gained."""
        tree = self.pool.tree
        self._expect(None)
        gained = tree.match(self.node, ids) - self.length
        if gained <= 0:
            return 0
        self._move(tree.descend(self.node, ids))
        self._drop_tail()
        for node in self.node.path():
            node.transient = False
        self.ids = list(ids[: self.node.end])
        self.logits = None
        return gained

    def publish(self) -> None:
        """Make the tail a node of the tree, or go over to what the tree has of it."""
        if self.tail is None or not self._tail_length:
            self._drop_tail()
            return
        tail, self.tail, self._tail_length = self.tail, None, 0
        self.pool.arena.shrink(tail, len(self.ids) - self.node.end)
        self._hand_over(tail)

    def publish_only(self, length: int) -> None:
        """Publish the first `length` tokens. What was written behind them stays where it is, in the tail."""
        count = length - self.node.end
        if count <= 0:
            return
        assert self.tail is not None and count <= self._tail_length
        if count == self.tail.length:
            self.publish()
            return
        self._tail_length -= count
        self._hand_over(self.pool.arena.split(self.tail, count))

    def _hand_over(self, span: Span) -> None:
        """Give the tree the tokens behind the node, which are in `span`, except those that it has."""
        tree = self.pool.tree
        end = self.node.end + span.length
        new = self.ids[self.node.end : end]
        node = tree.descend(self.node, self.ids[:end])
        known = node.end - self.node.end
        if known == len(new):
            self.pool.arena.release(span)
        else:
            if known:
                self.pool.arena.release(self.pool.arena.split(span, known))
            transient = self.pool.hints and self.random_from is not None and node.end >= self.random_from
            node = tree.insert(node, new[known:], span, transient=transient)
        self._move(node)

    def fork(self) -> Lease:
        """Another lease on the same tokens. Copies no keys or values."""
        self.publish()
        other = Lease(self.pool, self.node)
        self.pool.tree.lock(self.node)
        other.ids = list(self.ids)
        other.logits = self.logits
        other.used = self.used
        other.pinned = self.pinned
        other.random_from = self.random_from
        return other

    def trim(self, room: int) -> int:
        """Give back slots of the tail beyond `room` more tokens. Returns how many."""
        if self.tail is None:
            return 0
        keep = self._tail_length + room
        spare = self.tail.length - keep
        if spare <= 0:
            return 0
        if keep:
            self.pool.arena.shrink(self.tail, keep)
        else:
            self._drop_tail()
        return spare

    def park(self, *, back: bool = False) -> None:
        """Hold nothing for now: what was computed goes to the cache, from where it may be evicted. back: it is going
        to be asked for again."""
        self.publish()
        if back and self.pool.hints:
            self._expect(self.node)
        self._move(self.node.root)
        self.ids = []
        self.logits = None

    def release(self) -> None:
        """Let go of everything. Idempotent."""
        if self._open:
            self.park()
            self._expect(None)
            self._open = False
            self.pool.leave(self)

    def discard(self, keep: int) -> None:
        """Let go of everything; what follows the first `keep` tokens is freed at once, as nobody asks for it again."""
        if not self._open:
            return
        node, tail = self.node, self._tail_length
        if keep < self.length:
            self.truncate(keep)
        self.pool.dropped += tail - self._tail_length + self.pool.tree.drop(node, self.node)
        self.release()

    def check(self) -> None:
        """Raise AssertionError unless lengths and ids agree."""
        spelled = [id for node in self.node.path() for id in node.ids]
        assert self.ids[: len(spelled)] == spelled, "ids differ from the path's"
        assert self.node.end == len(spelled)
        assert self.node.end + self._tail_length == len(self.ids)
        assert self._tail_length <= (self.tail.length if self.tail is not None else 0)
        assert self._open or not (self.ids or self.tail)

    def _climb(self, length: int) -> None:
        """Go up to the node that ends with the first `length` tokens, or before; what followed is gone."""
        if self.random_from is not None and length <= self.random_from:
            self.random_from = None
        node = self.node
        while node.parent is not None and node.start >= length:
            node = node.parent
        if node.end > length:
            node = self.pool.tree.split(node, length - node.start)
        self._move(node)

    def _move(self, node: Node) -> None:
        """Lock `node` in place of the present one."""
        if node is not self.node:
            old, self.node = self.node, node
            self.pool.tree.lock(node)
            self.pool.tree.unlock(old)

    def _expect(self, node: Node | None) -> None:
        """Announce that this lease is going to come back to `node`, or take that back."""
        old, self._awaited = self._awaited, node
        if node is not None:
            self.pool.tree.expect(node, 1)
        if old is not None:
            self.pool.tree.expect(old, -1)

    def _drop_tail(self) -> None:
        if self.tail is not None:
            self.pool.arena.release(self.tail)
        self.tail, self._tail_length = None, 0

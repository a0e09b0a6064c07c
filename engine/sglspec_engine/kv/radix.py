"""Keys and values that may be shared: a tree of immutable token runs, each with the span that holds theirs.

A path from a root spells a context. Nodes that a lease uses, and all above them, are locked; the others are a cache
and are evicted leaf by leaf when memory is short. First go those that cannot recur, as they were drawn at random; then
those that nobody is known to need, by age; then those with known users, the shortest context first, as it is the
cheapest to compute again and the last one to be let in. Roots keep contexts apart that must not be shared although
their tokens are equal (namespaces).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from sglspec_engine.kv.arena import Arena, Span

_HEAP = 4096
"""Entries of the eviction queue up to which those that are out of date do not matter."""


class Node:
    """A run of tokens below `parent`. A root has no tokens, no span and no parent.

    locks: leases on this node or below it. end: tokens from the root to the end of this node. expected: users that are
    known to come. used: when it was last used, in ticks of the tree. transient: nobody is going to ask for it again.
    private (of a root): nothing below it outlives its leases.
    """

    __slots__ = ("children", "end", "expected", "ids", "locks", "parent", "private", "span", "transient", "used")

    def __init__(
        self,
        ids: tuple[int, ...],
        span: Span | None,
        parent: Node | None,
        *,
        private: bool = False,
        transient: bool = False,
    ) -> None:
        self.ids = ids
        self.span = span
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.locks = 0
        self.expected = 0
        self.used = 0
        self.end = len(ids) + (parent.end if parent is not None else 0)
        self.private = private
        self.transient = transient

    @property
    def start(self) -> int:
        """Tokens from the root to the beginning of this node."""
        return self.end - len(self.ids)

    def path(self) -> list[Node]:
        """The nodes from the root (left out) to this one."""
        found: list[Node] = []
        node = self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    @property
    def root(self) -> Node:
        """The root above."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node


class RadixTree:
    """See the module docstring. cached: tokens in nodes that nobody has locked; locked: in the others."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._roots: dict[str, Node] = {}
        self._ticks = 0
        self._heap: list[tuple[tuple[int, int], int, Node]] = []
        self._heap_limit = _HEAP
        self._pushes = 0
        self.cached = 0
        self.locked = 0
        self.evicted = 0
        self.announced = 0
        self.transient = 0
        self.version = 0
        # version: changes with every match that may come out different. Since the beginning: evicted tokens, announced
        # users, transient tokens.

    def root(self, namespace: str = "") -> Node:
        """The root of a namespace, the same one at every call."""
        return self._roots.setdefault(namespace, Node((), None, None))

    def private_root(self) -> Node:
        """A new root that nobody else finds."""
        return Node((), None, None, private=True)

    def match(self, node: Node, ids: Sequence[int]) -> int:
        """How many of `ids`, which begin with all that leads to `node`, are there. Changes nothing."""
        return self._walk(node, ids)[2]

    def find(self, node: Node, ids: Sequence[int], limit: int) -> tuple[Node, Node, int]:
        """As `match` for the first `limit` of `ids`: the deepest node of which all is there, the one below it of which
        a part is (else the same), and how many."""
        last, inside, length = self._walk(node, ids, limit)
        return (last.parent if inside and last.parent is not None else last), last, length

    def descend(self, node: Node, ids: Sequence[int]) -> Node:
        """The node where the longest match of `ids` ends, which begin with all that leads to `node`; made by a split
        if need be."""
        last, inside, _ = self._walk(node, ids)
        if inside:
            last = self.split(last, inside)
        self.touch(last)
        return last

    def touch(self, node: Node) -> None:
        """Note that a node and those above it are in use now."""
        self._ticks += 1
        at: Node | None = node
        while at is not None:
            at.used = self._ticks
            at = at.parent

    def insert(self, parent: Node, ids: Sequence[int], span: Span, *, transient: bool = False) -> Node:
        """A new leaf that takes over `span`. No child of `parent` may begin with the same token (`descend` first)."""
        assert ids and ids[0] not in parent.children and span.length == len(ids)
        node = Node(tuple(ids), span, parent, transient=transient)
        self.transient += len(ids) * transient
        parent.children[node.ids[0]] = node
        self.cached += len(ids)
        self.version += 1
        self.touch(node)
        self._offer(node)
        return node

    def split(self, node: Node, at: int) -> Node:
        """Cut a node after `at` tokens. The upper part is a new node and returned; `node` itself is the lower part, so
        those who have locked it keep what they have."""
        assert node.span is not None and node.parent is not None
        upper = Node(node.ids[:at], self._arena.split(node.span, at), node.parent)
        upper.locks, upper.used, upper.expected = node.locks, node.used, node.expected
        upper.transient = node.transient
        upper.children[node.ids[at]] = node
        node.parent.children[node.ids[0]] = upper
        node.ids, node.parent = node.ids[at:], upper
        return upper

    def lock(self, node: Node) -> None:
        """Keep a node and all above it."""
        for one in node.path():
            if one.locks == 0:
                self.cached -= len(one.ids)
                self.locked += len(one.ids)
            one.locks += 1

    def unlock(self, node: Node) -> None:
        """Undo one `lock`. What nobody has locked is a cache from then on; below a private root it is freed."""
        private = node.root.private
        for one in reversed(node.path()):
            assert one.locks > 0, "a node was unlocked more often than locked"
            one.locks -= 1
            if one.locks == 0:
                self.locked -= len(one.ids)
                self.cached += len(one.ids)
                if private:
                    self._remove(one)
                else:
                    self._offer(one)

    def expect(self, node: Node, count: int) -> None:
        """Note that `count` more users of a node are known to come (fewer where it is negative)."""
        self.announced += max(0, count)
        for one in node.path():
            one.expected += count
            self._offer(one)

    def evict(self, tokens: int) -> int:
        """Free at least `tokens` slots of the cache, where it has as many. Returns how many were freed."""
        freed = 0
        while freed < tokens and self._heap:
            rank, _, node = heapq.heappop(self._heap)
            if not self._evictable(node):
                continue
            if rank != _rank(node):
                self._offer(node)
                continue
            freed += len(node.ids)
            self.evicted += len(node.ids)
            parent = self._remove(node)
            self._offer(parent)
        return freed

    def coalesce(self, leases: Iterable[Node], limit: int) -> int:
        """Join runs of locked nodes that only ever occur together into one node with one span, until about `limit`
        slots were copied. Nodes that lie one behind the other cost nothing. Returns how many were copied."""
        copied = 0
        for lease in leases:
            node = lease
            while node.parent is not None and copied < limit:
                upper = node.parent
                if _belong_together(upper, node):
                    cost = self._join(upper, node)
                    if cost is None:
                        return copied
                    copied += cost
                else:
                    node = upper
        return copied

    def drop(self, node: Node, above: Node) -> int:
        """Free what nobody uses or expects from `node` up to below `above`. Returns how many tokens."""
        freed = 0
        while node is not above and self._evictable(node) and not node.expected:
            freed += len(node.ids)
            node = self._remove(node)
        self._offer(node)
        return freed

    def check(self, leases: Iterable[Node]) -> list[Span]:
        """Raise AssertionError unless the tree is sound and `leases` (one node per lease) explain its locks. Returns
        all its spans."""
        expected: dict[Node, int] = {}
        roots = set(self._roots.values())
        for node in leases:
            roots.add(node.root)
            for one in node.path():
                expected[one] = expected.get(one, 0) + 1
        found = [node for root in roots for node in _below(root)]
        for node in found:
            count = expected.pop(node, 0)
            assert node.locks == count, f"a node of {len(node.ids)} tokens has {node.locks} locks and {count} users"
            assert node.span is not None and node.span.length == len(node.ids) > 0
        assert not expected, "a lease is on a node that is not in the tree"
        assert self.cached == sum(len(n.ids) for n in found if n.locks == 0)
        assert self.locked == sum(len(n.ids) for n in found if n.locks > 0)
        offered = {entry[2] for entry in self._heap}
        assert all(node in offered for node in found if self._evictable(node)), "a node can never be evicted"
        return [node.span for node in found if node.span is not None]

    def _walk(self, node: Node, ids: Sequence[int], limit: int | None = None) -> tuple[Node, int, int]:
        """The deepest node that matches, how many of its tokens do (0 for all), and where in `ids` the match ends."""
        at = node.end
        limit = len(ids) if limit is None else limit
        while at < limit:
            child = node.children.get(ids[at])
            if child is None:
                break
            same = common_prefix(child.ids, tuple(ids[at : min(at + len(child.ids), limit)]))
            at += same
            node = child
            if same < len(child.ids):
                return node, same, at
        return node, 0, at

    def _join(self, upper: Node, node: Node) -> int | None:
        """Make `upper` the beginning of `node`, so those who have locked it keep what they have. Returns how many slots
        were copied, None where there is no room to do it in."""
        assert upper.span is not None and upper.parent is not None and node.span is not None
        cost = 0
        if self._arena.join(upper.span, node.span):
            span = upper.span
        else:
            cost = upper.span.length + node.span.length
            room = self._arena.allocate(cost)
            if room is None:
                return None
            self._arena.copy(upper.span, room, upper.span.length)
            self._arena.copy(node.span, Span(room.start + upper.span.length, node.span.length), node.span.length)
            self._arena.release(upper.span)
            self._arena.release(node.span)
            span = room
        node.ids, node.span, node.parent = upper.ids + node.ids, span, upper.parent
        node.parent.children[node.ids[0]] = node
        upper.span = None
        self.version += 1
        return cost

    def _evictable(self, node: Node) -> bool:
        return node.locks == 0 and not node.children and node.span is not None and node.parent is not None

    def _offer(self, node: Node) -> None:
        """Queue a node for eviction if it may be evicted now. Entries that are out of date are skipped later."""
        if not self._evictable(node):
            return
        if len(self._heap) > self._heap_limit:
            latest = {entry[2] for entry in self._heap if self._evictable(entry[2])}
            self._heap = []
            for one in latest:
                self._push(one)
            self._heap_limit = max(_HEAP, 2 * len(latest))
        self._push(node)

    def _push(self, node: Node) -> None:
        self._pushes += 1
        heapq.heappush(self._heap, (_rank(node), self._pushes, node))

    def _remove(self, node: Node) -> Node:
        """Free an unlocked leaf. Returns its parent."""
        assert node.locks == 0 and not node.children and node.span is not None and node.parent is not None
        self._arena.release(node.span)
        self.cached -= len(node.ids)
        self.version += 1
        del node.parent.children[node.ids[0]]
        node.span = None
        return node.parent


def _rank(node: Node) -> tuple[int, int]:
    """The order of eviction; see the module docstring."""
    if node.expected:
        return (2, node.end)
    return (0 if node.transient else 1, node.used)


def _belong_together(upper: Node, node: Node) -> bool:
    """Whether whoever has locked `upper` has locked `node`, its only child, too."""
    same = upper.locks == node.locks > 0 and upper.expected == node.expected and upper.transient == node.transient
    return same and upper.parent is not None and len(upper.children) == 1


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix. Both of the same type."""
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    return next(i for i in range(limit) if first[i] != second[i])


def _below(root: Node) -> Iterator[Node]:
    """All nodes below a root, with their links checked."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        for first, child in node.children.items():
            assert child.parent is node and child.ids[0] == first, "a link of the tree is broken"
            assert child.end == node.end + len(child.ids)
            assert node.locks >= child.locks or node.parent is None
            yield child
            waiting.append(child)

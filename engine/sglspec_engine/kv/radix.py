"""Keys and values that may be shared: a tree of immutable token runs, each with the span that holds theirs.

A path from a root spells a context. Nodes that a lease uses, and all above them, are locked; the others are a cache
and are evicted leaf by leaf when memory is short: those that nobody is known to need first, then by age. Roots keep
contexts apart that must not be shared although their tokens are equal (namespaces).
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
    known to come. used: when it was last used, in ticks of the tree. private (of a root): nothing below it outlives its
    leases.
    """

    __slots__ = ("children", "end", "expected", "ids", "locks", "parent", "private", "span", "used")

    def __init__(self, ids: tuple[int, ...], span: Span | None, parent: Node | None, *, private: bool = False) -> None:
        self.ids = ids
        self.span = span
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.locks = 0
        self.expected = 0
        self.used = 0
        self.end = len(ids) + (parent.end if parent is not None else 0)
        self.private = private

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
        self._heap: list[tuple[int, int, int, Node]] = []
        self._heap_limit = _HEAP
        self._pushes = 0
        self.cached = 0
        self.locked = 0
        self.evicted = 0
        self.version = 0
        # version: changes when a match may come out longer than before. evicted: tokens, since the beginning.

    def root(self, namespace: str = "") -> Node:
        """The root of a namespace, the same one at every call."""
        return self._roots.setdefault(namespace, Node((), None, None))

    def private_root(self) -> Node:
        """A new root that nobody else finds."""
        return Node((), None, None, private=True)

    def match(self, node: Node, ids: Sequence[int]) -> int:
        """How many of `ids` are there below `node`. Changes nothing."""
        return self._walk(node, ids)[2]

    def descend(self, node: Node, ids: Sequence[int]) -> Node:
        """The node where the longest match of `ids` below `node` ends, made by a split if need be."""
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

    def insert(self, parent: Node, ids: Sequence[int], span: Span) -> Node:
        """A new leaf that takes over `span`. No child of `parent` may begin with the same token (`descend` first)."""
        assert ids and ids[0] not in parent.children and span.length == len(ids)
        node = Node(tuple(ids), span, parent)
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
        for one in node.path():
            one.expected += count
            self._offer(one)

    def evict(self, tokens: int) -> int:
        """Free at least `tokens` slots of the cache, where it has as many. Returns how many were freed."""
        freed = 0
        while freed < tokens and self._heap:
            expected, used, _, node = heapq.heappop(self._heap)
            if not self._evictable(node):
                continue
            if (expected, used) != (min(node.expected, 1), node.used):
                self._offer(node)
                continue
            freed += len(node.ids)
            self.evicted += len(node.ids)
            parent = self._remove(node)
            self._offer(parent)
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
        offered = {entry[3] for entry in self._heap}
        assert all(node in offered for node in found if self._evictable(node)), "a node can never be evicted"
        return [node.span for node in found if node.span is not None]

    def _walk(self, node: Node, ids: Sequence[int]) -> tuple[Node, int, int]:
        """The deepest node that matches, how many of its tokens do (0 for all), and the length of the match."""
        at = 0
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None:
                break
            same = common_prefix(child.ids, tuple(ids[at : at + len(child.ids)]))
            at += same
            node = child
            if same < len(child.ids):
                return node, same, at
        return node, 0, at

    def _evictable(self, node: Node) -> bool:
        return node.locks == 0 and not node.children and node.span is not None and node.parent is not None

    def _offer(self, node: Node) -> None:
        """Queue a node for eviction if it may be evicted now. Entries that are out of date are skipped later."""
        if not self._evictable(node):
            return
        if len(self._heap) > self._heap_limit:
            latest = {entry[3] for entry in self._heap if self._evictable(entry[3])}
            self._heap = []
            for one in latest:
                self._push(one)
            self._heap_limit = max(_HEAP, 2 * len(latest))
        self._push(node)

    def _push(self, node: Node) -> None:
        self._pushes += 1
        heapq.heappush(self._heap, (min(node.expected, 1), node.used, self._pushes, node))

    def _remove(self, node: Node) -> Node:
        """Free an unlocked leaf. Returns its parent."""
        assert node.locks == 0 and not node.children and node.span is not None and node.parent is not None
        self._arena.release(node.span)
        self.cached -= len(node.ids)
        del node.parent.children[node.ids[0]]
        node.span = None
        return node.parent


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

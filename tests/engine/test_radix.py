"""The radix tree against a naive one: the set of sequences that are held, and of those that were added."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec_engine.kv.arena import Arena, KVLayout, LayerShape
from sglspec_engine.kv.radix import Node, RadixTree

LAYOUT = KVLayout((LayerShape(1, 1, 1),), torch.float32, torch.device("cpu"))
IDS = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def add(tree: RadixTree, arena: Arena, root: Node, ids: list[int]) -> Node:
    node = tree.descend(root, ids)
    if node.end < len(ids):
        span = arena.allocate(len(ids) - node.end)
        assert span is not None
        node = tree.insert(node, ids[node.end :], span)
    return node


def spelled(node: Node) -> list[int]:
    return [id for one in node.path() for id in one.ids]


STEP = st.tuples(st.sampled_from(["add", "add", "hold", "hold", "let go", "evict", "expect"]), IDS, st.integers(0, 99))


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=50))
def test_random_operations(steps: list[tuple[str, list[int], int]]) -> None:
    arena = Arena(LAYOUT, 4096, poison=True)
    tree = RadixTree(arena)
    root, other = tree.root(), tree.root("other")
    held: list[tuple[Node, list[int]]] = []
    known: set[tuple[int, ...]] = {()}
    for act, ids, number in steps:
        if act in ("add", "hold"):
            node = add(tree, arena, root, ids)
            assert spelled(node) == ids
            known |= {tuple(ids[:n]) for n in range(len(ids) + 1)}
            if act == "hold":
                tree.lock(node)
                held.append((node, ids))
        elif act == "let go" and held:
            tree.unlock(held.pop(number % len(held))[0])
        elif act == "expect":
            tree.expect(tree.descend(root, ids), 1)
        elif act == "evict":
            before = tree.cached
            freed = tree.evict(number)
            assert freed >= min(number, before)
            assert tree.cached == before - freed
            known = {()} | {p for p in known if tree.match(root, p) == len(p)}
        spans = tree.check(node for node, _ in held)
        arena.check(spans)
        for node, expected in held:
            assert spelled(node) == expected, "who holds a node keeps it, split or not"
            assert tree.match(root, expected) == len(expected)
        longest = max(n for n in range(len(ids) + 1) if tuple(ids[:n]) in known)
        assert tree.match(root, ids) == longest
        assert tree.match(other, ids) == 0, "namespaces share nothing"
    for node, _ in held:
        tree.unlock(node)
    tree.evict(10**6)
    tree.check([])
    assert (arena.used, tree.cached, tree.locked) == (0, 0, 0)


def test_the_oldest_go_first_and_those_that_are_expected_last() -> None:
    arena = Arena(LAYOUT, 64)
    tree = RadixTree(arena)
    root = tree.root()
    for first in (1, 2, 3):
        add(tree, arena, root, [first, 9, 9])
    tree.touch(tree.descend(root, [1, 9, 9]))
    tree.expect(tree.descend(root, [2, 9, 9]), 1)
    gone: list[int] = []
    for _ in range(3):
        assert tree.evict(1) == 3
        gone += [first for first in (1, 2, 3) if tree.match(root, [first]) == 0 and first not in gone]
    assert gone == [3, 1, 2]


def test_below_a_private_root_nothing_outlives_its_users() -> None:
    arena = Arena(LAYOUT, 64)
    tree = RadixTree(arena)
    root = tree.private_root()
    trunk = add(tree, arena, root, [1, 2, 3])
    tree.lock(trunk)
    leaf = add(tree, arena, root, [1, 2, 3, 4])
    tree.lock(leaf)
    tree.unlock(trunk)
    assert arena.used == 4
    tree.unlock(leaf)
    assert (arena.used, tree.cached) == (0, 0)


def test_the_eviction_queue_stays_small() -> None:
    arena = Arena(LAYOUT, 16)
    tree = RadixTree(arena)
    node = add(tree, arena, tree.root(), [1, 2])
    for _ in range(20_000):
        tree.lock(node)
        tree.unlock(node)
    assert len(tree._heap) < 10_000

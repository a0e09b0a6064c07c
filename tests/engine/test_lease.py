"""Leases against a model of them: a list of numbers per lease."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec_engine.kv.lease import KVLayout, LayerShape, Lease, Pool
from sglspec_engine.types import EngineError

LAYOUT = KVLayout((LayerShape(2, 3, 5), LayerShape(1, 4, 4)), torch.float32, torch.device("cpu"))


def grow(lease: Lease, ids: list[int]) -> None:
    """Write values that name their token and position."""
    lease.reserve(len(ids))
    for layer, shape in enumerate(LAYOUT.layers):
        marks = torch.tensor([1000.0 * id + lease.length + i for i, id in enumerate(ids)])[None, :, None]
        lease.write(
            layer,
            marks.expand(shape.heads, len(ids), shape.key_dim),
            -marks.expand(shape.heads, len(ids), shape.value_dim),
        )
    lease.append(ids)


def assert_holds(lease: Lease, ids: list[int]) -> None:
    assert lease.ids == ids
    marks = torch.tensor([1000.0 * id + i for i, id in enumerate(ids)])
    for layer, shape in enumerate(LAYOUT.layers):
        views = lease.views(layer, 0)
        keys = torch.cat([k for k, _ in views], 1) if views else torch.empty(shape.heads, 0, shape.key_dim)
        values = torch.cat([v for _, v in views], 1) if views else torch.empty(shape.heads, 0, shape.value_dim)
        assert torch.equal(keys, marks[None, :, None].expand(shape.heads, len(ids), shape.key_dim))
        assert torch.equal(values, -marks[None, :, None].expand(shape.heads, len(ids), shape.value_dim))


STEP = st.tuples(st.sampled_from(["grow", "grow", "fork", "cut", "release"]), st.integers(0, 10_000))


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_random_operations(steps: list[tuple[str, int]]) -> None:
    pool = Pool(LAYOUT)
    live: list[tuple[Lease, list[int]]] = [(pool.open(), [])]
    for act, number in steps:
        lease, ids = live[number % len(live)]
        if act == "grow":
            new = [(number + i) % 97 for i in range(1 + number % 70)]
            grow(lease, new)
            ids += new
        elif act == "fork":
            live.append((lease.fork(), list(ids)))
        elif act == "cut":
            keep = number % (len(ids) + 1)
            lease.truncate(keep)
            del ids[keep:]
        elif len(live) > 1:
            lease.release()
            live.remove((lease, ids))
        pool.check()
        for other, expected in live:
            assert_holds(other, expected)
    for lease, _ in live:
        lease.release()
        lease.release()
    pool.check()
    assert (pool.live_bytes, pool.live_nodes, pool.live_leases) == (0, 0, 0)


def test_a_fork_copies_nothing_and_shares_one_node() -> None:
    pool = Pool(LAYOUT)
    lease = pool.open()
    grow(lease, list(range(64)))
    before = pool.live_bytes
    branches = [lease.fork() for _ in range(8)]
    assert pool.live_bytes == before == 64 * LAYOUT.bytes_per_token
    assert pool.live_nodes == 1
    assert {branch.path[0].node for branch in branches} == {lease.path[0].node}


def test_what_is_written_counts_only_when_it_is_named() -> None:
    pool = Pool(LAYOUT)
    lease = pool.open()
    grow(lease, [1, 2])
    lease.reserve(3)
    for layer, shape in enumerate(LAYOUT.layers):
        lease.write(layer, torch.zeros(shape.heads, 3, shape.key_dim), torch.zeros(shape.heads, 3, shape.value_dim))
    assert_holds(lease, [1, 2])
    grow(lease, [7])
    assert_holds(lease, [1, 2, 7])


def test_the_limit_leaves_the_lease_as_it_was() -> None:
    pool = Pool(LAYOUT, limit=40 * LAYOUT.bytes_per_token)
    lease = pool.open()
    grow(lease, [1, 2, 3])
    with pytest.raises(EngineError) as caught:
        lease.reserve(60)
    assert caught.value.kind == "limit"
    assert_holds(lease, [1, 2, 3])
    pool.check()

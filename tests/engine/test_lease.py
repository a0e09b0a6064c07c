"""Leases against a model of them: a list of tokens per lease, and values that name their token and position."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec_engine.kv.arena import KVLayout, LayerShape
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool
from sglspec_engine.types import EngineError

LAYOUT = KVLayout((LayerShape(2, 3, 5), LayerShape(1, 4, 4)), torch.float32, torch.device("cpu"))
SIZE = LAYOUT.bytes_per_token


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


STEP = st.tuples(
    st.sampled_from(["open", "grow", "grow", "fork", "cut", "publish", "adopt", "park", "release", "rival", "tidy"]),
    st.integers(0, 10_000),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=50), st.booleans(), st.integers(60, 2000))
def test_random_operations(steps: list[tuple[str, int]], cache: bool, slots: int) -> None:
    """Few tokens, so that leases meet on the same paths; little memory, so that the cache is evicted."""
    pool = Pool(LAYOUT, slots * SIZE, cache=cache, poison=True)
    live: list[tuple[Lease, list[int]]] = [(Lease(pool), [])]
    for act, number in steps:
        lease, ids = live[number % len(live)]
        lease.busy = True
        if act == "open":
            live.append((Lease(pool), []))
        elif act in ("grow", "rival"):
            if act == "rival" and lease.length == 0:
                lease = Lease(pool)
                ids = []
                live.append((lease, ids))
            lease.busy = True
            new = [(number // 7 + i) % 2 for i in range(1 + number % 70)]
            try:
                grow(lease, new)
                ids += new
            except EngineError as error:
                assert error.kind == "limit"
        elif act == "fork":
            live.append((lease.fork(), list(ids)))
        elif act == "cut":
            keep = number % (len(ids) + 1)
            lease.truncate(keep)
            del ids[keep:]
        elif act == "publish":
            lease.publish()
        elif act == "adopt":
            longest = max((other for _, other in live if other[: len(ids)] == ids), key=len)
            gained = lease.adopt(longest)
            assert gained == lease.length - len(ids) >= 0
            ids[:] = longest[: lease.length]
        elif act == "tidy":
            for _ in range(50):
                if not pool.tidy():
                    break
                pool.check()
            assert not pool.tidy()
            assert not pool.arena.scattered
        elif act == "park":
            lease.park()
            assert lease.length == 0
            lease.adopt(ids)
            del ids[lease.length :]
        elif len(live) > 1:
            lease.release()
            live.remove((lease, ids))
        for other, _ in live:
            other.busy = True
        pool.check()
        for other, expected in live:
            assert_holds(other, expected)
    for lease, _ in live:
        lease.release()
        lease.release()
    pool.check()
    assert (pool.live_bytes, pool.live_leases) == (0, 0)
    assert cache or pool.cached_bytes == 0


def test_a_fork_copies_nothing_and_shares_one_node() -> None:
    pool = Pool(LAYOUT, 1000 * SIZE)
    lease = Lease(pool)
    grow(lease, list(range(64)))
    branches = [lease.fork() for _ in range(8)]
    assert pool.live_bytes == 64 * SIZE
    assert {branch.node for branch in branches} == {lease.node}
    assert len(lease.node.path()) == 1


def test_what_is_written_counts_only_when_it_is_named() -> None:
    pool = Pool(LAYOUT, 1000 * SIZE)
    lease = Lease(pool)
    grow(lease, [1, 2])
    lease.reserve(3)
    for layer, shape in enumerate(LAYOUT.layers):
        lease.write(layer, torch.zeros(shape.heads, 3, shape.key_dim), torch.zeros(shape.heads, 3, shape.value_dim))
    lease.publish()
    assert_holds(lease, [1, 2])
    grow(lease, [7])
    assert_holds(lease, [1, 2, 7])
    other = Lease(pool)
    assert other.adopt([1, 2, 7]) == 2, "what was not published is not found"


def test_two_that_computed_the_same_end_up_on_one_copy() -> None:
    """The duplicate is freed and poisoned; who computed it reads the other copy from then on."""
    pool = Pool(LAYOUT, 1000 * SIZE, poison=True)
    first, second, third = Lease(pool), Lease(pool), Lease(pool)
    for lease in (first, second, third):
        grow(lease, [5, 6, 7, 8])
    grow(third, [9])
    for lease in (first, second, third):
        lease.publish()
        pool.check()
    assert first.node is second.node
    assert third.node.parent is first.node
    assert pool.live_bytes == 5 * SIZE
    for lease, ids in ((first, [5, 6, 7, 8]), (second, [5, 6, 7, 8]), (third, [5, 6, 7, 8, 9])):
        assert_holds(lease, ids)


def test_prefixes_of_every_length_are_found() -> None:
    pool = Pool(LAYOUT, 1000 * SIZE, poison=True)
    lease = Lease(pool)
    grow(lease, list(range(40)))
    lease.release()
    for length in [*range(41), *range(40, 0, -1)]:
        other = Lease(pool)
        ids = [*range(length), 99]
        assert other.adopt(ids) == length
        assert_holds(other, ids[:length])
        other.release()
        pool.check()


def test_the_limit_leaves_the_lease_as_it_was() -> None:
    pool = Pool(LAYOUT, 40 * SIZE)
    lease = Lease(pool)
    grow(lease, [1, 2, 3])
    with pytest.raises(EngineError) as caught:
        lease.reserve(60)
    assert caught.value.kind == "limit"
    assert_holds(lease, [1, 2, 3])
    pool.check()


def test_memory_comes_from_the_cache_then_from_idle_leases_never_from_busy_ones() -> None:
    pool = Pool(LAYOUT, 100 * SIZE, poison=True)
    gone, idle, busy = Lease(pool), Lease(pool), Lease(pool)
    for start, lease in ((0, gone), (100, idle), (200, busy)):
        grow(lease, list(range(start, start + 32)))
    busy.busy = True
    gone.release()
    new = Lease(pool)
    new.reserve(30)
    assert (pool.tree.evicted, pool.parked) == (32, 0)
    new.release()
    new = Lease(pool)
    new.busy = True
    new.reserve(60)
    assert (pool.parked, idle.length) == (1, 0)
    assert_holds(busy, list(range(200, 232)))
    with pytest.raises(EngineError):
        Lease(pool).reserve(60)
    pool.check()


def test_a_long_tail_that_cannot_grow_in_place_moves_or_is_sealed() -> None:
    pool = Pool(LAYOUT, 4000 * SIZE, poison=True)
    pair = [Lease(pool), Lease(pool)]
    ids: list[list[int]] = [[], []]
    for i in range(700):
        for which, lease in enumerate(pair):
            grow(lease, [which * 300 + i % 200])
            ids[which].append(which * 300 + i % 200)
    pool.check()
    for lease, expected in zip(pair, ids, strict=True):
        assert_holds(lease, expected)


def test_what_an_idle_lease_had_to_give_back_is_kept_for_it() -> None:
    """It is older than what another one left, and stays all the same, unless hints are off."""
    for hints in (True, False):
        pool = Pool(LAYOUT, 100 * SIZE, hints=hints, poison=True)
        idle, gone, new = Lease(pool), Lease(pool), Lease(pool)
        grow(idle, list(range(32)))
        grow(gone, list(range(100, 132)))
        gone.busy = True
        pool.park_idle(100)
        assert (idle.length, pool.tree.announced) == (0, int(hints))
        gone.release()
        new.busy = True
        new.reserve(40)
        pool.check()
        assert idle.adopt(list(range(32))) == (32 if hints else 0)
        assert idle.node.expected == 0
        pool.check()


def test_what_is_discarded_is_freed_up_to_what_others_use() -> None:
    """A long tail is several nodes by then; what comes before `keep` and what another lease uses stay."""
    pool = Pool(LAYOUT, 2000 * SIZE, poison=True)
    lease, rival = Lease(pool), Lease(pool)
    for i in range(400):
        for which, one in enumerate((lease, rival)):
            grow(one, [1000 * which + i])
    other = lease.fork()
    other.truncate(150)
    lease.discard(100)
    pool.check()
    assert pool.dropped == 250
    assert (pool.tree.match(pool.root(), range(400)), lease.released) == (150, True)
    assert_holds(other, list(range(150)))
    other.discard(100)
    pool.check()
    assert (pool.dropped, pool.tree.cached, pool.live_leases) == (300, 100, 1)
    lease.discard(0)
    assert pool.tree.cached == 100


def test_what_a_long_generation_left_in_pieces_is_one_piece_after_an_idle_moment() -> None:
    pool = Pool(LAYOUT, 4000 * SIZE, poison=True)
    lease, rival = Lease(pool), Lease(pool)
    for i in range(900):
        for which, one in enumerate((lease, rival)):
            grow(one, [1000 * which + i])
    branch = lease.fork()
    grow(branch, [7])
    rival.release()
    before = len(lease.node.path())
    while pool.tidy():
        pool.check()
    pool.check()
    assert len(lease.node.path()) == 1 < before
    assert len(lease.spans(0)) == 1
    assert_holds(lease, list(range(900)))
    assert_holds(branch, [*range(900), 7])

"""Random trees of leases, rows on them and ways to attend, for tests that compare attention with the reference."""

from __future__ import annotations

import random

import torch
from hypothesis import strategies as st

from sglspec_engine.attention.base import Attention, AttentionOptions, AttentionPlan, AttentionRow, Tree
from sglspec_engine.attention.reference import ReferenceAttention
from sglspec_engine.kv.arena import KVLayout, LayerShape
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool

HEADS, KV_HEADS, DIM = 6, 2, 8
SINKS = torch.tensor([0.1, -1.0, 2.0, 0.0, 3.0, -9.0])


def layout(value_dim: int, *, slot_major: bool = False) -> KVLayout:
    return KVLayout((LayerShape(KV_HEADS, DIM, value_dim),), torch.float32, torch.device("cpu"), slot_major)


def grow(lease: Lease, count: int, rng: random.Random, ids: range = range(3)) -> None:
    shape = lease.pool.layout.layers[0]
    lease.busy = True
    lease.reserve(count)
    lease.write(0, torch.randn(KV_HEADS, count, DIM), torch.randn(KV_HEADS, count, shape.value_dim))
    lease.append([rng.choice(ids) for _ in range(count)])


def random_leases(pool: Pool, rng: random.Random) -> list[Lease]:
    live = [Lease(pool)]
    for _ in range(rng.randint(2, 14)):
        lease = rng.choice(live)
        act = rng.choice(["grow", "grow", "fork", "cut", "publish", "open"])
        if act == "grow":
            grow(lease, rng.choice([1, 2, 5, 30, 140]), rng)
        elif act == "fork":
            live += [lease.fork() for _ in range(rng.randint(1, 4))]
        elif act == "cut":
            lease.truncate(rng.randint(0, lease.length))
        elif act == "publish":
            lease.publish()
        else:
            live.append(Lease(pool))
    return live


def random_rows(leases: list[Lease], rng: random.Random) -> tuple[AttentionRow, ...]:
    rows: list[AttentionRow] = []
    start = 0
    for lease in rng.sample(leases, rng.randint(1, len(leases))):
        count = rng.choice([1, 1, 1, 2, 7, 40])
        lease.reserve(count)
        leader, shared = random_leader(lease, rows, rng)
        tree = random_tree(lease.length + shared, count, rng)
        rows.append(AttentionRow(lease, start, count, tree, leader, shared))
        start += count
    return tuple(rows)


def random_leader(lease: Lease, rows: list[AttentionRow], rng: random.Random) -> tuple[AttentionRow | None, int]:
    """At times a row that begins where this lease does, and how many of its new tokens come first here, too."""
    able = [row for row in rows if row.lease.node is lease.node and row.tree is None and not row.lease.tail_length]
    if not able or lease.tail_length or rng.random() < 0.3:
        return None, 0
    leader = rng.choice(able)
    return leader, rng.randint(1, leader.shared + leader.count)


def random_tree(length: int, count: int, rng: random.Random) -> Tree | None:
    """Tokens each of which follows one before it, or the lease's end, or a token of the lease."""
    if rng.random() < 0.6:
        return None
    positions, reach = torch.zeros(count, dtype=torch.long), torch.zeros(count, dtype=torch.long)
    seen = torch.eye(count, dtype=torch.bool)
    for i in range(count):
        parent = rng.choice([i - 1, rng.randrange(i)]) if i and rng.random() < 0.8 else None
        reach[i] = reach[parent] if parent is not None else rng.choice([length, rng.randint(0, length)])
        positions[i] = positions[parent] + 1 if parent is not None else reach[i]
        if parent is not None:
            seen[i] |= seen[parent]
    return Tree(positions, reach, seen)


OPTIONS = st.builds(
    AttentionOptions,
    st.just(0.3),
    window=st.sampled_from([None, 1, 3, 24, 1000]),
    softcap=st.sampled_from([None, 0.7]),
    sinks=st.sampled_from([None, SINKS]),
)


def assert_equals_reference(
    attention: Attention, seed: int, options: AttentionOptions, value_dim: int = DIM, *, slot_major: bool = False
) -> None:
    """Random rows on a random tree give what the reference gives, twice in a row (the second time from what was
    remembered), and nobody reads memory that was freed: that is NaN."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    pool = Pool(layout(value_dim, slot_major=slot_major), 1 << 19, poison=True)
    plan = AttentionPlan(random_rows(random_leases(pool, rng), rng))
    total = sum(row.count for row in plan.rows)
    query = torch.randn(total, HEADS, DIM).transpose(0, 1)
    keys = torch.randn(KV_HEADS, total, DIM)
    values = torch.randn(KV_HEADS, total, value_dim)
    expected = ReferenceAttention().run(0, query, keys, values, plan, options)
    for _ in range(2):
        found = attention.run(0, query, keys, values, plan, options)
        assert found.shape == expected.shape
        assert torch.allclose(found, expected, atol=1e-5, rtol=1e-5)
    pool.check()

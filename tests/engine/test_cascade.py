"""The node cascade against the reference attention, over random trees, rows and windows."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec_engine.attention import cpu
from sglspec_engine.attention.base import AttentionOptions, AttentionPlan, AttentionRow
from sglspec_engine.attention.cascade import cascade
from sglspec_engine.attention.cpu import CpuAttention
from sglspec_engine.attention.reference import ReferenceAttention
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool
from tests.engine.trees import DIM, HEADS, KV_HEADS, OPTIONS, assert_equals_reference, grow, layout


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 10**6), OPTIONS, st.sampled_from([DIM, 6]), st.booleans())
def test_equals_the_reference(seed: int, options: AttentionOptions, value_dim: int, flash: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not flash:
            patch.setattr(cpu, "_FLASH", None)
        assert_equals_reference(CpuAttention(), seed, options, value_dim)


def test_a_shared_node_is_read_once_and_neighbours_are_one_segment() -> None:
    rng = random.Random(0)
    pool = Pool(layout(DIM), 1 << 20)
    trunk = Lease(pool)
    for _ in range(3):
        grow(trunk, 50, rng)
        trunk.publish()
    assert len(trunk.node.path()) == 3
    rows: list[AttentionRow] = []
    for i in range(8):
        lease = trunk.fork()
        lease.reserve(1)
        rows.append(AttentionRow(lease, i, 1))
    found = cascade(AttentionPlan(tuple(rows)), torch.device("cpu"))
    [segment] = found.segments
    assert (segment.length, segment.queries) == (150, slice(0, 8))
    assert found.gathered is not None and found.gathered.slots.shape == (8, 1)
    assert found.parts == 2


def test_interleaved_streams_are_gathered_whole() -> None:
    rng = random.Random(0)
    torch.manual_seed(0)
    pool = Pool(layout(DIM), 1 << 20)
    leases = [Lease(pool) for _ in range(4)]
    for _ in range(3):
        for i, lease in enumerate(leases):
            grow(lease, 40, rng, range(i, i + 1))
            lease.publish()
    for lease in leases:
        lease.reserve(1)
    plan = AttentionPlan(tuple(AttentionRow(lease, i, 1) for i, lease in enumerate(leases)))
    found = cascade(plan, torch.device("cpu"))
    # Each stream lies in several runs between those of the others: one call reads them all, whatever their number.
    assert (found.segments, found.parts) == ((), 1)
    assert found.gathered is not None and found.gathered.slots.shape == (4, 121)
    query, new = torch.randn(HEADS, 4, DIM), torch.randn(KV_HEADS, 4, DIM)
    expected = ReferenceAttention().run(0, query, new, new, plan, AttentionOptions(0.3))
    assert torch.allclose(CpuAttention().run(0, query, new, new, plan, AttentionOptions(0.3)), expected, atol=1e-5)


def test_rows_of_a_few_tokens_are_gathered_with_those_of_one() -> None:
    """Forced tokens come in rows of different length; one call reads what all of them alone see."""
    rng = random.Random(0)
    torch.manual_seed(0)
    pool = Pool(layout(DIM), 1 << 20)
    leases = [Lease(pool) for _ in range(5)]
    counts = (1, 3, 8, 2, 9)
    for i, lease in enumerate(leases):
        grow(lease, 20 + 7 * i, rng)
        lease.reserve(counts[i])
    starts = [sum(counts[:i]) for i in range(5)]
    rows = [AttentionRow(lease, at, n) for lease, at, n in zip(leases, starts, counts, strict=True)]
    found = cascade(AttentionPlan(tuple(rows)), torch.device("cpu"))
    assert found.gathered is not None and found.gathered.at.shape == (4, 8)
    assert len(found.segments) == 2, "what was there of the longest row, and its own tokens"
    query, new = torch.randn(HEADS, 23, DIM), torch.randn(KV_HEADS, 23, DIM)
    for options in (AttentionOptions(0.3), AttentionOptions(0.3, window=9), AttentionOptions(0.3, softcap=5.0)):
        plan = AttentionPlan(tuple(rows))
        expected = ReferenceAttention().run(0, query, new, new, plan, options)
        assert torch.allclose(CpuAttention().run(0, query, new, new, plan, options), expected, atol=1e-5)


def test_a_stream_of_its_own_is_one_segment() -> None:
    rng = random.Random(0)
    lease = Lease(Pool(layout(DIM), 1 << 20))
    grow(lease, 100, rng)
    lease.publish()
    for _ in range(40):
        grow(lease, 1, rng)
    lease.reserve(1)
    found = cascade(AttentionPlan((AttentionRow(lease, 0, 1),)), torch.device("cpu"))
    assert [s.length for s in found.segments] == [141]
    assert (found.gathered, found.parts) == (None, 1)


def test_the_kernel_is_there() -> None:
    assert cpu._FLASH is not None, "this torch has no flash attention for CPUs: plain steps are used, which is slower"

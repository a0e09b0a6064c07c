"""Gathered attention against the reference, and the tables of slots that every kernel is given."""

from __future__ import annotations

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglspec_engine.attention.base import AttentionOptions, AttentionPlan, AttentionRow
from sglspec_engine.attention.gather import GatherAttention
from sglspec_engine.attention.table import Table
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool
from tests.engine.trees import DIM, OPTIONS, assert_equals_reference, grow, layout

CPU = torch.device("cpu")


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), OPTIONS, st.sampled_from([DIM, 6]), st.booleans())
def test_equals_the_reference(seed: int, options: AttentionOptions, value_dim: int, slot_major: bool) -> None:
    assert_equals_reference(GatherAttention(), seed, options, value_dim, slot_major=slot_major)


def a_table() -> tuple[Table, list[list[int]]]:
    """Two siblings after 30 shared tokens, with 1 and 3 new tokens, and a stranger of 5 with 1; and what they read."""
    rng = random.Random(0)
    pool = Pool(layout(DIM), 1 << 20)
    trunk = Lease(pool)
    grow(trunk, 30, rng)
    leases = [trunk.fork(), trunk.fork(), Lease(pool)]
    grow(leases[2], 5, rng)
    rows: list[AttentionRow] = []
    start = 0
    for lease, count in zip(leases, (1, 3, 1), strict=True):
        lease.reserve(count)
        rows.append(AttentionRow(lease, start, count))
        start += count
    reads = [[at for first, n in row.lease.spans(row.count) for at in range(first, first + n)] for row in rows]
    return Table(AttentionPlan(tuple(rows)), CPU), reads


def test_packed_lists_every_row_and_siblings_share_slots() -> None:
    table, reads = a_table()
    packed = table.packed(None)
    assert packed.slots.tolist() == [slot for row in reads for slot in row]
    assert packed.queries.tolist() == [0, 1, 4, 5]
    assert packed.keys.tolist() == [0, 31, 64, 70]
    assert (packed.most_queries, packed.most_keys) == (3, 33)
    assert reads[0][:30] == reads[1][:30]
    assert table.packed(None) is packed


def test_packed_leaves_out_what_the_window_hides_from_all_of_a_row() -> None:
    table, reads = a_table()
    packed = table.packed(4)
    assert packed.slots.tolist() == reads[0][-4:] + reads[1][-6:] + reads[2][-4:]
    assert packed.keys.tolist() == [0, 4, 10, 14]


def test_batches_hold_rows_alike_and_masks_only_where_needed() -> None:
    table, _ = a_table()
    batches = table.batches(None)
    assert [batch.tokens.tolist() for batch in batches] == [[0], [1, 2, 3], [4]]
    assert [batch.mask is None for batch in batches] == [True, False, True]
    [single, several] = table.batches(4)  # the window makes both single rows equally long
    assert single.tokens.tolist() == [0, 4] and single.mask is None
    assert several.mask is not None
    assert several.mask[0].int().tolist() == [[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1]]


def test_an_arena_of_whole_tokens_has_the_same_shapes() -> None:
    for slot_major in (False, True):
        arena = Pool(layout(6, slot_major=slot_major), 1 << 16).arena
        assert arena.keys[0].shape == (2, arena.slots, DIM) and arena.values[0].shape == (2, arena.slots, 6)
        assert arena.keys[0].transpose(0, 1).is_contiguous() is slot_major

"""The reference attention against a loop that follows the definition."""

from __future__ import annotations

import math

import pytest
import torch

from sglspec_engine.attention.base import AttentionOptions, AttentionPlan, AttentionRow
from sglspec_engine.attention.reference import ReferenceAttention
from sglspec_engine.kv.arena import KVLayout, LayerShape
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool

HEADS, KV_HEADS, DIM, VALUE_DIM = 4, 2, 8, 6
LAYOUT = KVLayout((LayerShape(KV_HEADS, DIM, VALUE_DIM),), torch.float32, torch.device("cpu"))


def by_definition(query, keys, values, position: int, head: int, options: AttentionOptions) -> torch.Tensor:
    """One query [dim] against keys [n, dim], values [n, value_dim] up to its own position."""
    low = 0 if options.window is None else max(0, position - options.window + 1)
    scores = [float(query @ keys[j]) * options.scaling for j in range(low, position + 1)]
    if options.softcap is not None:
        scores = [options.softcap * math.tanh(s / options.softcap) for s in scores]
    weights = [math.exp(s) for s in scores]
    total = sum(weights) + (math.exp(float(options.sinks[head])) if options.sinks is not None else 0.0)
    return sum((w / total * values[low + j] for j, w in enumerate(weights)), torch.zeros(values.shape[1]))


@pytest.mark.parametrize(
    "options",
    [
        AttentionOptions(0.3),
        AttentionOptions(0.3, window=3),
        AttentionOptions(0.3, window=100),
        AttentionOptions(0.3, softcap=0.7),
        AttentionOptions(0.3, window=2, sinks=torch.tensor([0.1, -1.0, 2.0, 0.0])),
    ],
)
@pytest.mark.parametrize("counts", [(1,), (5,), (1, 4, 1, 2)])
def test_equals_the_definition(options: AttentionOptions, counts: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(len(counts))
    pool = Pool(LAYOUT, 1 << 20)
    prefix = 7
    root = Lease(pool)
    old_keys = torch.randn(KV_HEADS, prefix, DIM, generator=generator)
    old_values = torch.randn(KV_HEADS, prefix, VALUE_DIM, generator=generator)
    root.reserve(prefix)
    root.write(0, old_keys, old_values)
    root.append(range(prefix))
    rows, start = [], 0
    for count in counts:
        lease = root.fork()
        lease.reserve(count)
        rows.append(AttentionRow(lease, start, count))
        start += count
    query = torch.randn(HEADS, start, DIM, generator=generator)
    keys = torch.randn(KV_HEADS, start, DIM, generator=generator)
    values = torch.randn(KV_HEADS, start, VALUE_DIM, generator=generator)
    out = ReferenceAttention().run(0, query, keys, values, AttentionPlan(tuple(rows)), options)
    assert out.shape == (start, HEADS, VALUE_DIM)
    for row in rows:
        span = slice(row.start, row.start + row.count)
        for head in range(HEADS):
            kv = head // (HEADS // KV_HEADS)
            all_keys = torch.cat([old_keys[kv], keys[kv, span]])
            all_values = torch.cat([old_values[kv], values[kv, span]])
            for i in range(row.count):
                expected = by_definition(query[head, row.start + i], all_keys, all_values, prefix + i, head, options)
                assert torch.allclose(out[row.start + i, head], expected, atol=1e-5)

"""Whether an attention gives on this machine what the reference gives: a small call, before anybody relies on it."""

from __future__ import annotations

import torch

from sglspec_engine.attention.base import Attention, AttentionOptions, AttentionPlan, AttentionRow
from sglspec_engine.attention.reference import ReferenceAttention
from sglspec_engine.kv.arena import KVLayout, LayerShape
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool

_HEADS, _KV_HEADS, _WIDTH = 8, 2, 128
_PREFIX, _COUNTS = 40, (1, 5, 1)
_WINDOWS = (None, 7)
_TOLERANCE = 0.05
"""Far above what 16 bits round, far below what one key too many or too few changes."""


def find_problem(attention: Attention, device: torch.device, dtype: torch.dtype) -> str | None:
    """What is wrong with it: rows of one and of several tokens that share a prefix and heads, with and without a
    window. None if nothing is."""
    layout = KVLayout((LayerShape(_KV_HEADS, _WIDTH, _WIDTH),), dtype, device, slot_major=True)
    pool = Pool(layout, 1024 * layout.bytes_per_token)
    generator = torch.Generator().manual_seed(0)

    def random(heads: int, tokens: int) -> torch.Tensor:
        return torch.randn(heads, tokens, _WIDTH, generator=generator).to(device, dtype)

    trunk = Lease(pool)
    trunk.reserve(_PREFIX)
    trunk.write(0, random(_KV_HEADS, _PREFIX), random(_KV_HEADS, _PREFIX))
    trunk.append(range(_PREFIX))
    rows: list[AttentionRow] = []
    for count in _COUNTS:
        lease = trunk.fork()
        lease.reserve(count)
        rows.append(AttentionRow(lease, sum(row.count for row in rows), count))
    plan, total = AttentionPlan(tuple(rows)), sum(_COUNTS)
    call = random(_HEADS, total), random(_KV_HEADS, total), random(_KV_HEADS, total), plan
    for window in _WINDOWS:
        options = AttentionOptions(_WIDTH**-0.5, window=window)
        expected = ReferenceAttention().run(0, *call, options)
        try:
            found = attention.run(0, *call, options)
            apart = float((found.float() - expected.float()).abs().max())
        except Exception as error:  # compilers, drivers and libraries fail in their own ways
            return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        if not apart <= _TOLERANCE:
            return f"off by {apart:.2g} with window={window}"
    return None

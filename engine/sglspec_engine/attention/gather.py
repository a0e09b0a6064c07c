"""Attention in torch's own operations on any device: gather what rows read, then one call per batch of like rows.

What other implementations fall back to where their kernel does not apply: float32, a soft cap, sinks, unusual sizes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sglspec_engine.attention.base import AttentionOptions, AttentionPlan
from sglspec_engine.attention.table import Batch, Table, Tables, gather


class GatherAttention:
    """See `Attention`."""

    def __init__(self) -> None:
        self._tables = Tables()

    def run(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, options: AttentionOptions
    ) -> Tensor:
        """See `Attention.run`."""
        table = self._tables.get(plan, query.device)
        table.store(layer, keys, values)
        return attend(layer, query, table, options)


def attend(layer: int, query: Tensor, table: Table, options: AttentionOptions) -> Tensor:
    """query [heads, T, key_dim] over what a table lists and has stored: [T, heads, value_dim]."""
    keys, values = table.arena.keys[layer], table.arena.values[layer]
    out = query.new_empty(query.shape[1], query.shape[0], values.shape[-1])
    for batch in table.batches(options.window):
        out.index_copy_(0, batch.tokens, _attend(query, keys, values, batch, options))
    return out


def _attend(query: Tensor, keys: Tensor, values: Tensor, batch: Batch, options: AttentionOptions) -> Tensor:
    """One batch: [rows * count, heads, value_dim]."""
    rows, longest = batch.slots.shape
    kv_heads, group = keys.shape[0], query.shape[0] // keys.shape[0]
    flat = batch.slots.reshape(-1)
    keys = gather(keys, flat).view(rows, longest, kv_heads, -1).transpose(1, 2)
    values = gather(values, flat).view(rows, longest, kv_heads, -1).transpose(1, 2)
    # Query heads that share a key head become more queries of it: [rows, kv heads, group * count, dim].
    own = query.index_select(1, batch.tokens).view(kv_heads, group, rows, batch.count, -1)
    own = own.permute(2, 0, 1, 3, 4).reshape(rows, kv_heads, group * batch.count, -1)
    mask = None if batch.mask is None else batch.mask.repeat(1, group, 1)[:, None]
    if options.softcap is None and options.sinks is None:
        out = functional.scaled_dot_product_attention(own, keys, values, attn_mask=mask, scale=options.scaling)
    else:
        out = _explicit(own, keys, values, mask, options)
    out = out.reshape(rows, kv_heads, group, batch.count, -1).permute(0, 3, 1, 2, 4)
    return out.reshape(rows * batch.count, kv_heads * group, -1)


def _explicit(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, options: AttentionOptions) -> Tensor:
    """Softmax attention with soft cap and sinks, in fp32. query [rows, kv heads, group * count, dim]."""
    scores = torch.matmul(query.float(), keys.float().transpose(-1, -2)) * options.scaling
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if options.sinks is not None:
        sinks = options.sinks.float().view(keys.shape[1], -1)  # a logit per query head: [kv heads, group]
        sinks = sinks.repeat_interleave(scores.shape[2] // sinks.shape[1], dim=1)
        scores = torch.cat([scores, sinks[None, :, :, None].expand(scores.shape[0], -1, -1, 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : keys.shape[2]]
    return torch.matmul(weights, values.float()).to(query.dtype)

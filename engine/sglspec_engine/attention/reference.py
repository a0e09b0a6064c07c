"""Attention without tricks: gather a lease's keys and values, attend, next row. What others are compared with."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sglspec_engine.attention.base import AttentionOptions, AttentionPlan, AttentionRow, Tree


class ReferenceAttention:
    """See `Attention`. Softmax in fp32 where the model's dtype is narrower."""

    def run(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, options: AttentionOptions
    ) -> Tensor:
        """See `Attention.run`."""
        out = query.new_empty(query.shape[1], query.shape[0], values.shape[-1])
        for row in plan.rows:
            span = slice(row.start, row.start + row.count)
            row.lease.write(layer, keys[:, span], values[:, span])
            out[span] = _attend(layer, query[:, span], row, options)
        return out


def _attend(layer: int, query: Tensor, row: AttentionRow, options: AttentionOptions) -> Tensor:
    """query [heads, n, dim] over one lease; returns [n, heads, value_dim]."""
    arena = row.lease.pool.arena
    keys, values = arena.keys[layer], arena.values[layer]
    views = [(keys[:, at : at + n], values[:, at : at + n]) for at, n in row.spans()]
    if options.window is not None and row.count == 1 and row.tree is None:
        views = _last(views, options.window)
    keys = views[0][0] if len(views) == 1 else torch.cat([k for k, _ in views], dim=1)
    values = views[0][1] if len(views) == 1 else torch.cat([v for _, v in views], dim=1)
    heads, count, dim = query.shape
    kv_heads = keys.shape[0]
    # Query heads that share a key head become more rows of it: [kv heads, group * n, dim].
    grouped = query.reshape(kv_heads, heads // kv_heads * count, dim)
    if row.tree is None:
        mask = _mask(count, keys.shape[1], options.window, query.device)
    else:
        mask = _tree_mask(row.tree, row.length, options.window).to(query.device)
    if mask is not None:
        mask = mask.repeat(heads // kv_heads, 1)
    if options.softcap is None and options.sinks is None:
        found = functional.scaled_dot_product_attention(
            grouped[None], keys[None], values[None], attn_mask=mask, scale=options.scaling
        )[0]
    else:
        found = _explicit(grouped, keys, values, mask, options, count)
    return found.reshape(heads, count, values.shape[-1]).transpose(0, 1)


def _last(views: list[tuple[Tensor, Tensor]], window: int) -> list[tuple[Tensor, Tensor]]:
    """The last `window` tokens of the views: all that a single query sees."""
    kept: list[tuple[Tensor, Tensor]] = []
    for keys, values in reversed(views):
        take = min(window, keys.shape[1])
        kept.append((keys[:, keys.shape[1] - take :], values[:, values.shape[1] - take :]))
        window -= take
        if window == 0:
            break
    return kept[::-1]


def _mask(count: int, total: int, window: int | None, device: torch.device) -> Tensor | None:
    """Whether query i (of the last `count` of `total` positions) sees key j: bool [count, total], None for all."""
    if count == 1 and (window is None or window >= total):
        return None
    at = torch.arange(total - count, total, device=device)[:, None]
    key = torch.arange(total, device=device)[None, :]
    seen = key <= at
    return seen if window is None else seen & (key > at - window)


def _tree_mask(tree: Tree, length: int, window: int | None) -> Tensor:
    """The same for a row of a tree, after `length` tokens of its lease."""
    before = torch.arange(length)
    seen = torch.cat([before < tree.reach[:, None], tree.seen], dim=1)
    return seen if window is None else seen & (torch.cat([before, tree.positions]) > tree.positions[:, None] - window)


def _explicit(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, options: AttentionOptions, count: int
) -> Tensor:
    """Softmax attention with soft cap and sinks, in fp32. query [kv heads, group * n, dim]."""
    scores = torch.matmul(query.float(), keys.float().transpose(1, 2)) * options.scaling
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if options.sinks is None:
        weights = torch.softmax(scores, dim=-1)
    else:
        sinks = options.sinks.float().reshape(keys.shape[0], -1, 1).repeat(1, 1, count)
        sink = sinks.reshape(keys.shape[0], -1, 1)
        weights = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
    return torch.matmul(weights, values.float()).to(query.dtype)

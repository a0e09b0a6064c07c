"""Attention on a CPU: once per segment of the cascade, over views of the arena, merged by log-sum-exp.

softmax over a union is the mean of the softmaxes over its parts, weighted by their sums of exponentials (the identity
behind flash attention's splits and FlashInfer's cascades), so the result is exact. torch's own flash kernel returns
the log-sum-exp as well; where it does not apply (soft cap, a window that cuts a segment, values of another width than
keys) the same is computed in plain steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sglspec_engine.attention.base import AttentionOptions, AttentionPlan
from sglspec_engine.attention.cascade import Cascade, Gathered, Mask, Segment, cascade
from sglspec_engine.kv.arena import Arena

_Pair = tuple[Tensor, Tensor]
"""Output [heads, n, value_dim] and natural log-sum-exp [heads, n]."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one layer's attention is made of: keys and values [kv heads, slots, dim], and the query heads per kv
    head."""

    keys: Tensor
    values: Tensor
    group: int
    options: AttentionOptions


class CpuAttention:
    """See `Attention`. The segments of a plan are found once and serve all layers."""

    def __init__(self) -> None:
        self._plan: AttentionPlan | None = None
        self._cascade: Cascade | None = None

    def run(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, options: AttentionOptions
    ) -> Tensor:
        """See `Attention.run`."""
        found = self._cascade
        if found is None or plan is not self._plan:
            found = cascade(plan, query.device)
            self._plan, self._cascade = plan, found
        arena: Arena = plan.rows[0].lease.pool.arena
        arena.keys[layer].index_copy_(1, found.slots, keys)
        arena.values[layer].index_copy_(1, found.slots, values)
        what = _Layer(arena.keys[layer], arena.values[layer], query.shape[0] // keys.shape[0], options)
        if found.parts == 1 and len(found.segments) == 1 and found.gathered is None and options.sinks is None:
            whole = _segment(query, found.segments[0], what)
            if whole is not None:
                return whole[0].transpose(0, 1)
        return _merge(query, found, what).to(query.dtype)


def _merge(query: Tensor, found: Cascade, layer: _Layer) -> Tensor:
    """All segments, merged: [T, heads, value_dim] in fp32."""
    heads, count, _ = query.shape
    outs = query.new_zeros(found.parts, count, heads, layer.values.shape[-1], dtype=torch.float32)
    sums = query.new_full((found.parts, count, heads), float("-inf"), dtype=torch.float32)
    for segment in found.segments:
        pair = _segment(query[:, segment.queries], segment, layer)
        if pair is not None:
            outs[segment.part][segment.queries] = pair[0].transpose(0, 1).float()
            sums[segment.part][segment.queries] = pair[1].T
    if found.gathered is not None:
        out, lse = _gather(query[:, found.gathered.queries], found.gathered, layer)
        outs[found.gathered.part][found.gathered.queries] = out.transpose(0, 1).float()
        sums[found.gathered.part][found.gathered.queries] = lse.T
    merged = outs[0] if found.parts == 1 else outs.mul_(torch.softmax(sums, dim=0)[..., None]).sum(dim=0)
    if layer.options.sinks is None:
        return merged
    # A sink is one more term of the denominator, without a value.
    return merged * torch.sigmoid(torch.logsumexp(sums, dim=0) - layer.options.sinks.float())[..., None]


def _segment(query: Tensor, segment: Segment, layer: _Layer) -> _Pair | None:
    """query [heads, n, key_dim] over one segment; None where the window leaves nothing of it."""
    if segment.mask is not None:
        return _masked(query, segment, segment.mask, layer)
    window = layer.options.window
    skip = 0 if window is None else max(0, int(segment.at.min()) - window + 1 - segment.position)
    if skip >= segment.length:
        return None
    slots = slice(segment.first + skip, segment.first + segment.length)
    keys, values = layer.keys[:, slots], layer.values[:, slots]
    position = segment.position + skip
    cut = window is not None and position <= int(segment.at.max()) - window
    if not cut and layer.options.softcap is None and _flash_applies(query, values):
        return _flash(query, keys, values, layer, causal=segment.causal)
    mask = None
    if cut or segment.causal:
        at = torch.arange(position, position + keys.shape[1], device=query.device)[None, :]
        mask = _visible(at, segment.at[:, None], window)
    return _plain(query, keys, values, layer, mask)


def _masked(query: Tensor, segment: Segment, what: Mask, layer: _Layer) -> _Pair:
    """query [heads, n, key_dim] over a segment of which each sees what a mask says."""
    window = layer.options.window
    mask = what.seen if window is None else what.seen & (what.positions > segment.at[:, None] - window)
    slots = slice(segment.first, segment.first + segment.length)
    keys, values = layer.keys[:, slots], layer.values[:, slots]
    # The kernel has no answer for a query that sees nothing.
    if layer.options.softcap is None and _flash_applies(query, values) and bool(mask.any(dim=1).all()):
        added = torch.zeros(mask.shape, dtype=query.dtype).masked_fill_(~mask, float("-inf"))
        out, lse = _FLASH(
            query[None], keys[None], values[None], 0.0, False, attn_mask=added[None, None], scale=layer.options.scaling
        )
        return out[0], lse[0]
    return _plain(query, keys, values, layer, mask)


def _gather(query: Tensor, gathered: Gathered, layer: _Layer) -> _Pair:
    """query [heads, q, key_dim], each over the slots of its row."""
    count, longest = gathered.slots.shape
    most = gathered.at.shape[1]
    flat = gathered.slots.reshape(-1)
    heads = layer.keys.shape[0]
    keys = layer.keys.index_select(1, flat).view(heads, count, longest, -1)
    values = layer.values.index_select(1, flat).view(heads, count, longest, -1)
    if gathered.spread is not None:
        query = query.index_select(1, gathered.spread)
    # [key heads, rows, query heads of each, queries of a row, key_dim]: heads that share keys are more queries of them
    grouped = query.reshape(heads, layer.group, count, most, -1).transpose(1, 2)
    options = layer.options
    if options.window is None and options.softcap is None and _flash_applies(query, values):
        mask = None
        if gathered.padding is not None:
            mask = gathered.padding.to(query.dtype)[:, None].expand(-1, layer.group, -1, -1).flatten(1, 2)[:, None]
        asked = grouped.transpose(0, 1).flatten(2, 3)
        out, lse = _FLASH(
            asked, keys.transpose(0, 1), values.transpose(0, 1), 0.0, False, attn_mask=mask, scale=options.scaling
        )
        out, lse = out.transpose(0, 1), lse.transpose(0, 1)
    else:
        seen = _visible(gathered.positions[:, None], gathered.at[:, :, None], options.window)
        seen = seen[:, None].expand(-1, layer.group, -1, -1).flatten(1, 2)
        scores = _scores(grouped.flatten(2, 3), keys, options).masked_fill(~seen[None], float("-inf"))
        out, lse = _softmax(scores, values)
    out = out.reshape(heads, count, layer.group, most, -1).transpose(1, 2).reshape(query.shape[0], count * most, -1)
    lse = lse.reshape(heads, count, layer.group, most).transpose(1, 2).reshape(query.shape[0], count * most)
    if gathered.back is not None:
        out, lse = out.index_select(1, gathered.back), lse.index_select(1, gathered.back)
    return out, lse


def _flash_applies(query: Tensor, values: Tensor) -> bool:
    return _FLASH is not None and query.device.type == "cpu" and query.shape[-1] == values.shape[-1]


def _flash(query: Tensor, keys: Tensor, values: Tensor, layer: _Layer, *, causal: bool) -> _Pair:
    heads, count, dim = query.shape
    if not causal:
        # Query heads that share a key head become more rows of it, so that its keys are read once.
        query = query.reshape(keys.shape[0], layer.group * count, dim)
    out, lse = _FLASH(query[None], keys[None], values[None], 0.0, causal, scale=layer.options.scaling)
    return out[0].reshape(heads, count, dim), lse[0].reshape(heads, count)


def _plain(query: Tensor, keys: Tensor, values: Tensor, layer: _Layer, mask: Tensor | None) -> _Pair:
    """The same in plain steps, fp32. mask: what each query sees, bool [n, m]."""
    heads, count, dim = query.shape
    grouped = query.reshape(keys.shape[0], layer.group * count, dim)
    scores = _scores(grouped, keys, layer.options)
    if mask is not None:
        scores = scores.view(heads, count, -1).masked_fill(~mask, float("-inf")).view(scores.shape)
    out, lse = _softmax(scores, values)
    return out.reshape(heads, count, -1), lse.reshape(heads, count)


def _scores(query: Tensor, keys: Tensor, options: AttentionOptions) -> Tensor:
    scores = torch.matmul(query.float(), keys.float().transpose(-1, -2)) * options.scaling
    return scores if options.softcap is None else torch.tanh(scores / options.softcap) * options.softcap


def _softmax(scores: Tensor, values: Tensor) -> _Pair:
    """Softmax times values, and the log-sum-exp. A query that sees nothing gets zeros and minus infinity."""
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0.0)[..., None])
    return torch.matmul(weights, values.float()), lse


def _visible(keys_at: Tensor, at: Tensor, window: int | None) -> Tensor:
    """Whether queries at `at` see keys at `keys_at` (broadcast)."""
    seen = keys_at <= at
    return seen if window is None else seen & (keys_at > at - window)


def _find_flash() -> Any:
    """torch's flash attention for CPUs, which returns the log-sum-exp. It is not public: None where it is gone or gives
    something else than it should."""
    try:
        found: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
        query, keys = torch.ones(1, 2, 1, 4), torch.ones(1, 1, 3, 4)
        out, lse = found(query, keys, keys, 0.0, False, scale=0.5)
        expected = 2.0 + float(torch.log(torch.tensor(3.0)))
        good = out.shape == (1, 2, 1, 4) and bool(torch.allclose(lse, torch.full((1, 2, 1), expected)))
        return found if good else None
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None


_FLASH: Any = _find_flash()

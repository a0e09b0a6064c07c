"""Attention on CUDA devices by torch's variable-length flash kernel: all rows, long and short, in one call.

Never executed on hardware. The kernel takes packed keys, so what rows read is gathered first. Its Python function is
young and has changed with every release of torch, so its signature is looked at.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sglspec_engine.attention.base import AttentionOptions, AttentionPlan
from sglspec_engine.attention.gather import attend
from sglspec_engine.attention.table import Packed, Tables, gather
from sglspec_engine.types import EngineError

_HALF = (torch.float16, torch.bfloat16)
_WIDEST = 256
"""Head width up to which the kernel exists; it works on multiples of 8."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """torch's function, and what this release wants to be told besides."""

    call: Callable[..., Tensor]
    extra: dict[str, Any]

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, packed: Packed, options: AttentionOptions
    ) -> Tensor:
        """query [T, heads, dim], keys and values [total, kv heads, dim]; returns [T, heads, dim]."""
        device = query.device
        # A window counts tokens to the left of the query here; the engine's counts the query as well.
        window = (-1 if options.window is None else options.window - 1, 0)
        return self.call(
            query,
            keys,
            values,
            packed.queries.to(device),
            packed.keys.to(device),
            packed.most_queries,
            packed.most_keys,
            scale=options.scaling,
            window_size=window,
            **self.extra,
        )


class VarlenAttention:
    """See `Attention`. kernel: what `load` gave. Layers that it does not serve are gathered."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._tables = Tables()

    def run(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, options: AttentionOptions
    ) -> Tensor:
        """See `Attention.run`."""
        table = self._tables.get(plan, query.device)
        table.store(layer, keys, values)
        if not _applies(query, values, options):
            return attend(layer, query, table, options)
        packed = table.packed(options.window)
        arena = table.arena
        read = gather(arena.keys[layer], packed.slots), gather(arena.values[layer], packed.slots)
        return self._kernel(query.transpose(0, 1).contiguous(), *read, packed, options)


def load() -> Kernel:
    """torch's function. Raises EngineError("unsupported") for a release that has none that would do.

    It came with torch 2.10; scale and window_size came later, enable_gqa and num_splits later still.
    """
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        raise EngineError("unsupported", f"torch {torch.__version__} has no varlen_attn") from None
    call: Callable[..., Any] = varlen_attn
    known = inspect.signature(call).parameters
    if not {"scale", "window_size"} <= known.keys():
        raise EngineError("unsupported", f"varlen_attn of torch {torch.__version__} has no scale or no window_size")
    extra: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in known else {}
    if "num_splits" in known:
        # How a row's sums are split would depend on the longest row beside it, and so would its last bits.
        extra["num_splits"] = 1
    return Kernel(call, extra)


def _applies(query: Tensor, values: Tensor, options: AttentionOptions) -> bool:
    dim = query.shape[-1]
    return (
        query.dtype in _HALF
        and dim == values.shape[-1]
        and dim % 8 == 0
        and dim <= _WIDEST
        and options.softcap is None
        and options.sinks is None
    )

"""Attention on CUDA devices by FlashInfer's paged kernels, with pages of one token: the arena is read where it lies.

Never executed on hardware. One kind of wrapper serves rows of all lengths (prefill with paged keys and values); there
is one per distinct way in which layers attend, planned once per step. Importing the package takes seconds, so only
`load` does it.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import torch
from torch import Tensor

from sglspec_engine.attention.base import AttentionOptions, AttentionPlan
from sglspec_engine.attention.gather import attend
from sglspec_engine.attention.table import Packed, Table, Tables
from sglspec_engine.types import EngineError

_HALF = (torch.float16, torch.bfloat16)
_WIDTHS = (64, 128, 256)
"""Head widths that every release has kernels for."""
_WORKSPACE = 128 << 20
"""Bytes for partial results; what FlashInfer recommends."""

_Way = tuple[int, int, int, float, int | None, float | None, torch.dtype]
"""How a layer attends: query heads, kv heads, width, scaling, window, soft cap, dtype."""


def load() -> Any:
    """The package. Raises EngineError("unsupported") where it is not installed or cannot be imported."""
    try:
        return importlib.import_module("flashinfer")
    except Exception as error:  # its import compiles, loads libraries and looks for devices
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise EngineError("unsupported", f"flashinfer cannot be imported: {first}") from None


class FlashInferAttention:
    """See `Attention`. flashinfer: what `load` gave. Layers that its kernels do not serve are gathered."""

    def __init__(self, flashinfer: Any) -> None:
        self._flashinfer = flashinfer
        self._tables = Tables()
        self._workspace: Tensor | None = None
        self._wrappers: dict[_Way, Any] = {}
        self._planned: set[_Way] = set()
        self._table: Table | None = None

    def run(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, options: AttentionOptions
    ) -> Tensor:
        """See `Attention.run`."""
        table = self._tables.get(plan, query.device)
        if table is not self._table:
            self._table = table
            self._planned.clear()
            # Planning reuses page-locked memory that copies of the last step may still be reading.
            if query.device.type == "cuda":
                torch.cuda.current_stream(query.device).synchronize()
        table.store(layer, keys, values)
        if not _applies(query, values):
            return attend(layer, query, table, options)
        heads, _, width = query.shape
        way = (heads, keys.shape[0], width, options.scaling, options.window, options.softcap, query.dtype)
        wrapper = self._wrapper(way, query.device)
        if way not in self._planned:
            _plan(wrapper, way, table.packed(options.window))
            self._planned.add(way)
        # [kv heads, slots, dim] as pages of one token: [slots, 1, kv heads, dim]
        pages = tuple(store[layer].transpose(0, 1)[:, None] for store in (table.arena.keys, table.arena.values))
        packed = query.transpose(0, 1).contiguous()
        if options.sinks is None:
            return wrapper.run(packed, pages)
        out, lse = wrapper.run(packed, pages, return_lse=True)
        # A sink is one more term of the denominator, without a value. FlashInfer's logarithms are to base 2.
        kept = torch.sigmoid(lse.float() * math.log(2) - options.sinks.float())
        return (out.float() * kept[..., None]).to(out.dtype)

    def _wrapper(self, way: _Way, device: torch.device) -> Any:
        """The wrapper for one way of attending. They run one after the other, so they share their workspace."""
        if self._workspace is None:
            self._workspace = torch.empty(_WORKSPACE, dtype=torch.uint8, device=device)
        if way not in self._wrappers:
            make = self._flashinfer.BatchPrefillWithPagedKVCacheWrapper
            # fa2 serves every architecture, soft caps and windows; others ask for larger pages or newer chips.
            self._wrappers[way] = make(self._workspace, "NHD", backend="fa2")
        return self._wrappers[way]


def _plan(wrapper: Any, way: _Way, packed: Packed) -> None:
    heads, kv_heads, width, scaling, window, softcap, dtype = way
    wrapper.plan(
        packed.queries,
        packed.keys,
        packed.slots.int(),
        torch.ones(len(packed.queries) - 1, dtype=torch.int32),
        heads,
        kv_heads,
        width,
        1,
        causal=True,
        sm_scale=scaling,
        # Tokens to the left of the query here; the engine's window counts the query as well.
        window_left=-1 if window is None else window - 1,
        logits_soft_cap=softcap,
        q_data_type=dtype,
        kv_data_type=dtype,
    )


def _applies(query: Tensor, values: Tensor) -> bool:
    return query.dtype in _HALF and query.shape[-1] == values.shape[-1] and query.shape[-1] in _WIDTHS

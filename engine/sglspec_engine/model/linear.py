"""Linear layers with weights packed for the CPU.

`torch.nn.Linear` is at its worst where a decoder spends its time, at 1 to 64 rows: on x86 the same product with weights
laid out beforehand takes a half to a fifth of the time. Packing happens once, after loading. The operators are torch's
own but undocumented, so each is tried on a small product first, and layers stay as they are where it does not work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from sglspec_engine.config import Weights
from sglspec_engine.types import EngineError

Packing = Literal["fp32", "fp16", "bf16"]

_LARGEST_HALF = 65504.0
"""Weights beyond it would saturate in 16 bits (IEEE half precision)."""
_LAYOUT_ROWS = 512
"""Rows that oneDNN lays weights out for. The layout for many rows serves few rows as well, not the other way round."""
_TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}
"""How far a packed product of unit size may be off before the operator counts as broken, in absolute terms."""


class Fp32Linear(nn.Module):
    """float32 weights in oneDNN's layout: the sums of `nn.Linear` in another order, about 1e-6 apart."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._weight = _onednn_layout(weight)
        self.bias = bias

    @property
    def weight(self) -> Tensor:
        """The weights [out_features, in_features], unpacked for the few models that look at them."""
        return self._weight.to_dense()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features] float32 to [..., out_features] float32."""
        return _onednn_linear(x, self._weight, self.bias)


class Bf16Linear(nn.Module):
    """bfloat16 weights and products, float32 sums, in oneDNN's layout; fast only where the CPU multiplies bfloat16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._weight = _onednn_layout(weight.bfloat16())
        self.bias = None if bias is None else bias.bfloat16()

    @property
    def weight(self) -> Tensor:
        """The weights [out_features, in_features] as they are used, float32."""
        return self._weight.to_dense().float()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features] float32, rounded to bfloat16 here, to [..., out_features] float32."""
        return _onednn_linear(x.bfloat16(), self._weight, self.bias).float()


class Fp16Linear(nn.Module):
    """Half-precision weights, float32 inputs and sums (FBGEMM, x86 only). A row's result does not depend on others."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        pack: Callable[[Tensor, Tensor | None], object] = torch.ops.quantized.linear_prepack_fp16
        self._packed = pack(weight.contiguous(), bias)
        self.bias = bias
        self._linear: Callable[[Tensor, object], Tensor] = torch.ops.quantized.linear_dynamic_fp16.default

    @property
    def weight(self) -> Tensor:
        """The weights [out_features, in_features] as they are used, float32."""
        unpack: Callable[[object], tuple[Tensor, Tensor | None]] = torch.ops.quantized.linear_unpack_fp16
        return unpack(self._packed)[0]

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features] float32 to [..., out_features] float32."""
        return self._linear(x, self._packed)


@dataclass(slots=True)
class Packed:
    """What became of a model's linear layers: how many were packed as what, and how many stayed (`plain`)."""

    counts: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, kind: str) -> None:
        """Count one layer."""
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def __str__(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items())) or "none"


def choose(weights: Weights, device: torch.device, dtype: torch.dtype) -> Packing | None:
    """How to pack the linear layers of a model whose weights are `dtype` on `device`; None leaves them.

    "auto" takes half precision where it can. Raises EngineError("unsupported") for a packing that is asked for by name
    and does not work here.
    """
    if weights == "plain":
        return None
    fits = device.type == "cpu" and dtype == torch.float32
    if weights == "auto":
        return next((kind for kind in _AUTO if fits and works(kind)), None)
    if weights == "fp32" and not (fits and works("fp32")):
        return None  # unpacked float32 is the same thing, only slower
    if not fits:
        raise EngineError("unsupported", f"weights={weights} packs float32 weights on a CPU, not {dtype} on {device}")
    if not works(weights):
        raise EngineError("unsupported", f"this processor or this build of torch has no {weights} linear layers")
    return weights


def why_packed(weights: Weights, packing: Packing | None, device: torch.device, dtype: torch.dtype) -> str:
    """Why `choose` chose `packing`, as a line `weights=value: reason`."""
    if weights != "auto":
        why = "as configured" if packing == weights or weights == "plain" else "as configured, and nothing to pack here"
    elif device.type != "cpu" or dtype != torch.float32:
        why = f"only float32 weights on a CPU are packed, not {dtype} on {device}"
    elif packing == _AUTO[0]:
        why = "the fastest form that is exact enough, and it works on this processor"
    else:
        why = f"{_AUTO[0]} does not work on this processor or with this build of torch"
    return f"weights={packing or 'plain'}: {why}"


_AUTO: tuple[Packing, ...] = ("fp16", "fp32")


def works(kind: Packing) -> bool:
    """Whether layers packed as `kind` run here and compute what they should."""
    if kind == "bf16" and not _has_bf16():
        return False
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(24, 40, generator=generator) / 40**0.5
    bias, x = torch.randn(24, generator=generator), torch.randn(3, 40, generator=generator)
    try:
        found = pack(weight, bias, kind)(x)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return float((found - functional.linear(x, weight, bias)).abs().max()) <= 10 * _TOLERANCE[kind]


def pack(weight: Tensor, bias: Tensor | None, kind: Packing) -> nn.Module:
    """A module that computes `functional.linear(x, weight, bias)`. weight float32 [out, in], bias float32 [out]."""
    if kind == "fp16":
        return Fp16Linear(weight, bias)
    return Bf16Linear(weight, bias) if kind == "bf16" else Fp32Linear(weight, bias)


@torch.no_grad()
def pack_linears(model: nn.Module, kind: Packing | None) -> Packed:
    """Replace every `nn.Linear` in `model` by a packed one; weights that no half can hold are packed as float32.

    A weight that is also the embedding stays there as it was. Weights are freed one by one as they are replaced.
    """
    done = Packed()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is not nn.Linear:
                continue
            how = _kind_for(child.weight, kind)
            done.add(how or "plain")
            if how is not None:
                setattr(parent, name, pack(child.weight.detach(), bias_of(child), how))
    return done


def bias_of(linear: nn.Linear) -> Tensor | None:
    """The bias [out_features], which torch's types take for always there."""
    bias = cast("Tensor | None", linear.bias)
    return None if bias is None else bias.detach()


def _kind_for(weight: Tensor, kind: Packing | None) -> Packing | None:
    if kind == "fp16" and not float(weight.abs().max()) <= _LARGEST_HALF:
        return "fp32" if works("fp32") else None
    return kind


def _has_bf16() -> bool:
    probe: Callable[[], bool] | None = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return probe is not None and probe()


def _onednn_layout(weight: Tensor) -> Tensor:
    """weight [out, in] as an opaque tensor that only `_onednn_linear` understands."""
    reorder: Any = torch.ops.mkldnn._reorder_linear_weight.default
    return reorder(weight.contiguous(), _LAYOUT_ROWS)


def _onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    linear: Any = torch.ops.mkldnn._linear_pointwise.default
    return linear(x, weight, bias, "none", [], "")

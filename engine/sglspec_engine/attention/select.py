"""Which attention serves a device, and making it. Kernels are imported when they are asked for, not before."""

from __future__ import annotations

import torch

from sglspec_engine.attention.base import Attention
from sglspec_engine.attention.cpu import CpuAttention
from sglspec_engine.attention.gather import GatherAttention
from sglspec_engine.attention.reference import ReferenceAttention
from sglspec_engine.attention.trial import find_problem
from sglspec_engine.config import Resolution
from sglspec_engine.types import EngineError

_KERNELS: tuple[Resolution, ...] = ("flashinfer", "varlen")
"""Kernels for CUDA devices, the fastest first."""


def for_cuda(device: str, dtype: str) -> tuple[Resolution, str]:
    """The first kernel that gives on `device` what the reference gives, and why it is that one."""
    if dtype not in ("float16", "bfloat16"):
        return "gather", f"no kernel has {dtype}"
    reasons: list[str] = []
    for name in _KERNELS:
        try:
            problem = find_problem(make(name, device), torch.device(device), getattr(torch, dtype))
        except EngineError as error:
            problem = str(error)
        if problem is None:
            return name, "; ".join([*reasons, f"{name} gives on {device} what the reference gives"])
        reasons.append(f"{name} does not work: {problem}")
    return "gather", "; ".join(reasons)


def make(name: Resolution, device: str) -> Attention:
    """An implementation by name. Raises EngineError("unsupported") for one that is not there."""
    if name in _KERNELS and not device.startswith("cuda"):
        raise EngineError("unsupported", f"attention={name} needs a CUDA device, not {device}")
    if name == "flashinfer":
        from sglspec_engine.attention import flashinfer

        return flashinfer.FlashInferAttention(flashinfer.load())
    if name == "varlen":
        from sglspec_engine.attention import varlen

        return varlen.VarlenAttention(varlen.load())
    return {"cpu": CpuAttention, "gather": GatherAttention, "reference": ReferenceAttention}[name]()

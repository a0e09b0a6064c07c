"""Whether the engine computes what transformers computes: a short forward of each, compared at load.

The gate (`compat`) judges a configuration; this finds what a configuration does not say: masks and scalings of a
model's own, positions that are not where they are said to be, rotary frequencies that move with the longest row.
"""

# pyright: basic

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sglspec_engine.attention.base import AttentionPlan, AttentionRow
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool
from sglspec_engine.model.linear import Packing
from sglspec_engine.types import EngineError

if TYPE_CHECKING:
    from sglspec_engine.model.adapter import ModelRunner

_LENGTH = 4
"""Tokens of a probed sequence; a window that is not much longer is exceeded by as many."""
_LARGEST_WINDOW = 256
_TOLERANCE = {"fp32": 1e-3, "fp16": 0.02, "bf16": 0.1}
"""How far logits may be off, relative to their size, by how weights are packed. Right ones are 2e-6 and 1e-3 apart in
fp32 and fp16 on the default model; there a scaling that is 1.25 times what it should be makes 0.06."""


@dataclass(frozen=True, slots=True)
class Expected:
    """transformers' own result. ids: two sequences of the same length. logits [2, length, vocabulary], float32."""

    ids: tuple[tuple[int, ...], tuple[int, ...]]
    logits: Tensor


@torch.inference_mode()
def transformers_own(model: Any, windows: Sequence[int | None]) -> Expected:
    """What `model` as transformers loaded it says to two short sequences, with eager attention. To be asked before
    anything in it is replaced. Raises EngineError("unsupported") where rotary positions depend on the batch."""
    _require_fixed_rotation(model)
    near = [window for window in windows if window is not None and window <= _LARGEST_WINDOW]
    length = _LENGTH + max(near, default=0)
    count = model.get_input_embeddings().num_embeddings
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(count, (2, length), generator=generator)
    model.set_attn_implementation("eager")
    logits = model(ids.to(next(model.parameters()).device), use_cache=False).logits.float().cpu()
    first, second = ids.tolist()
    return Expected((tuple(first), tuple(second)), logits)


def tolerance(packing: Packing | None, dtype: torch.dtype) -> float:
    """How far logits of a model whose weights are `dtype`, packed as `packing`, may be off."""
    return _TOLERANCE[packing or "fp32"] if dtype == torch.float32 else _TOLERANCE["bf16"]


def compare(runner: ModelRunner, expected: Expected, allowed: float) -> float:
    """Run both sequences as the engine does: the first one's second half on a cached half, packed beside the second
    one. Returns how far its logits are off, relative to their size; raises EngineError("unsupported") for more than
    `allowed`.
    """
    first, second = expected.ids
    length, half = len(first), len(first) // 2
    pool = Pool(runner.layout, 4 * length * runner.layout.bytes_per_token)
    continued, fresh = Lease(pool), Lease(pool)
    continued.reserve(length)
    fresh.reserve(length)
    begun = runner.forward(first[:half], range(half), AttentionPlan((AttentionRow(continued, 0, half),)), range(half))
    continued.append(first[:half])
    rest = length - half
    rows = AttentionRow(continued, 0, rest), AttentionRow(fresh, rest, length)
    positions = [*range(half, length), *range(length)]
    packed = runner.forward([*first[half:], *second], positions, AttentionPlan(rows), range(rest + length))
    off = {
        "the beginning of a sequence": _distance(begun, expected.logits[0, :half]),
        "what continues a cached beginning": _distance(packed[:rest], expected.logits[0, half:]),
        "a sequence beside another one": _distance(packed[rest:], expected.logits[1]),
    }
    wrong = [f"{what} is off by {distance:.2g}" for what, distance in off.items() if not distance <= allowed]
    if wrong:
        listed = ", ".join(wrong)
        raise EngineError(
            "unsupported",
            "this model cannot be run right here: it does not say the same with the engine's attention as with "
            f"transformers' own. Relative to the size of its logits, {listed}; {allowed:g} is allowed",
        )
    return max(off.values())


def _distance(found: Tensor, expected: Tensor) -> float:
    """The mean over positions of the relative difference, whatever is added to all logits; [n, vocabulary] each."""
    wanted = expected - expected.mean(dim=-1, keepdim=True)
    off = found - found.mean(dim=-1, keepdim=True) - wanted
    return float((off.norm(dim=-1) / wanted.norm(dim=-1).clamp_min(1e-6)).mean())


def _require_fixed_rotation(model: Any) -> None:
    """Rotary positions must be a function of the position alone: equal beside a far position, and after one."""
    config = model.config.get_text_config()
    beyond = 2 * int(getattr(config, "max_position_embeddings", 0) or 0)
    kinds = sorted(set(getattr(config, "layer_types", None) or []))
    for name, module in model.named_modules():
        if not any(key.endswith("inv_freq") for key, _ in module.named_buffers(recurse=False)):
            continue
        typed = "layer_type" in inspect.signature(module.forward).parameters
        for kind in kinds if typed else [None]:
            if _moves(module, beyond, () if kind is None else (kind,)):
                raise EngineError(
                    "unsupported",
                    f"this model cannot be run right here: its rotary positions ({name}) depend on what else is in "
                    "the batch",
                )


def _moves(rotary: Any, far: int, kind: tuple[str, ...]) -> bool:
    """Whether a far position changes what near ones get. The frequencies are as they were afterwards."""
    buffers = {key: buffer.clone() for key, buffer in rotary.named_buffers(recurse=False)}
    device = next(iter(buffers.values())).device
    x = torch.zeros(1, 1, device=device)

    def turns(*positions: int) -> list[Tensor]:
        found = rotary(x, torch.tensor([positions], device=device), *kind)
        return [found] if isinstance(found, Tensor) else list(found)

    try:
        before, beside = turns(0, 1, 5), turns(0, 1, 5, far)
    except TypeError:  # it is called in some other way; the forwards are compared in any case
        return False
    moved = any(not torch.equal(a, b[:, :3]) for a, b in zip(before, beside, strict=True))
    return moved or any(not torch.equal(getattr(rotary, key), buffer) for key, buffer in buffers.items())

"""Moving keys to other positions, with the model's own code for rotary positions."""

# pyright: basic

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from sglspec_engine.types import EngineError


class Rotation:
    """Rotates keys by a number of positions.

    A rotation by p followed by one by d is one by p + d, so keys that were computed at one position can be had at
    another one. Raises EngineError("unsupported") for a model where this does not hold, or that has no such code.
    """

    def __init__(self, model: Any, dim: int) -> None:
        base = model.base_model
        self._embedding: Any = getattr(base, "rotary_emb", None)
        self._apply: Any = getattr(sys.modules[type(base).__module__], "apply_rotary_pos_emb", None)
        if self._embedding is None or self._apply is None or not self._adds_up(dim):
            raise EngineError("unsupported", "this model's keys cannot be moved to other positions")

    @torch.inference_mode()
    def __call__(self, keys: Tensor, by: int) -> Tensor:
        """keys [heads, n, dim] at the positions they have plus `by`. Computed in fp32."""
        return keys if by == 0 else self._rotate(keys.float(), by, scaled=False).to(keys.dtype)

    def _rotate(self, keys: Tensor, by: int, *, scaled: bool) -> Tensor:
        at = torch.tensor([[by]], device=keys.device)
        cos, sin = self._embedding(keys[None], at)
        if not scaled:
            # Some kinds lengthen what they rotate; keys that were rotated once are that already.
            scale = float(getattr(self._embedding, "attention_scaling", 1.0))
            cos, sin = cos / scale, sin / scale
        return self._apply(keys[None], keys[None], cos, sin)[1][0]

    @torch.inference_mode()
    def _adds_up(self, dim: int) -> bool:
        keys = torch.linspace(-1, 1, dim, device=next(self._embedding.buffers()).device).reshape(1, 1, dim)
        try:
            twice = self._rotate(self._rotate(keys, 3, scaled=True), 8, scaled=False)
            return bool(torch.allclose(twice, self._rotate(keys, 11, scaled=True), atol=1e-4))
        except (TypeError, ValueError, RuntimeError, KeyError):
            return False

"""Moving keys to other positions, with the model's own code for rotary positions."""

# pyright: basic

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

PROBE_TOKENS = 8
PROBE_POSITIONS = (3, 11)


class Rotation:
    """Rotates keys by a number of positions.

    A rotation by p followed by one by d is one by p + d, so keys that were computed at one position can be had at
    another one. `layers`: for each, whether its keys turn with the position at all; some models have layers without.
    """

    def __init__(self, embedding: Any, apply: Any, kinds: Sequence[str | None]) -> None:
        """embedding, apply: the model's modules for that; kinds: per layer, what the embedding is told about it."""
        self._embedding = embedding
        self._apply = apply
        self._kinds = kinds
        self.layers: tuple[bool, ...] = (True,) * len(kinds)

    @torch.inference_mode()
    def __call__(self, layer: int, keys: Tensor, by: int) -> Tensor:
        """keys [heads, n, dim] of a layer at the positions they have plus `by`. Computed in fp32."""
        if by == 0 or not self.layers[layer]:
            return keys
        kind = self._kinds[layer]
        at = torch.tensor([[0, by]], device=keys.device)
        turned = keys.float()[None]
        cos, sin = self._embedding(turned, at, *(() if kind is None else (kind,)))
        # Some kinds lengthen what they rotate, as position 0 shows; keys that were rotated once are that already.
        scale = cos[:, :1]
        return self._apply(turned, turned, cos[:, 1:] / scale, sin[:, 1:] / scale)[1][0].to(keys.dtype)


def find_rotation(model: Any, config: Any, probed: Sequence[Tensor]) -> Rotation | None:
    """How this model's keys move, None where they cannot be.

    probed: per layer the keys [heads, 2 × PROBE_TOKENS, dim] of the same tokens at the first and then at the second of
    PROBE_POSITIONS, without attention, so that they differ by their position only. Every layer is compared with it.
    """
    base = model.base_model
    embedding: Any = getattr(base, "rotary_emb", None)
    apply: Any = getattr(sys.modules[type(base).__module__], "apply_rotary_pos_emb", None)
    if embedding is None or apply is None:
        return None
    kinds: Sequence[str | None] = [None] * len(probed)
    if "layer_type" in inspect.signature(embedding.forward).parameters:
        kinds = config.layer_types
    rotation = Rotation(embedding, apply, kinds)
    turns: list[bool] = []
    for layer, keys in enumerate(probed):
        here, there = keys.split(PROBE_TOKENS, dim=1)
        try:
            moved = rotation(layer, here, PROBE_POSITIONS[1] - PROBE_POSITIONS[0])
        except Exception:  # code that is called in another way than the common one may fail in any
            return None
        turned, still = _near(moved, there), _near(here, there)
        if turned == still:  # neither, or keys that are all zero, which tell nothing
            return None
        turns.append(turned)
    rotation.layers = tuple(turns)
    return rotation


def _near(moved: Tensor, there: Tensor) -> bool:
    """Whether keys are the same but for rounding."""
    moved, there, exact = moved.float(), there.float(), there.dtype == torch.float32
    return moved.shape == there.shape and bool(
        (moved - there).abs().max() <= there.abs().max() * (1e-3 if exact else 2e-2)
    )

"""Which models the engine can run right: a report, made before any weights are read.

The engine keeps keys and values itself and calls a model with packed rows, so a model qualifies only if its attention
goes through transformers' attention interface and if it keeps no other state per sequence. What cannot be told from
the configuration (masks of its own, extra attention inputs) is left to the probe forward that follows loading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sglspec_engine.types import EngineError

_LAYERS = frozenset({"full_attention", "sliding_attention"})
_FIXED_ROPE = frozenset({"default", "linear", "yarn", "llama3", "proportional"})
"""Rotary positions whose frequencies depend on nothing but the configuration. "dynamic" and "longrope" follow the
longest row of a batch, so that one request would change another's."""


@dataclass(frozen=True, slots=True)
class Compatibility:
    """`problems`: why the model is refused; `warnings`: what works but costs."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def require(self) -> None:
        """Raises EngineError("unsupported") if there are problems."""
        if self.problems:
            raise EngineError("unsupported", "this model cannot be run right here: " + "; ".join(self.problems))


def check_folder(config: Mapping[str, Any]) -> Compatibility:
    """Judge config.json as it is on disk, before transformers sees it."""
    problems: list[str] = []
    if "auto_map" in config:
        problems.append("it brings code of its own (auto_map in config.json), which is never run")
    if "quantization_config" in config:
        problems.append("its weights are stored in a quantised form")
    if config.get("is_encoder_decoder"):
        problems.append("it is an encoder-decoder")
    if any(key in config for key in ("vision_config", "audio_config")):
        problems.append("it takes more than text")
    return Compatibility(tuple(problems))


def check_model(config: object, model_class: type) -> Compatibility:
    """Judge a transformers text configuration and the class that implements it."""
    problems: list[str] = []
    warnings: list[str] = []
    if not getattr(model_class, "_supports_attention_backend", False):
        problems.append(f"{model_class.__name__} does not let the engine supply attention")
    if getattr(model_class, "_is_stateful", False):
        problems.append("its layers keep a state per sequence that the engine does not manage")
    layers = cast("Sequence[str]", getattr(config, "layer_types", None) or [])
    strange = sorted(set(layers) - _LAYERS)
    if strange:
        problems.append(f"it has layers of the kind {', '.join(strange)}")
    if "sliding_attention" in layers and not getattr(config, "sliding_window", None):
        problems.append("it has sliding layers but does not say how far they look back")
    for kind in _rope_kinds(getattr(config, "rope_parameters", None)):
        if kind not in _FIXED_ROPE:
            problems.append(f"its rotary positions are of the kind {kind!r}, which depends on the batch")
    if getattr(config, "kv_lora_rank", None):
        warnings.append("its compressed attention runs uncompressed here and takes much memory per token")
    return Compatibility(tuple(problems), tuple(warnings))


def _rope_kinds(parameters: object) -> set[str]:
    """The kinds in `rope_parameters`: one mapping, or one per layer type."""
    if not isinstance(parameters, Mapping):
        return set()
    rows = cast("Mapping[str, Any]", parameters)
    if "rope_type" in rows:
        return {str(rows["rope_type"])}
    nested = [cast("Mapping[str, Any]", row) for row in rows.values() if isinstance(row, Mapping)]
    return {str(row.get("rope_type", "default")) for row in nested}

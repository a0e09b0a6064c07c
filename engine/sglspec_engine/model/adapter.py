"""The border to transformers: its model code runs, its attention calls come here.

A registered attention function sees queries, keys and values after position encoding; the plan of the step travels
through the model as a keyword argument. Sequences are packed into one [1, T] input with explicit positions, the model
keeps no cache, and its output layer runs on the wanted positions only. Unless told otherwise, linear layers are packed
(`linear`), and decoder layers that have an equal form with fewer operations take that (`fused`).
"""

# The names of transformers are dynamic: this is the one module of the engine that is not checked strictly.
# pyright: basic

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import AttentionInterface

from sglspec_engine.attention.base import Attention, AttentionOptions, AttentionPlan
from sglspec_engine.config import Weights
from sglspec_engine.kv.arena import KVLayout, LayerShape
from sglspec_engine.metrics import Metrics
from sglspec_engine.model.fused import fuse_layers
from sglspec_engine.model.linear import choose, pack_linears, why_packed
from sglspec_engine.model.probe import compare, tolerance, transformers_own
from sglspec_engine.model.rope import PROBE_POSITIONS, PROBE_TOKENS, find_rotation
from sglspec_engine.types import EngineError

T = TypeVar("T")

_NAME = "sglspec"
_REFUSED_KWARGS = ("indices", "block_indices", "position_bias")


@dataclass(slots=True)
class _Call:
    """What travels through one forward. `plan` is None in the probe, which records keys and shapes
    instead of attending."""

    plan: AttentionPlan | None
    attention: Attention
    windows: tuple[int | None, ...]
    shapes: dict[int, LayerShape] = field(default_factory=dict)
    keys: dict[int, Tensor] = field(default_factory=dict)


class ModelRunner:
    """A transformers decoder as a function of packed tokens.

    Loading has judged the configuration (`model.compat`); what shows only when the model runs is found by a probe here,
    which raises EngineError("unsupported").
    """

    def __init__(
        self,
        model: Any,
        config: Any,
        attention: Attention,
        metrics: Metrics,
        weights: Weights = "plain",
        *,
        probe: bool = False,
    ) -> None:
        """Take a model over: its layers are fused where that gives the same, its linear layers packed by `weights`.
        With `probe` what comes out is compared with what transformers computes."""
        self._model = model
        self._attention = attention
        self._metrics = metrics
        self._windows = _windows(config)
        expected = _guarded(lambda: transformers_own(model, self._windows)) if probe else None
        AttentionInterface.register(_NAME, _attend)
        model.set_attn_implementation(_NAME)
        first = next(model.parameters())
        self.device: torch.device = first.device
        packing = choose(weights, first.device, first.dtype)
        self.fused_layers = 0
        if weights != "plain":
            self.fused_layers = fuse_layers(model, _attend, self._probe_arguments)
        self.packed = pack_linears(model, packing)
        self._hook = model.get_input_embeddings().register_forward_hook(self._count)
        self.layout, self.vocabulary_width, keys = _guarded(self._probe)
        self.rotation = find_rotation(model, config, keys)
        """How keys move to other positions, None where they cannot."""
        allowed = tolerance(packing, first.dtype)
        off = None if expected is None else _guarded(lambda: compare(self, expected, allowed))
        self.reasons = (
            why_packed(weights, packing, first.device, first.dtype),
            f"linear={self.packed}: linear layers by the form of their weights",
            f"fused={self.fused_layers}: of {len(self.layout.layers)} layers run in a form with fewer operations",
            f"kv={self.layout.bytes_per_token}: bytes of keys and values per token",
            "probe=off: as configured"
            if off is None
            else f"probe={off:.1g}: how far logits are from transformers' own",
        )
        """Why the model runs as it does, one line `name=value: reason` each."""
        metrics.embedded_tokens = metrics.forwards = 0

    def forward(self, ids: Sequence[int], positions: Sequence[int], plan: AttentionPlan, keep: Sequence[int]) -> Tensor:
        """Run packed tokens; `keep` are indices into `ids` whose next-token logits are wanted.

        Returns float32 logits [len(keep), vocabulary width] on the CPU. Keys and values go to the plan's leases, whose
        lengths do not change.
        """
        logits = self._run(ids, positions, keep, _Call(plan, self._attention, self._windows))
        return logits[0].float().cpu()

    def close(self) -> None:
        """Take the counting hook off the model."""
        self._hook.remove()

    @torch.inference_mode()
    def _run(self, ids: Sequence[int], positions: Sequence[int], keep: Sequence[int], call: _Call) -> Tensor:
        self._metrics.forwards += 1
        tensor = {"dtype": torch.long, "device": self.device}
        out = self._model(
            input_ids=torch.tensor([list(ids)], **tensor),
            position_ids=torch.tensor([list(positions)], **tensor),
            use_cache=False,
            logits_to_keep=torch.tensor(list(keep), **tensor),
            sglspec_call=call,
        )
        return out.logits

    def _probe_arguments(self, attention: Attention) -> dict[str, Any]:
        """What one decoder layer is called with to attend by `attention`."""
        return {"attention_mask": None, "sglspec_call": _Call(AttentionPlan(()), attention, self._windows)}

    def _probe(self) -> tuple[KVLayout, int, list[Tensor]]:
        """A few tokens at two positions through the model, to learn what every layer's keys and values look like.
        Returns that, the width of the logits, and each layer's keys."""
        call = _Call(None, self._attention, self._windows)
        positions = [position for position in PROBE_POSITIONS for _ in range(PROBE_TOKENS)]
        logits = self._run([*range(PROBE_TOKENS)] * 2, positions, [0], call)
        layers = len(call.shapes)
        if sorted(call.shapes) != list(range(layers)) or layers != len(self._windows):
            raise EngineError("unsupported", "a layer of this model does not use the common attention interface")
        shapes = tuple(call.shapes[i] for i in range(layers))
        dtype = next(self._model.parameters()).dtype
        layout = KVLayout(shapes, dtype, self.device, self.device.type != "cpu")
        return layout, int(logits.shape[-1]), [call.keys[i] for i in range(layers)]

    def _count(self, module: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
        self._metrics.embedded_tokens += output.shape[0] * output.shape[1]


def _guarded(probe: Callable[[], T]) -> T:
    """What a probe finds; whatever the model's code raises in it makes the model one that cannot be served."""
    try:
        return probe()
    except EngineError:
        raise
    except Exception as error:
        reason = f"this model fails when it is called as the engine does: {type(error).__name__}: {error}"
        raise EngineError("unsupported", reason.splitlines()[0]) from error


def _windows(config: Any) -> tuple[int | None, ...]:
    """Per layer the tokens a query sees, itself included; None for all.

    Taken from the configuration: some models build a sliding mask without telling their attention function.
    """
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    if types is None:
        return (window,) * config.num_hidden_layers
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sglspec_call: _Call | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Called by transformers: query [1, heads, T, dim], key and value [1, kv heads, T, dim] after position encoding.
    Returns [1, T, heads, value dim]."""
    assert sglspec_call is not None, "the engine's attention runs in the engine's forwards only"
    layer = module.layer_idx
    for name in _REFUSED_KWARGS:
        if kwargs.get(name) is not None:
            raise EngineError("unsupported", f"{type(module).__name__} asks for {name}")
    if sglspec_call.plan is None:
        sglspec_call.shapes[layer] = LayerShape(key.shape[1], key.shape[3], value.shape[3])
        sglspec_call.keys[layer] = key[0]
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None
    options = AttentionOptions(
        scaling=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        window=sglspec_call.windows[layer],
        softcap=kwargs.get("softcap"),
        sinks=kwargs.get("s_aux"),
    )
    out = sglspec_call.attention.run(layer, query[0], key[0], value[0], sglspec_call.plan, options)
    return out[None], None

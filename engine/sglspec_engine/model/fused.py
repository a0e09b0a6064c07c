"""Decoder layers of llama's shape with fewer operations.

At one row a third of a small model's time is spent between its matrix products. A layer that is two norms, attention
with separate projections and a gated MLP becomes one module here with merged projections, rotation of queries and keys
at once, and sums in place. Whether a layer is of that shape is not taken from its name: its parts must be the known
ones, and both forms must give the same result for random input. Any other layer stays transformers'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from sglspec_engine.attention.base import Attention, AttentionOptions, AttentionPlan
from sglspec_engine.model.linear import bias_of

Attend = Callable[..., tuple[Tensor, None]]
"""transformers' attention function: (module, query [1, heads, T, dim], key, value, mask, scaling=, **kwargs)."""

_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_MLP = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj"}
_HEAD_NORMS = {"q_norm", "k_norm"}
_PROBE_POSITIONS = (0, 1, 7, 100, 3)


class FusedLayer(nn.Module):
    """A pre-norm decoder layer. Input and output [1, T, hidden size], like the layer it stands for."""

    def __init__(self, layer: nn.Module, attend: Attend, turns: _Turns) -> None:
        super().__init__()
        parts: Any = layer
        attention, mlp = parts.self_attn, parts.mlp
        self.layer_idx: int = attention.layer_idx
        self.scaling: float = attention.scaling
        self.head_dim: int = attention.head_dim
        self.heads: int = attention.q_proj.out_features // self.head_dim
        self.kv_heads: int = attention.k_proj.out_features // self.head_dim
        self.qkv = _merge(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out: nn.Module = attention.o_proj
        self.gate_up = _merge(mlp.gate_proj, mlp.up_proj)
        self.down: nn.Module = mlp.down_proj
        self.activation: nn.Module = mlp.act_fn
        self.norm: nn.Parameter = parts.input_layernorm.weight
        self.norm_epsilon: float = parts.input_layernorm.variance_epsilon
        self.mlp_norm: nn.Parameter = parts.post_attention_layernorm.weight
        self.mlp_norm_epsilon: float = parts.post_attention_layernorm.variance_epsilon
        # A norm per head of queries and keys, as one weight [heads + kv_heads, head_dim].
        self.head_norm: _HeadNorm | None = None
        if hasattr(attention, "q_norm"):
            self.head_norm = _HeadNorm(attention.q_norm, attention.k_norm, self.heads, self.kv_heads)
        self._turns = turns
        self._attend = attend

    def forward(self, hidden_states: Tensor, *, position_embeddings: tuple[Tensor, Tensor], **kwargs: Any) -> Tensor:
        """hidden_states [1, T, hidden], position_embeddings (cos, sin) of [1, T, head_dim] each."""
        kwargs.pop("attention_mask", None)
        x = hidden_states[0]
        qkv = self.qkv(_rms_norm(x, self.norm, self.norm_epsilon)).view(x.shape[0], -1, self.head_dim)
        rotated = self.heads + self.kv_heads
        turned = qkv[:, :rotated] if self.head_norm is None else self.head_norm(qkv[:, :rotated])
        turned = _rotate(turned, *self._turns.of(position_embeddings)).transpose(0, 1)[None]
        value = qkv[:, rotated:].transpose(0, 1)[None]
        query, key = turned[:, : self.heads], turned[:, self.heads :]
        mixed, _ = self._attend(self, query, key, value, None, scaling=self.scaling, **kwargs)
        x = self.out(mixed.reshape(x.shape[0], -1)).add_(x)
        gate, up = self.gate_up(_rms_norm(x, self.mlp_norm, self.mlp_norm_epsilon)).chunk(2, dim=-1)
        return self.down(self.activation(gate).mul_(up)).add_(x)[None]


class _Turns:
    """The angles of a step as `_rotate` takes them, made once for all layers that are given the same ones."""

    def __init__(self) -> None:
        self._given: tuple[Tensor, Tensor] | None = None
        self._made: tuple[Tensor, Tensor] | None = None

    def of(self, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """cos and sin [1, T, dim] as [T, 1, dim] each, the first half of every sine with its sign changed."""
        if self._made is None or given is not self._given:
            cos, sin = given[0][0][:, None], given[1][0][:, None]
            first, second = sin.chunk(2, dim=-1)
            self._given, self._made = given, (cos, torch.cat([-first, second], dim=-1))
        return self._made


class _HeadNorm(nn.Module):
    """The norms of queries and keys, [T, heads + kv_heads, head_dim] at once."""

    def __init__(self, query: nn.Module, key: nn.Module, heads: int, kv_heads: int) -> None:
        super().__init__()
        q, k = cast("Any", query), cast("Any", key)
        self.weight = nn.Parameter(
            torch.cat([q.weight.expand(heads, -1), k.weight.expand(kv_heads, -1)]), requires_grad=False
        )
        self.epsilon: float = q.variance_epsilon

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], None, self.epsilon) * self.weight


def _rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Root-mean-square norm over the last dimension, as one call."""
    return functional.rms_norm(x, weight.shape, weight, epsilon)


@torch.no_grad()
def fuse_layers(model: nn.Module, attend: Attend, arguments: Callable[[Attention], dict[str, Any]]) -> int:
    """Replace the decoder layers of `model` that have a fused form which gives the same. Returns how many.

    To be called before linear layers are packed. `arguments` makes a layer's keyword arguments, such that `attend`
    ends in the attention given.
    """
    base: Any = getattr(model, "base_model", model)
    layers: object = getattr(base, "layers", None)
    rotary: object = getattr(base, "rotary_emb", None)
    if not isinstance(layers, nn.ModuleList) or not isinstance(rotary, nn.Module):
        return 0
    turns = _Turns()
    fused = 0
    for i, layer in enumerate(layers):
        if not _has_shape(layer):
            continue
        candidate = FusedLayer(layer, attend, turns).eval()
        if _same(layer, candidate, rotary, arguments):
            layers[i] = candidate
            fused += 1
    return fused


class _ProbeAttention:
    """Attention among the packed tokens alone that remembers how it was asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, AttentionOptions]] = []

    def run(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, options: AttentionOptions
    ) -> Tensor:
        """See `Attention.run`; the plan is not looked at and nothing is stored."""
        self.seen.append((layer, options))
        found = functional.scaled_dot_product_attention(
            query[None], keys[None], values[None], is_causal=True, scale=options.scaling, enable_gqa=True
        )
        return found[0].transpose(0, 1)


def _same(layer: nn.Module, candidate: FusedLayer, rotary: nn.Module, arguments: Callable[..., dict[str, Any]]) -> bool:
    """Whether both forms ask the same of attention and give the same output for random input."""
    weight = candidate.norm
    generator = torch.Generator().manual_seed(candidate.layer_idx)
    # Small input: what the layer adds to it must not drown in it.
    noise = 0.05 * torch.randn(1, len(_PROBE_POSITIONS), weight.shape[0], generator=generator)
    hidden = noise.to(weight.device, weight.dtype)
    turns = rotary(hidden, torch.tensor([_PROBE_POSITIONS], device=weight.device))
    if not isinstance(turns, tuple) or cast("tuple[Tensor, ...]", turns)[0].shape[-1] != candidate.head_dim:
        return False
    outputs: list[object] = []
    asked: list[_ProbeAttention] = []
    for form in (layer, candidate):
        asked.append(_ProbeAttention())
        outputs.append(form(hidden.clone(), position_embeddings=turns, **arguments(asked[-1])))
    expected, found = outputs
    if not isinstance(expected, Tensor) or not isinstance(found, Tensor) or expected.shape != found.shape:
        return False
    tolerance = 1e-5 if weight.dtype == torch.float32 else 2e-2
    near = float((expected - found).abs().max()) <= tolerance * float(expected.abs().max())
    return near and asked[0].seen == asked[1].seen


def _has_shape(layer: nn.Module) -> bool:
    """Whether a layer has exactly the parts that `FusedLayer` computes."""
    parts: Any = layer
    if _names(layer) != _LAYER or _names(parts.mlp) != _MLP:
        return False
    attention = parts.self_attn
    norms = _names(attention) - _PROJECTIONS
    linears = [getattr(attention, name, None) for name in sorted(_PROJECTIONS)]
    linears += [getattr(parts.mlp, name) for name in sorted(_MLP - {"act_fn"})]
    root_mean_square = [parts.input_layernorm, parts.post_attention_layernorm]
    root_mean_square += [getattr(attention, name) for name in sorted(norms & _HEAD_NORMS)]
    return (
        norms in (set(), _HEAD_NORMS)
        and all(type(linear) is nn.Linear for linear in linears)
        and all(hasattr(norm, "weight") and hasattr(norm, "variance_epsilon") for norm in root_mean_square)
        and all(norm.weight.shape == (attention.head_dim,) for norm in root_mean_square[2:])
        and not list(attention.parameters(recurse=False))
        and attention.k_proj.out_features == attention.v_proj.out_features
    )


def _names(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_children()}


def _merge(*linears: nn.Linear) -> nn.Linear:
    """One linear layer whose output is the outputs of `linears` in a row."""
    first = linears[0]
    biases = [bias_of(linear) for linear in linears]
    biased = any(bias is not None for bias in biases)
    merged = nn.Linear(first.in_features, sum(linear.out_features for linear in linears), biased, device="meta")
    merged.weight = nn.Parameter(torch.cat([linear.weight for linear in linears]), requires_grad=False)
    if biased:
        whole = [
            linear.weight.new_zeros(linear.out_features) if bias is None else bias
            for linear, bias in zip(linears, biases, strict=True)
        ]
        merged.bias = nn.Parameter(torch.cat(whole), requires_grad=False)
    return merged


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position encoding of x [T, heads, dim], whose halves are the pairs, by what `_Turns` makes."""
    return torch.roll(x, x.shape[-1] // 2, dims=-1).mul_(sin).addcmul_(x, cos)

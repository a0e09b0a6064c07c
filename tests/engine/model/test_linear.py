"""Packed linear layers and fused decoder layers: the same function as transformers' own, within stated bounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sglspec_engine.attention.base import AttentionOptions, AttentionPlan
from sglspec_engine.config import EngineConfig, Weights
from sglspec_engine.metrics import Metrics
from sglspec_engine.model.adapter import ModelRunner
from sglspec_engine.model.linear import Packing, bias_of, choose, pack, pack_linears, works
from sglspec_engine.model.load import load_model
from sglspec_engine.types import EngineError
from tests.engine import tiny
from tests.engine.drive import collect, ids_of, running, turn

CPU = torch.device("cpu")
FUSED = {"llama", "qwen2", "qwen3", "mistral"}
BOUND = {"fp32": 1e-4, "fp16": 0.02}
"""The largest |Δ log-probability| of a token of real text, against transformers in float32."""
TEXTS = (
    "The harbour of the old town was quiet in the early morning. Anna counted three red lamps at the market square, "
    "while Boris repaired a wooden boat that had been damaged during the long winter storms.",
    "def fibonacci(n: int) -> list[int]:\n    values = [0, 1]\n    while len(values) < n:\n"
    "        values.append(values[-1] + values[-2])\n    return values[:n]\n",
    "Water boils at 100 degrees Celsius at sea level; on a mountain, where the air pressure is lower, it boils earlier.",
)

needs_fp16 = pytest.mark.skipif(not works("fp16"), reason="FBGEMM is not in this build of torch")


class Causal:
    """Attention among the tokens of one call, which are one sequence."""

    def run(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, options: AttentionOptions
    ) -> Tensor:
        found = functional.scaled_dot_product_attention(
            query[None], keys[None], values[None], is_causal=True, scale=options.scaling, enable_gqa=True
        )
        return found[0].transpose(0, 1)


def runner(path: Path, weights: Weights) -> ModelRunner:
    loaded = load_model(path)
    return ModelRunner(loaded.model, loaded.config, Causal(), Metrics(), weights)


def logprobs(model: ModelRunner, ids: list[int]) -> Tensor:
    """[len(ids), vocabulary]"""
    everything = range(len(ids))
    return model.forward(ids, everything, AttentionPlan(()), everything).log_softmax(-1)


@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("rows", [1, 2, 7, 33, 600])
@pytest.mark.parametrize("biased", [False, True])
def test_a_packed_product_is_the_product(kind: Packing, rows: int, biased: bool) -> None:
    if not works(kind):
        pytest.skip(f"no {kind} here")
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(48, 96, generator=generator)
    bias = torch.randn(48, generator=generator) if biased else None
    x = torch.randn(1, rows, 96, generator=generator)
    layer = pack(weight, bias, kind)
    found = layer(x)
    assert found.dtype == torch.float32
    relative = {"fp32": 1e-6, "fp16": 5e-4, "bf16": 8e-3}[kind]
    torch.testing.assert_close(found, functional.linear(x, weight, bias), rtol=0, atol=relative * 6 * 96**0.5)
    torch.testing.assert_close(layer.weight, weight, rtol=relative, atol=0)


@needs_fp16
@pytest.mark.parametrize("rows", [2, 5, 16])
def test_half_precision_rows_do_not_depend_on_their_neighbours(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = pack(torch.randn(64, 64, generator=generator), None, "fp16")
    x = torch.randn(rows, 64, generator=generator)
    other = x.clone()
    other[1:] *= 1e4
    assert torch.equal(layer(x)[0], layer(other)[0])


@needs_fp16
def test_weights_that_no_half_can_hold_stay_float32() -> None:
    generator = torch.Generator().manual_seed(1)
    small, large = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    model = nn.Sequential(small, large).requires_grad_(False)
    small.weight.copy_(torch.randn(8, 8, generator=generator).half())  # exact in half: only the sums' order can differ
    large.weight.copy_(torch.randn(8, 8, generator=generator))
    large.weight[3, 3] = 1e5
    x = torch.randn(4, 8, generator=generator)
    expected = model(x)
    packed = pack_linears(model, "fp16")
    assert packed.counts == {"fp16": 1, "fp32" if works("fp32") else "plain": 1}
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1.0)


def test_a_tied_embedding_keeps_its_own_weight(tmp_path: Path) -> None:
    loaded = load_model(tiny.build(tmp_path / "model", "llama"))
    loaded.model.lm_head.weight = loaded.model.get_input_embeddings().weight
    before = loaded.model.get_input_embeddings().weight.clone()
    pack_linears(loaded.model, choose("auto", CPU, torch.float32))
    assert type(loaded.model.lm_head) is not nn.Linear or not works("fp32")
    assert torch.equal(loaded.model.get_input_embeddings().weight, before)


def test_what_is_chosen() -> None:
    expected: list[Packing] = [kind for kind in ("fp16", "fp32") if works(kind)]
    assert choose("auto", CPU, torch.float32) == (expected[0] if expected else None)
    assert choose("plain", CPU, torch.float32) is None
    assert choose("auto", CPU, torch.bfloat16) is None
    assert choose("fp32", CPU, torch.bfloat16) is None
    assert choose("auto", torch.device("cuda"), torch.float32) is None
    with pytest.raises(EngineError, match="weights=fp16 packs float32 weights on a CPU"):
        choose("fp16", CPU, torch.bfloat16)
    with pytest.raises(ValueError, match="weights must be one of"):
        EngineConfig(weights="int3")  # type: ignore[arg-type]


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
@pytest.mark.parametrize("weights", ["fp32", "auto"])
def test_every_architecture_computes_what_it_did(
    tiny_model: Callable[[str], Path], architecture: str, weights: Weights
) -> None:
    path = tiny_model(architecture)
    ids = torch.randint(0, 900, (20,), generator=torch.Generator().manual_seed(3)).tolist()
    plain, packed = runner(path, "plain"), runner(path, weights)
    assert plain.fused_layers == 0 and set(plain.packed.counts) == {"plain"}
    assert packed.fused_layers == (2 if architecture in FUSED else 0)
    difference = (logprobs(packed, ids) - logprobs(plain, ids)).abs().max()
    assert difference < (2e-4 if weights == "fp32" else 0.2), difference


def test_attention_biases_are_merged(tmp_path: Path) -> None:
    """qwen2 has biases on queries, keys and values and none on the output; random ones, as new models have zeros."""
    path = tiny.build(tmp_path / "model", "qwen2")
    results: list[Tensor] = []
    for weights in ("plain", "fp32"):
        loaded = load_model(path)
        generator = torch.Generator().manual_seed(5)
        for module in loaded.model.modules():
            if isinstance(module, nn.Linear) and bias_of(module) is not None:
                module.bias.copy_(torch.randn(module.bias.shape, generator=generator))
        model = ModelRunner(loaded.model, loaded.config, Causal(), Metrics(), weights)
        results.append(logprobs(model, [5, 9, 77, 3]))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=2e-4)


@pytest.mark.parametrize("change", ["scaled residual", "other norm", "swapped halves"])
def test_a_layer_that_only_looks_alike_is_left_alone(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    loaded = load_model(tiny_llama)
    layer: Any = loaded.model.model.layers[0]
    if change == "scaled residual":
        inner = layer.forward
        monkeypatch.setattr(layer, "forward", lambda hidden_states, **kwargs: inner(hidden_states, **kwargs) * 1.001)
    elif change == "other norm":
        norm = layer.input_layernorm
        norm.forward = lambda x: functional.rms_norm(x, norm.weight.shape, 1 + norm.weight, norm.variance_epsilon)
    else:
        mlp = layer.mlp
        mlp.forward = lambda x: mlp.down_proj(mlp.act_fn(mlp.up_proj(x)) * mlp.gate_proj(x))
    model = ModelRunner(loaded.model, loaded.config, Causal(), Metrics(), "fp32")
    assert model.fused_layers == 1
    assert loaded.model.model.layers[0] is layer


@pytest.mark.model
@pytest.mark.parametrize("weights", ["fp32", "fp16"])
def test_the_default_model_stays_within_its_bound(default_model: Path, weights: Packing) -> None:
    if not works(weights):
        pytest.skip(f"no {weights} here")
    vocabulary = load_model(default_model).vocabulary
    plain, packed = runner(default_model, "plain"), runner(default_model, weights)
    assert packed.fused_layers == 30 and packed.packed.counts == {weights: 121}
    worst, agree, total = 0.0, 0, 0
    for text in TEXTS:
        ids = vocabulary.encode_content(text, after="start")
        expected, found = logprobs(plain, ids), logprobs(packed, ids)
        at = torch.arange(len(ids) - 1), torch.tensor(ids[1:])
        worst = max(worst, float((expected[at] - found[at]).abs().max()))
        best, second = expected.topk(2).values.T
        differ = expected.argmax(-1) != found.argmax(-1)
        assert float((best - second)[differ].max() if differ.any() else 0.0) <= BOUND[weights]
        agree += int((~differ).sum())
        total += len(ids)
    print(f"{weights}: |Δ log-probability| ≤ {worst:.1e}, top-1 agreement {agree}/{total}")
    assert worst <= BOUND[weights]


@pytest.mark.model
@needs_fp16
async def test_greedy_text_in_half_precision(default_model: Path) -> None:
    """The engine as it comes: a token may differ from float32's only where the best two are within the bound."""
    exact = runner(default_model, "plain")
    differ = 0
    async with running(default_model, weights="auto") as engine:
        for question in ("What is the capital of France?", "List three fruits, one per line."):
            session = engine.open()
            await session.extend([*turn(question), *turn("Sure.", "assistant")])
            prompt = ids_of(session)
            _, tokens = await collect(session, max_tokens=24)
            table = logprobs(exact, [*prompt, *(token.id for token in tokens)])
            for i, token in enumerate(tokens):
                row = table[len(prompt) + i - 1]
                gap = float(row.max() - row[token.id])
                differ += gap > 0
                assert gap <= BOUND["fp16"]
                assert abs(float(row[token.id]) - token.logprob) <= BOUND["fp16"]
    print(f"fp16: {differ} greedy tokens differ from float32's, each within {BOUND['fp16']}")

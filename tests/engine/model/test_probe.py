"""The forward at load that finds models the engine would run wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from sglspec_engine.config import EngineConfig
from sglspec_engine.engine import Engine
from sglspec_engine.model import adapter
from sglspec_engine.model.load import LoadedModel, load_model
from sglspec_engine.types import EngineError
from tests.engine import tiny
from tests.engine.drive import running

Change = Callable[[dict[str, Any]], dict[str, Any]]


def value_of(engine: Engine, name: str) -> str:
    """What `engine.reasons` says a thing is."""
    [line] = [line for line in engine.reasons if line.startswith(f"{name}=")]
    return line.removeprefix(f"{name}=").partition(": ")[0]


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
@pytest.mark.parametrize("attention", ["cpu", "reference"])
async def test_every_architecture_says_what_transformers_says(
    architecture: str, attention: str, tiny_model: Callable[[str], Path]
) -> None:
    async with running(tiny_model(architecture), attention=attention) as engine:
        assert float(value_of(engine, "probe")) < 1e-5
        assert (engine.metrics.forwards, engine.metrics.embedded_tokens) == (0, 0)


async def test_it_can_be_left_out(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_attention(monkeypatch, lambda asked: {"scaling": 2 * asked["scaling"]})
    async with running(tiny_llama, probe=False) as engine:
        assert value_of(engine, "probe") == "off"


def break_attention(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Make the engine's attention function see other arguments than the model gave."""
    right = adapter._attend

    def wrong(*args: Any, **asked: Any) -> Any:
        return right(*args, **{**asked, **change(asked)})

    monkeypatch.setattr(adapter, "_attend", wrong)


def refused(loaded: LoadedModel, **settings: Any) -> str:
    with pytest.raises(EngineError) as caught:
        Engine(loaded, EngineConfig(**{"weights": "fp32", **settings}))
    assert caught.value.kind == "unsupported"
    return str(caught.value)


@pytest.mark.parametrize("weights", ["plain", "fp32", "auto"])
def test_a_wrong_scaling(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, weights: Any) -> None:
    break_attention(monkeypatch, lambda asked: {"scaling": 2 * asked["scaling"]})
    message = refused(load_model(tiny_llama), weights=weights)
    assert "cannot be run right here" in message
    assert "what continues a cached beginning is off by" in message
    assert "a sequence beside another one is off by" in message


@pytest.mark.parametrize("name", ["softcap", "s_aux"])
def test_a_part_of_attention_that_is_left_out(
    tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    loaded = load_model(tiny_model({"softcap": "gemma2", "s_aux": "gpt_oss"}[name]))
    for layer in loaded.model.model.layers:
        if name == "s_aux":  # as new as they come sinks are too small to matter
            torch.nn.init.constant_(layer.self_attn.sinks, 2.0)
    break_attention(monkeypatch, lambda asked: {name: None})
    assert "is off by" in refused(loaded)


def test_a_window_that_is_not_the_models(tiny_model: Callable[[str], Path]) -> None:
    loaded = load_model(tiny_model("mistral"))
    other = type(loaded.config)(**{**loaded.config.to_dict(), "sliding_window": 12})
    assert "what continues a cached beginning is off by" in refused(replace(loaded, config=other))


def test_positions_that_the_model_does_not_take(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_model(tiny_llama)
    rotary = loaded.model.model.rotary_emb
    right = rotary.forward
    monkeypatch.setattr(
        rotary,
        "forward",
        lambda x, position_ids: right(x, torch.arange(position_ids.shape[1])[None].expand_as(position_ids)),
    )
    message = refused(loaded, weights="plain")
    assert "what continues a cached beginning is off by" in message
    assert "the beginning of a sequence" not in message


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_positions_that_depend_on_the_batch(tiny_llama: Path, kind: str) -> None:
    loaded = load_model(tiny_llama)
    config = loaded.model.config
    config.rope_parameters = {
        "rope_type": kind,
        "rope_theta": 10000.0,
        "factor": 2.0,
        "original_max_position_embeddings": 256,
        "long_factor": [2.0] * 8,
        "short_factor": [1.0] * 8,
    }
    loaded.model.model.rotary_emb = LlamaRotaryEmbedding(config)
    assert "its rotary positions (model.rotary_emb) depend on what else is in the batch" in refused(loaded)


def test_a_model_that_breaks(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_model(tiny_llama)

    def forward(input_ids: object) -> None:
        raise AssertionError("never reached")

    monkeypatch.setattr(loaded.model, "forward", forward)
    assert "fails when it is called as the engine does: TypeError" in refused(loaded)

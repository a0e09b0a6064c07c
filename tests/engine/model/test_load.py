"""Loading a model folder: what is refused, and what a loaded model says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sglspec_engine.model.compat import check_folder, check_model
from sglspec_engine.model.load import compatibility, load_model
from sglspec_engine.text.chat import ChatTemplate
from sglspec_engine.types import EngineError
from tests.engine import tiny


@pytest.fixture
def folder(tmp_path: Path, tiny_llama: Path) -> Path:
    """A copy of the tiny llama that a test may change."""
    return shutil.copytree(tiny_llama, tmp_path / "model")


def change(path: Path, **values: Any) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | values))


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_tiny_models_load(tiny_model: Callable[[str], Path], architecture: str) -> None:
    loaded = load_model(tiny_model(architecture))
    assert isinstance(loaded.chat, ChatTemplate)
    assert (loaded.eos_ids, loaded.max_context) == ({2}, 512)
    assert loaded.vocabulary.size < loaded.config.vocab_size
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())
    assert {str(p.dtype) for p in loaded.model.parameters()} == {"torch.float32"}
    assert not compatibility(tiny_model(architecture)).problems


def test_the_attention_and_the_type_are_the_callers(tiny_llama: Path) -> None:
    loaded = load_model(tiny_llama, dtype="bfloat16", attn_implementation="sdpa")
    assert loaded.config._attn_implementation == "sdpa"
    assert str(next(loaded.model.parameters()).dtype) == "torch.bfloat16"


def test_a_model_without_a_template_loads(folder: Path) -> None:
    tiny.write_tokenizer(folder, template=None)
    chat = load_model(folder).chat
    assert isinstance(chat, EngineError)
    assert chat.kind == "no_template"


def refuse(folder: Path, reason: str) -> None:
    with pytest.raises(EngineError, match=reason) as caught:
        load_model(folder)
    assert caught.value.kind == "unsupported"


def test_code_of_the_models_own_is_refused(folder: Path) -> None:
    change(folder / "config.json", auto_map={"AutoModelForCausalLM": "evil.Model"})
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    refuse(folder, "code of its own")
    assert compatibility(folder).problems


def test_pickle_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refuse(folder, "cannot be loaded")


def test_damaged_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(EngineError, match="cannot be loaded"):
        load_model(folder)


def test_missing_weights_are_refused(folder: Path) -> None:
    change(folder / "config.json", num_hidden_layers=3)
    refuse(folder, "lacks weights")


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    change(folder / "config.json", intermediate_size=96)
    refuse(folder, "cannot be loaded|lacks weights")


def test_a_tokenizer_that_does_not_fit_is_refused(folder: Path) -> None:
    change(folder / "config.json", vocab_size=500)
    refuse(folder, "898 tokens but the model only 500")


def test_unknown_architectures_are_refused(folder: Path) -> None:
    change(folder / "config.json", model_type="nonsense", architectures=["Nonsense"])
    refuse(folder, "no text model")


def test_models_that_are_no_decoders_are_refused(folder: Path) -> None:
    change(folder / "config.json", model_type="vit")
    refuse(folder, "no text model")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_missing_files(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refuse(folder, name.replace(".", r"\."))


def test_scaled_positions_that_depend_on_the_batch_are_refused(folder: Path) -> None:
    change(folder / "config.json", rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0})
    refuse(folder, "'dynamic', which depends on the batch")


def test_an_unknown_type_is_refused(tiny_llama: Path) -> None:
    for dtype in ("float33", "int8", "nn"):
        with pytest.raises(EngineError, match="not a floating type"):
            load_model(tiny_llama, dtype=dtype)


@pytest.mark.parametrize("device", ["nowhere", "meta", "cuda:99", ""])
def test_a_device_that_is_not_here_is_refused(tiny_llama: Path, device: str) -> None:
    with pytest.raises(EngineError, match="device") as caught:
        load_model(tiny_llama, device=device)
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"quantization_config": {}}, "quantised"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"vision_config": {}}, "more than text"),
    ],
)
def test_the_report_on_a_configuration(config: dict[str, Any], reason: str) -> None:
    assert reason in check_folder(config).problems[0]


Good = type("Good", (), {"_supports_attention_backend": True})
Plain = type("Plain", (), {})
Stateful = type("Stateful", (), {"_supports_attention_backend": True, "_is_stateful": True})


@pytest.mark.parametrize(
    ("model", "config", "reason"),
    [
        (Plain, {}, "supply attention"),
        (Stateful, {}, "state per sequence"),
        (Good, {"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        (Good, {"layer_types": ["chunked_attention"]}, "chunked_attention"),
        (Good, {"layer_types": ["sliding_attention"], "sliding_window": None}, "how far"),
        (Good, {"rope_parameters": {"full_attention": {"rope_type": "longrope"}}}, "longrope"),
    ],
)
def test_the_report_on_a_model(model: type, config: dict[str, Any], reason: str) -> None:
    report = check_model(SimpleNamespace(**config), model)
    assert reason in " ".join(report.problems)
    with pytest.raises(EngineError, match="cannot be run right"):
        report.require()


def test_a_model_that_qualifies() -> None:
    config = SimpleNamespace(
        layer_types=["sliding_attention"], sliding_window=8, rope_parameters={"rope_type": "yarn"}, kv_lora_rank=4
    )
    report = check_model(config, Good)
    assert report.problems == ()
    assert len(report.warnings) == 1


@pytest.mark.model
def test_the_real_model(default_model: Path) -> None:
    loaded = load_model(default_model)
    assert (loaded.name, loaded.max_context, loaded.eos_ids) == ("smollm2-135m-instruct", 8192, {2})
    assert loaded.report.problems == ()

"""Tiny models with random weights, for tests that compare the engine with transformers.

Two layers, width 64, the byte-level tokenizer of `assets/`, ChatML with a default system message. Deterministic:
the same architecture and seed give the same weights. The rows of the output beyond the tokenizer's ids exist on
purpose (real models pad there too): those ids must never come out of a generation.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).parent / "assets"
ARCHITECTURES = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "phi3", "gpt_oss")
VOCAB_ROWS = 960
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a tiny model.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_ROWS,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
    # Wide enough that the likeliest tokens stand apart, so that greedy choices can be compared.
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
}
_OWN: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 24},
    "gemma2": {
        "sliding_window": 24,
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 20.0,
    },
    "phi3": {"sliding_window": None},
    "gpt_oss": {"sliding_window": 24, "num_local_experts": 4, "num_experts_per_tok": 2},
    # Keys that do not turn with the position, in the first layer.
    "smollm3": {"no_rope_layers": [0, 1]},
    # Keys that turn differently by layer.
    "gemma3_text": {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]},
}


def write_tokenizer(folder: Path, kind: str = "byte_level", *, template: str | None = TEMPLATE) -> Path:
    """A folder with one of the tiny tokenizers ("byte_level", "metaspace", "unigram") and its settings."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ASSETS / f"{kind}.json", folder / "tokenizer.json")
    names = {
        "byte_level": {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        "metaspace": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
        "unigram": {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
    }[kind]
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, **names}
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return folder


def build(folder: Path, architecture: str = "llama", *, seed: int = 0) -> Path:
    """A model folder (safetensors, float32) of one of ARCHITECTURES, or of another one of transformers. Takes well under a second once torch is there."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(architecture, **{**_COMMON, **_OWN.get(architecture, {})})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    return write_tokenizer(folder)

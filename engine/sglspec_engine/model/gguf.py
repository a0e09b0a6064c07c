"""From a GGUF file to a Hugging Face model folder, once, with numpy alone.

Written: config.json, generation_config.json, model.safetensors (float32), tokenizer.json, tokenizer_config.json. Only
what is known to come out exactly is converted: the llama architecture with a byte-level BPE of a known pre-tokenizer.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sglspec_engine.model.gguf_file import Array, GgufFile
from sglspec_engine.types import EngineError

Progress = Callable[[int, int], None]
"""Called with (bytes written, bytes in all)."""

_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.weight\Z")
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OTHER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_PRE_TOKENIZERS: Mapping[str, Any] = {
    # SmolLM's vocabulary was learned with every digit apart, before GPT-2's own split.
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]},
    "gpt-2": _BYTE_LEVEL,
}
_CONTROL, _USER_DEFINED = 3, 4


def convert(source: Path, target: Path, progress: Progress | None = None) -> None:
    """Write the folder `target` (which exists) from the GGUF file `source`.

    Raises EngineError("unsupported") if the file is damaged or not of a kind that is converted exactly.
    """
    with GgufFile(source) as file:
        if file.metadata.get("general.architecture") != "llama":
            raise EngineError("unsupported", "only GGUF files of the llama architecture are converted")
        config = _config(file)
        _write_json(target / "config.json", config)
        ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in config}
        _write_json(target / "generation_config.json", ids)
        _write_json(target / "tokenizer.json", _tokenizer(file.metadata))
        _write_json(target / "tokenizer_config.json", _tokenizer_config(file.metadata, config))
        _write_weights(file, config, target / "model.safetensors", progress)


def _entry(metadata: Mapping[str, Any], key: str, kind: type) -> Any:
    value = metadata.get(key)
    if not isinstance(value, kind):
        raise EngineError("unsupported", f"the GGUF file does not say {key!r}")
    return value


def _config(file: GgufFile) -> dict[str, Any]:
    def number(key: str) -> int:
        value = _entry(file.metadata, f"llama.{key}", int)
        if not 1 <= value <= 1 << 24:
            raise EngineError("unsupported", f"the GGUF file's {key!r} is impossible")
        return value

    if any(key.startswith("llama.rope.scaling") for key in file.metadata) or "rope_freqs.weight" in file.tensors:
        raise EngineError("unsupported", "GGUF files with scaled rotary positions are not converted")
    heads, width = number("attention.head_count"), number("embedding_length")
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "dtype": "float32",
        "head_dim": number("rope.dimension_count"),
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": number("feed_forward_length"),
        "max_position_embeddings": number("context_length"),
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": number("block_count"),
        "num_key_value_heads": number("attention.head_count_kv"),
        "rms_norm_eps": _short(_entry(file.metadata, "llama.attention.layer_norm_rms_epsilon", float)),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": _short(_entry(file.metadata, "llama.rope.freq_base", float)),
        },
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "vocab_size": len(_entry(file.metadata, "tokenizer.ggml.tokens", list)),
    }
    if config["num_hidden_layers"] > len(file.tensors):
        # Checked before names are made for every layer: the number comes from the file.
        raise EngineError("unsupported", "the GGUF file's tensors do not fit its configuration (too few layers)")
    if config["head_dim"] * heads != width:
        raise EngineError("unsupported", "GGUF files with partly rotated heads are not converted")
    for name in ("bos", "eos", "padding"):
        value = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(value, int):
            config[f"{'pad' if name == 'padding' else name}_token_id"] = value
    return config


def _short(value: float) -> float:
    """The file holds a float32: the shortest decimal that means the same float32."""
    return float(str(np.float32(value)))


def _tokenizer(metadata: Mapping[str, Any]) -> dict[str, Any]:
    pre = str(metadata.get("tokenizer.ggml.pre"))
    if metadata.get("tokenizer.ggml.model") != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise EngineError("unsupported", f"GGUF files with a tokenizer of kind {pre!r} are not converted")
    tokens: list[str] = _entry(metadata, "tokenizer.ggml.tokens", list)
    kinds: list[int] = _entry(metadata, "tokenizer.ggml.token_type", list)
    merges: list[str] = _entry(metadata, "tokenizer.ggml.merges", list)
    if len(set(tokens)) != len(tokens) or len(kinds) != len(tokens):
        raise EngineError("unsupported", "the GGUF file's vocabulary is damaged")
    added = [
        {
            "id": i,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": [merge.split(" ", 1) for merge in merges],
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "post_processor": _post_processor(metadata, tokens),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": model,
    }


def _post_processor(metadata: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    """Puts BOS before plain text if the file says so."""
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if not metadata.get("tokenizer.ggml.add_bos_token") or not isinstance(bos, int) or bos >= len(tokens):
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    text, template = tokens[bos], {"Sequence": {"id": "A", "type_id": 0}}
    start = {"SpecialToken": {"id": text, "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [start, template],
        "pair": [start, template, second],
        "special_tokens": {text: {"id": text, "ids": [bos], "tokens": [text]}},
    }


def _tokenizer_config(metadata: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    out: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        i = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(i, int) and 0 <= i < len(tokens):
            out[f"{name}_token"] = tokens[i]
    if isinstance(metadata.get("tokenizer.chat_template"), str):
        out["chat_template"] = metadata["tokenizer.chat_template"]
    return out


def _write_weights(file: GgufFile, config: Mapping[str, Any], target: Path, progress: Progress | None) -> None:
    """A safetensors file of float32, one tensor at a time (8 bytes of header length, JSON header, data)."""
    names = {_name(name): name for name in file.tensors}
    expected = _expected_shapes(config)
    shapes = {name: file.tensors[source].shape for name, source in names.items()}
    if shapes != expected:
        odd = sorted(set(shapes.items()) ^ set(expected.items()))[0][0]
        raise EngineError("unsupported", f"the GGUF file's tensors do not fit its configuration ({odd})")
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    total = 0
    for name in sorted(names):
        size = 4 * int(np.prod(shapes[name]))
        header[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [total, total + size]}
        total += size
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    written = 0
    with target.open("wb") as out:
        out.write(struct.pack("<Q", len(raw)) + raw)
        for name in sorted(names):
            value = _as_transformers(name, file.read(names[name]), config)
            out.write(np.ascontiguousarray(value, dtype="<f4").data)
            written += value.nbytes
            if progress is not None:
                progress(written, total)


def _name(name: str) -> str:
    match = _LAYER.match(name)
    if match and match[2] in _LAYER_NAMES:
        return f"model.layers.{int(match[1])}.{_LAYER_NAMES[match[2]]}.weight"
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    raise EngineError("unsupported", f"the GGUF file has a tensor {name!r} that a llama model does not have")


def _expected_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    width, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    keys = config["head_dim"] * config["num_key_value_heads"]
    layer = {
        "input_layernorm": (width,),
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, width),
        "post_attention_layernorm": (width,),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {
        f"model.layers.{n}.{name}.weight": shape
        for n in range(config["num_hidden_layers"])
        for name, shape in layer.items()
    }
    shapes |= {"model.embed_tokens.weight": (vocab, width), "model.norm.weight": (width,)}
    return shapes if config["tie_word_embeddings"] else shapes | {"lm_head.weight": (vocab, width)}


def _as_transformers(name: str, value: Array, config: Mapping[str, Any]) -> Array:
    """GGUF files order each head's query and key rows in pairs (x₀, x_{d/2}, x₁, …) for llama.cpp's rotary kernel;
    transformers wants the two halves one after the other."""
    if name.endswith("q_proj.weight"):
        heads = config["num_attention_heads"]
    elif name.endswith("k_proj.weight"):
        heads = config["num_key_value_heads"]
    else:
        return value
    rows, columns = value.shape
    return value.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

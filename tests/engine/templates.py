"""Public chat templates in our own words (`assets/templates`), with tokenizers that know their control tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.engine import tiny

TOKENS: dict[str, list[str]] = {
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "qwen2": ["<|im_start|>", "<|im_end|>"],
    "qwen3": ["<|im_start|>", "<|im_end|>", "<think>", "</think>"],
    "deepseek-r1": ["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"],
    "llama-2": [],
    "llama-3": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "gemma-2": ["<start_of_turn>", "<end_of_turn>"],
    "mistral-v0.1": [],
    "mistral-v0.3": ["[INST]", "[/INST]"],
    "phi-3": ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
    "zephyr": [],
}
ANEW = {"qwen3", "deepseek-r1", "llama-2", "mistral-v0.3", "phi-3"}
"""Those that write messages differently depending on the others."""


def write(folder: Path, name: str, kind: str) -> Path:
    """A folder with a tokenizer that knows the template's control tokens, and the template."""
    tiny.write_tokenizer(folder, kind, template=None)
    (folder / "chat_template.jinja").write_text(
        (tiny.ASSETS / "templates" / f"{name}.jinja").read_text("utf-8"), "utf-8"
    )
    path = folder / "tokenizer.json"
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    known = {row["content"] for row in document["added_tokens"]}
    following = max(len(document["model"]["vocab"]), *(row["id"] + 1 for row in document["added_tokens"]))
    wanted = [*TOKENS[name], *(["<s>"] if kind == "unigram" else [])]
    for id, content in enumerate((token for token in wanted if token not in known), following):
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        special = content not in ("<think>", "</think>")
        document["added_tokens"].append({"id": id, "content": content, **flags, "special": special})
    path.write_text(json.dumps(document), "utf-8")
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    settings |= {"bos_token": "<s>"} if kind == "unigram" else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return folder

"""How the tiny tokenizers in this folder were made: `python tests/engine/assets/train.py` writes them again.

Three kinds, as they occur in the wild, each with its own trap:

* `byte_level.json`: byte-level BPE with ChatML tokens; added tokens that are not special, in the vocabulary or behind
  it; a token that swallows the white space after it.
* `metaspace.json`: SentencePiece-style BPE with byte fallback; `<table>` is an ordinary merged piece that is also an
  added token; a prefix space only at the very start; runs of spaces as added tokens; BOS before plain text.
* `unigram.json`: Unigram without byte fallback (so there is an unknown token); `<sep>` is a likely piece that is also
  an added token.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent
TEXT = """the of and to in a is that for it was on are as with his they at be this from have or by one had not but what
all were when we there can an your which their said if do will each about how up out them then she many some so these
would other into has more her two like him see time could no make than first been its who now people my made over did
down only way find use may water long little very after words called just where most know system user assistant answer
question write capital France Paris number value name text model token program branch prompt print return string list
"""
WORDS = TEXT.split()
OTHER = [
    "你好，世界",
    "今天天气很好",
    "こんにちは",
    "привет мир",
    "naïve café",
    "Größe über",
    "😀",
    "👍🏽",
    "→",
    "مرحبا",
    "123",
    "3.14",
    "2026",
]


def corpus() -> list[str]:
    """Some thousand lines of words, other scripts, JSON, code and markup."""
    rng = random.Random(7)
    lines: list[str] = []
    for _ in range(4000):
        words = [rng.choice(OTHER) if rng.random() < 0.06 else rng.choice(WORDS) for _ in range(rng.randint(3, 14))]
        line = " ".join(words)
        lines.append(
            rng.choice([line, line.capitalize() + ".", line + "?\n\n", "  " + line, f'{{"{words[0]}": "{line}"}}'])
        )
    return lines + [f"{rng.choice(WORDS)}<table>{rng.choice(WORDS)}<sep>{rng.choice(WORDS)}" for _ in range(2000)]


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    plain = ["<think>", "</think>", "<tool_call>", "</tool_call>", "ünï<x>"]
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in plain])
    tokenizer.add_special_tokens([AddedToken("<|eats|>", rstrip=True, normalized=False, special=True)])
    return tokenizer


def metaspace() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁▁", "▁▁▁▁"]
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=special, limit_alphabet=120, max_token_length=12, show_progress=False
    )
    split = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="first", split=True)])
    keep, tokenizer.pre_tokenizer = tokenizer.pre_tokenizer, split
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.pre_tokenizer = keep
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=700, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def _rewrite(tokenizer: Tokenizer, special: set[str], plain: set[str]) -> dict[str, Any]:
    """The tokenizer as JSON, its added-token table replaced: `plain` tokens are pieces of the vocabulary too."""
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    rows = [row for row in document["added_tokens"] if row["content"] in special | plain]
    known = {row["content"] for row in rows}
    for text in sorted(plain - known):
        row = {"id": tokenizer.token_to_id(text), "content": text, "special": False}
        rows.append(row | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False))
    for row in rows:
        row["special"] = row["content"] in special
    document["added_tokens"] = sorted(rows, key=lambda row: row["id"])
    return document


def main() -> None:
    documents: dict[str, dict[str, Any]] = {
        "byte_level": json.loads(byte_level().to_str()),
        "metaspace": _rewrite(metaspace(), {"<unk>", "<s>", "</s>"}, {"<table>", "▁▁", "▁▁▁▁"}),
        "unigram": _rewrite(unigram(), {"<pad>", "</s>", "<unk>"}, {"<sep>"}),
    }
    for name, document in documents.items():
        (HERE / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Reading a model folder's tokenizer files, without trusting them.

The files are data from elsewhere: sizes are bounded, every shape is checked, and whatever the engine cannot
represent exactly is refused with EngineError("unsupported") rather than guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import tokenizers

from sglspec_engine.types import EngineError

MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_TOKENS = 4_000_000
"""Highest id (exclusive) a tokenizer may use; the largest known vocabularies have about 262,000."""

_BLANK = re.compile(r"[ \t\r\n\u2581]+\Z")
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class AddedToken:
    """One entry of the added-token table. lstrip/rstrip: it swallows white space on that side."""

    id: int
    content: str
    special: bool
    lstrip: bool = False
    rstrip: bool = False

    @property
    def is_blank(self) -> bool:
        """A run of white space kept in the added-token table: ordinary text, not control."""
        return not self.special and _BLANK.match(self.content) is not None


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What the tokenizer files of a folder say.

    `document` is tokenizer.json as read; `pieces` maps id → piece of the model's own vocabulary (without added
    tokens); `kind` is "bytes" (byte-level BPE) or "metaspace" (SentencePiece style, BPE or Unigram);
    `space` is the character that stands for a space in pieces of the second kind; `unknown_id` is the id that
    encoding text yields for characters it cannot represent, None where that cannot happen.
    """

    path: Path
    document: dict[str, Any]
    pieces: dict[int, str]
    kind: str
    space: str
    byte_fallback: bool
    added: tuple[AddedToken, ...]
    special_text: dict[str, str]
    unknown_id: int | None
    bos_id: int | None
    eos_ids: frozenset[int]
    adds_bos: bool

    @classmethod
    def read(cls, path: Path) -> TokenizerFiles:
        """Read `path`/tokenizer.json, tokenizer_config.json, generation_config.json and config.json."""
        document = read_json(path / "tokenizer.json")
        try:
            return cls._parse(path, document)
        except (TypeError, AttributeError, ValueError, LookupError) as error:
            # A file of a wrong shape somewhere inside: every value is used as what it should be, or raises.
            raise EngineError("unsupported", f"the tokenizer files are damaged: {error}") from None

    @classmethod
    def _parse(cls, path: Path, document: dict[str, Any]) -> TokenizerFiles:
        settings = read_json(path / "tokenizer_config.json", optional=True)
        model = _mapping(document.get("model"), "model")
        pieces = _pieces(model)
        special_text = _special_text(settings, read_json(path / "special_tokens_map.json", optional=True))
        added = _added(document, settings, pieces, special_text)
        kind, space = _kind(document)
        ids = {text: i for i, text in pieces.items()} | {t.content: t.id for t in added}
        bos = ids.get(special_text["bos_token"]) if "bos_token" in special_text else None
        return cls(
            path=path,
            document=document,
            pieces=pieces,
            kind=kind,
            space=space,
            byte_fallback=bool(model.get("byte_fallback")),
            added=added,
            special_text=special_text,
            unknown_id=_unknown_id(model, pieces, kind),
            bos_id=bos,
            eos_ids=_eos_ids(path, ids.get(special_text.get("eos_token", ""))),
            adds_bos=bos is not None and _starts_with(document, bos),
        )

    def splitter(self, tokens: Iterable[AddedToken]) -> re.Pattern[str]:
        """A pattern that finds control tokens in text, the longest first."""
        texts = sorted((re.escape(t.content) for t in tokens), key=len, reverse=True)
        return re.compile("|".join(texts) if texts else r"(?!)")


def read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """A JSON object from a file; {} if it is optional and absent. EngineError("unsupported") if it is not one."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise EngineError("unsupported", f"{path.name} is larger than {MAX_FILE_BYTES} bytes")
        value: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        if optional:
            return {}
        raise EngineError("unsupported", f"the model folder has no {path.name}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise EngineError("unsupported", f"{path.name} cannot be read: {error}") from None
    return _mapping(value, path.name)


def nodes(node: object) -> Iterator[dict[str, Any]]:
    """Every component of a pre-tokenizer, normalizer or decoder tree, outermost first."""
    if isinstance(node, dict):
        component = cast("dict[str, Any]", node)
        yield component
        for key in ("pretokenizers", "normalizers", "decoders"):
            for child in cast("list[object]", component.get(key) or []):
                yield from nodes(child)


def _mapping(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise EngineError("unsupported", f"{name} is not a JSON object")
    return cast("dict[str, Any]", value)


def _pieces(model: dict[str, Any]) -> dict[int, str]:
    vocab: object = model.get("vocab")
    pairs: Iterable[tuple[object, object]]
    if model.get("type") in ("BPE", None) and isinstance(vocab, dict):
        pairs = ((i, piece) for piece, i in cast("dict[object, object]", vocab).items())
    elif model.get("type") == "Unigram" and isinstance(vocab, list):
        rows = cast("list[Sequence[object]]", vocab)
        pairs = ((i, row[0]) for i, row in enumerate(rows))
    else:
        raise EngineError(
            "unsupported", f"tokenizers of type {model.get('type')!r} are not supported (BPE, Unigram are)"
        )
    if model.get("end_of_word_suffix") or model.get("continuing_subword_prefix"):
        raise EngineError("unsupported", "tokenizers that mark word ends or continuations are not supported")
    pieces: dict[int, str] = {}
    for i, piece in pairs:
        if not isinstance(i, int) or not isinstance(piece, str) or not 0 <= i < MAX_TOKENS:
            raise EngineError("unsupported", "tokenizer.json: the vocabulary is damaged")
        pieces[i] = piece
    return pieces


def _kind(document: dict[str, Any]) -> tuple[str, str]:
    """How pieces spell bytes, from the components that are there."""
    trees = [document.get(k) for k in ("normalizer", "pre_tokenizer", "decoder")]
    components = [n for tree in trees for n in nodes(tree)]
    if any(n.get("type") == "ByteLevel" for n in components):
        return "bytes", ""
    for n in components:
        if n.get("type") == "Metaspace":
            return "metaspace", str(n.get("replacement", "\u2581"))
    for n in nodes(document.get("normalizer")):
        pattern: object = n.get("pattern")
        if n.get("type") == "Replace" and pattern == {"String": " "}:
            return "metaspace", str(n.get("content"))
    raise EngineError("unsupported", "this kind of tokenizer is not supported (byte-level and SentencePiece style are)")


def _special_text(settings: dict[str, Any], extra: dict[str, Any]) -> dict[str, str]:
    """The named special tokens; each is a text or a mapping with its text in "content"."""
    out: dict[str, str] = {}
    for name in _NAMED:
        value: object = settings.get(name) or extra.get(name)
        if isinstance(value, dict):
            value = cast("dict[str, object]", value).get("content")
        if isinstance(value, str) and value:
            out[name] = value
    return out


def _added(
    document: dict[str, Any], settings: dict[str, Any], pieces: dict[int, str], special_text: dict[str, str]
) -> tuple[AddedToken, ...]:
    """The added-token table: tokenizer.json, then tokenizer_config.json, then named tokens found in the vocabulary."""
    table: dict[int, AddedToken] = {}
    for row in cast("list[dict[str, Any]]", document.get("added_tokens") or []):
        _enter(table, row.get("id"), row)
    decoder = cast("dict[str, dict[str, Any]]", settings.get("added_tokens_decoder") or {})
    for key, row in decoder.items():
        _enter(table, int(key) if key.isdecimal() else None, row)
    known = {t.content for t in table.values()}
    by_piece = {piece: i for i, piece in pieces.items()}
    for text in special_text.values():
        if text not in known and text in by_piece:
            _enter(table, by_piece[text], {"content": text, "special": True})
    return tuple(sorted(table.values(), key=lambda t: t.id))


def _enter(table: dict[int, AddedToken], id: object, row: dict[str, Any]) -> None:
    content: object = row.get("content")
    if not isinstance(id, int) or not isinstance(content, str) or not content or not 0 <= id < MAX_TOKENS:
        raise EngineError("unsupported", "the table of added tokens is damaged")
    table[id] = AddedToken(id, content, bool(row.get("special")), bool(row.get("lstrip")), bool(row.get("rstrip")))


def _unknown_id(model: dict[str, Any], pieces: dict[int, str], kind: str) -> int | None:
    """The id for characters that cannot be represented, if encoding can ever yield it."""
    if kind == "bytes":
        return None  # a byte that is missing in such a vocabulary is left out (`clone` sees to it)
    if model.get("byte_fallback") and {f"<0x{byte:02X}>" for byte in range(256)} <= set(pieces.values()):
        return None
    unknown: object = model.get("unk_id") if model.get("type") == "Unigram" else model.get("unk_token")
    if isinstance(unknown, str):
        return next((i for i, piece in pieces.items() if piece == unknown), None)
    return unknown if isinstance(unknown, int) else None


def _eos_ids(path: Path, tokenizer_eos: int | None) -> frozenset[int]:
    """generation_config.json wins over config.json, as in transformers; the tokenizer's own eos joins in."""
    ids: set[int] = set() if tokenizer_eos is None else {tokenizer_eos}
    for name in ("generation_config.json", "config.json"):
        value: object = read_json(path / name, optional=True).get("eos_token_id")
        listed = cast("list[object]", value) if isinstance(value, list) else [value]
        found = {i for i in listed if isinstance(i, int)}
        if found:
            return frozenset(ids | found)
    return frozenset(ids)


def _starts_with(document: dict[str, Any], bos: int) -> bool:
    """Whether the tokenizer puts BOS before plain text: its post-processor decides."""
    if not document.get("post_processor"):
        return False
    try:
        whole = tokenizers.Tokenizer.from_str(json.dumps(document | {"truncation": None, "padding": None}))
        return whole.encode("a", add_special_tokens=True).ids[:1] == [bos]
    except Exception as error:  # the library raises bare Exception for every fault of the file
        raise EngineError("unsupported", f"tokenizer.json cannot be used: {error}") from None


def byte_alphabet() -> dict[int, str]:
    """Byte → the printable character that stands for it in byte-level vocabularies (GPT-2's table)."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {b: chr(b) for b in visible}
    hidden = (b for b in range(256) if b not in table)
    return table | {b: chr(0x100 + n) for n, b in enumerate(hidden)}

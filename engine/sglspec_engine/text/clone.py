"""Clones of a tokenizer for content: the same model, no control tokens.

Emptying the added-token table is not enough. Control tokens often stand in the model's own vocabulary too, where
merges (BPE) or the piece lattice (Unigram) could still build them from plain text. So their pieces are made
unreachable in the clone as well, and `encode` checks what comes out.

There are up to three clones, because some tokenizers put a space before the first word: at the start of a text
(everything as the file says), after a control token (Metaspace's "first" no longer applies, other prefixes do), and
in the middle of a text (no prefix at all). Byte-level tokenizers need one.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Literal, cast

import tokenizers

from sglspec_engine.text.files import TokenizerFiles
from sglspec_engine.types import EngineError

Place = Literal["start", "control", "text"]


class Clones:
    """Encodes content. Thread-safe; clones are built when first needed."""

    def __init__(self, files: TokenizerFiles) -> None:
        self._forbidden = frozenset(t.id for t in files.added if not t.is_blank and t.id != files.unknown_id)
        self._base = _without_controls(files)
        self._built: dict[str, tokenizers.Tokenizer] = {}
        self._lock = threading.Lock()
        self._by_place: dict[Place, tokenizers.Tokenizer] = {}
        self._at("start")

    def encode(self, text: str, place: Place) -> list[int]:
        """Ids of `text`. EngineError("unsupported") if one is a control token (a normalizer may spell one), or if
        the text is not Unicode text (half a surrogate pair)."""
        try:
            ids = self._at(place).encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError):
            raise EngineError("unsupported", "a text holds half of a surrogate pair, which is no character") from None
        if not self._forbidden.isdisjoint(ids):
            raise EngineError("unsupported", "this model's tokenizer turns plain text into a control token")
        return ids

    def _at(self, place: Place) -> tokenizers.Tokenizer:
        found = self._by_place.get(place)
        if found is not None:
            return found
        with self._lock:
            components = {key: _placed(self._base.get(key), place) for key in ("normalizer", "pre_tokenizer")}
            key = json.dumps(components, sort_keys=True)
            if key not in self._built:
                self._built[key] = _build(self._base | components)
            self._by_place[place] = self._built[key]
            return self._built[key]


def _build(document: dict[str, Any]) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(document))
    except Exception as error:  # the library raises bare Exception for every fault of the file
        raise EngineError("unsupported", f"tokenizer.json cannot be used: {error}") from None


def _without_controls(files: TokenizerFiles) -> dict[str, Any]:
    """tokenizer.json for content: no control tokens, no post-processor, no truncation, no randomness."""
    removed = {t.id for t in files.added if not t.is_blank}
    rows = cast("list[dict[str, Any]]", files.document.get("added_tokens") or [])
    model = dict(cast("dict[str, Any]", files.document["model"]))
    if model.get("type") == "Unigram":
        # A Unigram vocabulary is indexed by position, so a piece cannot be taken out; an empty one never matches.
        vocab = cast("list[list[Any]]", model["vocab"])
        model["vocab"] = [["", row[1]] if i in removed else row for i, row in enumerate(vocab)]
    else:
        model["dropout"] = None
        if files.kind == "bytes":
            # The unknown token of a byte-level vocabulary is often its end-of-text token: a byte the vocabulary
            # lacks must rather be left out.
            model["unk_token"] = None
        _cut_merges(model, files, removed)
    return files.document | {
        "model": model,
        "added_tokens": [row for row in rows if row.get("id") not in removed],
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }


def _cut_merges(model: dict[str, Any], files: TokenizerFiles, removed: set[int]) -> None:
    """Take control pieces out of a BPE vocabulary, with every merge that makes or uses one.

    The unknown piece has to stay in the vocabulary (the model names it), so only its merges go.
    """
    gone = {files.pieces[i] for i in removed if i in files.pieces}
    if not gone:
        return
    unknown = model.get("unk_token")
    vocab = cast("dict[str, int]", model["vocab"])
    model["vocab"] = {piece: i for piece, i in vocab.items() if piece not in gone or piece == unknown}
    merges = cast("list[str | list[str]]", model.get("merges") or [])
    model["merges"] = [m for m in merges if not _touches(m, gone)]


def _touches(merge: str | list[str], gone: set[str]) -> bool:
    left, _, right = merge.partition(" ") if isinstance(merge, str) else (merge[0], " ", merge[1])
    return left + right in gone or left in gone or right in gone


def _placed(node: dict[str, Any] | None, place: Place) -> dict[str, Any] | None:
    """A normalizer or pre-tokenizer as it acts at `place`."""
    if node is None or place == "start":
        return node
    component = dict(node)
    kind = component.get("type")
    for key in ("pretokenizers", "normalizers"):
        if key in component:
            children = [_placed(child, place) for child in cast("list[dict[str, Any]]", component[key])]
            component[key] = [child for child in children if child is not None]
    if kind == "Metaspace" and (place == "text" or component.get("prepend_scheme") == "first"):
        component.pop("add_prefix_space", None)
        component["prepend_scheme"] = "never"
    if place == "text":
        if kind == "Prepend":
            return None
        if kind == "ByteLevel":
            component["add_prefix_space"] = False
    return component

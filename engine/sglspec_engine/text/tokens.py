"""Vocabulary: from text to ids and from ids to bytes.

Tokens are the engine's state and text is derived, so both directions have to be exact. Two rules hold everywhere:

* Content never becomes a control token. It is encoded by a clone of the model's tokenizer whose added-token table
  is empty; only `Control` parts, which role scaffolding emits, put control ids into a context.
* Text between two control tokens is encoded in one piece, so that ids equal those of the model's own chat template
  for ordinary content.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sglspec_engine.text.clone import Clones, Place
from sglspec_engine.text.files import AddedToken, TokenizerFiles
from sglspec_engine.text.pieces import byte_table


@dataclass(frozen=True, slots=True)
class Control:
    """A control token: the one way an added token gets into a context."""

    id: int


Part = Control | str
Ids = NDArray[np.int64]
After = Control | Literal["start", "text"]
"""What stands left of the text to encode: "start": nothing; a `Control`; "text": other text, generated or not."""

_REMEMBERED = 64
"""Beginnings of tokens for which it is kept what may follow."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """Tokens that begin with certain bytes and go on. ids [n], without control tokens; rest [n]: an id whose bytes are
    what follows; first [n]: one whose only byte is the first of those; -1 where there is none."""

    ids: Ids
    rest: Ids
    first: Ids


class Vocabulary:
    """One model's vocabulary.

    Attributes:
        size: number of ids the tokenizer knows (highest id plus one). The model's logits may be wider (padding
            rows): ids at and above `size` must never be sampled.
        token_bytes: the bytes each id adds to a text, length `size`. Special control tokens and unused ids add
            nothing (b""); added tokens that are not special, such as `<think>`, add their own text.
        control_ids: every added token, except runs of white space (some vocabularies keep those in the added-token
            table; they are ordinary text) and the unknown token where characters can be unknown. No id of these
            comes out of encoding text.
        special_ids: the control ids flagged special, which add no text.
        eos_ids: ids that end a generation by the model's own files (generation config, config, tokenizer).
        bos_id, adds_bos: the begin-of-text token and whether plain text starts with it.
        special_text: the named special tokens ("bos_token" → text), as chat templates want them.
    """

    def __init__(self, files: TokenizerFiles) -> None:
        self.path = files.path
        added = [t for t in files.added if not t.is_blank]
        unknown = files.unknown_id
        self.control_ids: frozenset[int] = frozenset(t.id for t in added if t.id != unknown)
        self.special_ids: frozenset[int] = frozenset(t.id for t in added if t.special)
        self.eos_ids: frozenset[int] = files.eos_ids
        self.bos_id: int | None = files.bos_id
        self.adds_bos: bool = files.adds_bos
        self.special_text: Mapping[str, str] = files.special_text
        self.token_bytes: list[bytes] = byte_table(files)
        self.size: int = len(self.token_bytes)
        self._added: dict[int, AddedToken] = {t.id: t for t in added}
        self._by_text: dict[str, int] = {t.content: t.id for t in added}
        self._clones = Clones(files)
        self._splitter = files.splitter(added)
        self._beyond: dict[bytes, Beyond] = {}

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a Hugging Face folder (tokenizer.json and its companions).

        Raises EngineError("unsupported") for a tokenizer the engine cannot represent exactly.
        """
        return cls(TokenizerFiles.read(path))

    def encode(self, parts: Sequence[Part], *, after: After = "start") -> list[int]:
        """Ids of `parts`. Neighbouring texts are joined and encoded in one piece.

        `after` is what already stands left of the first part; it decides about the space that some tokenizers put
        before the first word. Raises EngineError("unsupported") if a text would yield a control token.
        """
        ids: list[int] = []
        left: After = after
        joined = _join(parts)
        for here, part in enumerate(joined):
            if isinstance(part, Control):
                ids.append(part.id)
                left = part
                continue
            following = joined[here + 1] if here + 1 < len(joined) else None
            text = self._stripped(part, left, following)
            if text:
                ids += self._clones.encode(text, _place(left))
                left = "text"
        return ids

    def encode_content(self, text: str, *, after: After = "start") -> list[int]:
        """Ids of plain text; never a control id, whatever the text spells. No BOS."""
        return self.encode([text], after=after)

    def split_scaffold(self, text: str) -> list[Part]:
        """Split text that a chat template rendered at the control tokens it spells."""
        parts: list[Part] = []
        position = 0
        for match in self._splitter.finditer(text):
            if match.start() > position:
                parts.append(text[position : match.start()])
            parts.append(Control(self._by_text[match.group()]))
            position = match.end()
        if position < len(text):
            parts.append(text[position:])
        return parts

    def encode_scaffold(self, text: str, *, after: After = "start") -> list[int]:
        """Ids of template text that may spell control tokens. Never for content."""
        return self.encode(self.split_scaffold(text), after=after)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes that `ids` add to a text."""
        table = self.token_bytes
        return b"".join(table[i] for i in ids)

    def beginning_with(self, data: bytes) -> Ids:
        """The ids, without control tokens, whose bytes begin with `data`; those that are `data` come first."""
        ordered, ids = self._ordered
        first = bisect_left(ordered, data)
        end = bisect_left(ordered, True, lo=first, key=lambda found: not found.startswith(data))
        return ids[first:end]

    def spelled(self, data: bytes) -> Ids:
        """The ids, without control tokens, whose bytes are `data`."""
        ordered, ids = self._ordered
        return ids[bisect_left(ordered, data) : bisect_right(ordered, data)]

    def beyond(self, data: bytes) -> Beyond:
        """The tokens that begin with `data` and go on."""
        found = self._beyond.get(data)
        if found is None:
            ids = self.beginning_with(data)[len(self.spelled(data)) :]
            known, size = self._by_bytes, len(data)
            rests = [self.token_bytes[id][size:] for id in map(int, ids)]
            rest = np.array([known.get(one, -1) for one in rests], dtype=np.int64)
            first = np.array([known.get(one[:1], -1) for one in rests], dtype=np.int64)
            if len(self._beyond) >= _REMEMBERED:
                self._beyond.clear()
            found = self._beyond[data] = Beyond(ids, rest, first)
        return found

    def spell(self, data: bytes) -> list[int] | None:
        """Ids whose bytes are `data`, the longest token first at each place; not how the model would write it. None
        where the vocabulary cannot spell it that way."""
        known = self._by_bytes
        found: list[int] = []
        while data:
            length = next((n for n in range(min(len(data), self._longest), 0, -1) if data[:n] in known), 0)
            if not length:
                return None
            found.append(known[data[:length]])
            data = data[length:]
        return found

    @cached_property
    def _ordered(self) -> tuple[list[bytes], Ids]:
        """The bytes of ordinary tokens in order, and their ids."""
        pairs = sorted((data, id) for id, data in enumerate(self.token_bytes) if data and id not in self.control_ids)
        return [data for data, _ in pairs], np.array([id for _, id in pairs], dtype=np.int64)

    @cached_property
    def _by_bytes(self) -> dict[bytes, int]:
        ordered, ids = self._ordered
        return dict(zip(ordered, ids.tolist(), strict=True))

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._by_bytes), default=0)

    def describe(self, id: int) -> str:
        """A token for people: control tokens by their own text, broken UTF-8 as escapes."""
        token = self._added.get(id)
        return token.content if token else self.token_bytes[id].decode("utf-8", "backslashreplace")

    def start_parts(self) -> list[Part]:
        """What a context without roles starts with: BOS where the tokenizer adds it."""
        return [Control(self.bos_id)] if self.adds_bos and self.bos_id is not None else []

    def control(self, text: str) -> Control | None:
        """The control token with this text, if there is one."""
        return Control(self._by_text[text]) if text in self._by_text else None

    def _stripped(self, text: str, left: After, right: Part | None) -> str:
        """Some control tokens swallow the white space beside them (their lstrip and rstrip flags)."""
        before = self._added.get(left.id) if isinstance(left, Control) else None
        behind = self._added.get(right.id) if isinstance(right, Control) else None
        if before is not None and before.rstrip:
            text = text.lstrip()
        return text.rstrip() if behind is not None and behind.lstrip else text


def _join(parts: Sequence[Part]) -> list[Part]:
    """Neighbouring texts as one part, empty ones dropped."""
    out: list[Part] = []
    for part in parts:
        if isinstance(part, Control):
            out.append(part)
        elif part:
            last = out[-1] if out else None
            if isinstance(last, str):
                out[-1] = last + part
            else:
                out.append(part)
    return out


def _place(left: After) -> Place:
    return "control" if isinstance(left, Control) else left

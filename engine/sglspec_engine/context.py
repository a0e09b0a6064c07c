"""What a session holds, as an immutable value: sealed tokens, text that is not encoded yet, and how both came about.

Tokens are the state. Text becomes tokens when the model is about to see it: all text between two control tokens
(scaffolding, content, a chosen alternative) is encoded in one piece, so ids equal those of the model's own chat
template. It is sealed, and never encoded again, once a sampled token follows it. What was sampled is kept as ids.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from sglspec_engine.text.tokens import Control, Part, Vocabulary
from sglspec_engine.types import Origin, TraceToken


@dataclass(frozen=True, slots=True)
class Written:
    """A literal part of a context: text or a control token, and who it came from."""

    part: Part
    origin: Origin


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens that are kept as they are: the model produced them (chosen or forced), or they were joined as they were
    computed elsewhere.

    healed: bytes at their beginning that spell the end of the text before them anew (see `sched.healing`)."""

    ids: tuple[int, ...]
    origin: Origin = "generated"
    healed: int = 0


Entry = Written | Sampled


@dataclass(frozen=True, slots=True)
class Context:
    """ids: the sealed tokens; the last one was sampled. pending: literal parts after it, not encoded yet. log: the
    whole history in order, which text, traces and joins are derived from."""

    ids: tuple[int, ...] = ()
    pending: tuple[Written, ...] = ()
    log: tuple[Entry, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing was ever added."""
        return not self.log

    def write(self, written: Sequence[Written]) -> Context:
        """With literal parts appended. Empty texts add nothing."""
        kept = tuple(w for w in written if w.part != "")
        return Context(self.ids, self.pending + kept, self.log + kept) if kept else self

    def encode(self, vocabulary: Vocabulary, following: str = "") -> list[int]:
        """All tokens, sealed and pending, with `following` as if it had been written."""
        parts: list[Part] = [w.part for w in self.pending]
        if following:
            parts.append(following)
        if not parts:
            return list(self.ids)
        return [*self.ids, *vocabulary.encode(parts, after="text" if self.ids else "start")]

    def seal(
        self, prompt: Sequence[int], sampled: Sequence[int], rest: str = "", thought: int = 0, healed: int = 0
    ) -> Context:
        """With `sampled` after `prompt` (what `encode` gave), then `rest`: generated text whose tokens were cut. The
        first `thought` tokens are thinking. healed: bytes of `sampled` that spell the end of what was written anew;
        `prompt` has no tokens for those. Not both.

        Where nothing sampled remains, nothing is sealed: pending text stays text, and `rest` joins it.
        """
        found = self
        if sampled:
            runs = Sampled(tuple(sampled[:thought]), "thinking"), Sampled(tuple(sampled[thought:]), healed=healed)
            found = Context((*prompt, *sampled), (), (*self.log, *(run for run in runs if run.ids)))
        return found.write([Written(rest, "generated")])

    def splice(self, prompt: Sequence[int], tokens: Sequence[tuple[int, Origin]]) -> Context:
        """With `tokens` after `prompt` (what `encode` gave), never to be encoded again."""
        if not tokens:
            return self
        runs = [list(run) for _, run in groupby(tokens, key=lambda token: token[1])]
        kept = [Sampled(tuple(id for id, _ in run), run[0][1]) for run in runs]
        return Context((*prompt, *(id for id, _ in tokens)), (), (*self.log, *kept))

    def replay(self, entries: Iterable[Entry], vocabulary: Vocabulary) -> Context:
        """With another context's history appended as if it had happened here: text is encoded where it now stands,
        sampled tokens keep their ids."""
        found = self
        for entry in entries:
            if isinstance(entry, Written):
                found = found.write([entry])
            elif entry.healed:
                found = found._heal(entry, vocabulary)
            else:
                kept: list[tuple[int, Origin]] = [(id, entry.origin) for id in entry.ids]
                found = found.splice(found.encode(vocabulary), kept)
        return found

    def without_thinking(self, vocabulary: Vocabulary) -> Context:
        """The context as if only the answers had been generated."""
        if all(entry.origin != "thinking" for entry in self.log):
            return self
        return Context().replay(answers(self.log, vocabulary), vocabulary)

    def become(self, entries: Sequence[Entry], vocabulary: Vocabulary) -> Context:
        """The context with this history. Nothing is encoded again where the history only goes on."""
        have = len(self.log)
        if tuple(entries[:have]) == self.log:
            return self.replay(entries[have:], vocabulary)
        return Context().replay(entries, vocabulary)

    def loose(self, since: int = 0) -> bytes:
        """The end of the text that is not scaffolding and not sampled, from log entry `since` on: what may be spelled
        by other tokens than those it would be encoded with."""
        found: list[str] = []
        for entry in reversed(self.log[since:]):
            if isinstance(entry, Sampled) or isinstance(entry.part, Control) or entry.origin == "scaffold":
                break
            found.append(entry.part)
        return "".join(reversed(found)).encode("utf-8", "replace")

    def _heal(self, entry: Sampled, vocabulary: Vocabulary) -> Context:
        """With tokens that spell the end of this context's text anew. Where the text does not end in tokens of just
        that, those of them that reach into it become text."""
        table = vocabulary.token_bytes
        data = b"".join(table[id] for id in entry.ids)
        ids = self.encode(vocabulary)
        kept = len(ids)
        over = entry.healed
        while kept and over > 0:
            kept -= 1
            over -= len(table[ids[kept]])
        if over == 0 and self.loose().endswith(data[: entry.healed]):
            return self.seal(ids[:kept], entry.ids, healed=entry.healed)
        text, rest = _loosened(entry, vocabulary)
        found = self.write([Written(text, entry.origin)])
        return found.splice(found.encode(vocabulary), [(id, entry.origin) for id in rest])

    def text(self, vocabulary: Vocabulary) -> str:
        """The context as text; control tokens by their names, broken UTF-8 replaced."""
        raw = b"".join(_entry_bytes(entry, vocabulary) for entry in self.log)
        return raw.decode("utf-8", "ignore")

    def trace(self, vocabulary: Vocabulary) -> list[TraceToken]:
        """Every token with its origin. The texts joined are the context's text, but that a tokenizer may put a space
        before the first word; a character is shown with the token that completes it."""
        decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        found: list[TraceToken] = []
        for id, origin in _origins(self, vocabulary):
            if id in vocabulary.control_ids:
                # What is left of a character that a control token cuts off is shown with that token.
                rest = decoder.decode(b"", True)
                decoder.reset()
                found.append(TraceToken(id, rest + vocabulary.describe(id), origin))
            else:
                found.append(TraceToken(id, decoder.decode(vocabulary.token_bytes[id]), origin))
        return found


def answers(entries: Iterable[Entry], vocabulary: Vocabulary) -> list[Entry]:
    """A history without the thinking, and without the white space between thinking and answer."""
    kept: list[Entry] = []
    thought = False
    for entry in entries:
        if entry.origin == "thinking":
            thought = True
        else:
            text, ids = without_space(entry.ids, vocabulary) if thought and isinstance(entry, Sampled) else ("", ())
            if text:
                kept += [Written(text, entry.origin), *([Sampled(ids, entry.origin)] if ids else [])]
            else:
                kept.append(entry)
            thought = False
    return kept


def without_space(ids: tuple[int, ...], vocabulary: Vocabulary) -> tuple[str, tuple[int, ...]]:
    """An answer without the white space in front: the text of its first token, where that begins with some, and the
    other tokens. Else no text, and all of them."""
    data = vocabulary.token_bytes[ids[0]] if ids else b""
    try:
        text = data.lstrip().decode() if data[:1].isspace() else ""
    except UnicodeDecodeError:
        text = ""
    return (text, ids[1:]) if text else ("", ids)


def _entry_bytes(entry: Entry, vocabulary: Vocabulary) -> bytes:
    if isinstance(entry, Sampled):
        return b"".join(_token_bytes(id, vocabulary) for id in entry.ids)[entry.healed :]
    if isinstance(entry.part, Control):
        return vocabulary.describe(entry.part.id).encode()
    return entry.part.encode("utf-8", "replace")


def _loosened(entry: Sampled, vocabulary: Vocabulary) -> tuple[str, tuple[int, ...]]:
    """What healing tokens add to a text, as text up to where a token ends with a character, and the tokens behind."""
    end, text = 0, ""
    data = b"".join(vocabulary.token_bytes[id] for id in entry.ids)
    for count, id in enumerate(entry.ids, 1):
        end += len(vocabulary.token_bytes[id])
        text = data[entry.healed : end].decode("utf-8", "ignore")
        if end >= entry.healed and text.encode() == data[entry.healed : end]:
            return text, entry.ids[count:]
    return text, ()


def _token_bytes(id: int, vocabulary: Vocabulary) -> bytes:
    return vocabulary.describe(id).encode() if id in vocabulary.control_ids else vocabulary.token_bytes[id]


def _origins(context: Context, vocabulary: Vocabulary) -> list[tuple[int, Origin]]:
    """The tokens of a context with their origins, from its log."""
    found: list[tuple[int, Origin]] = []
    run: list[Written] = []
    for entry in context.log:
        if isinstance(entry, Written):
            run.append(entry)
            continue
        found += _run_origins(run, bool(found), vocabulary)
        run = []
        found += _healed_origins(found, entry, vocabulary)
    return found + _run_origins(run, bool(found), vocabulary)


def _healed_origins(
    before: list[tuple[int, Origin]], entry: Sampled, vocabulary: Vocabulary
) -> list[tuple[int, Origin]]:
    """The tokens of an entry. Those that it replaces are taken out of `before`; a token is of where it begins."""
    table = vocabulary.token_bytes
    origin, left = entry.origin, entry.healed
    while left > 0:
        id, origin = before.pop()
        left -= len(table[id])
    found: list[tuple[int, Origin]] = []
    at = 0
    for id in entry.ids:
        found.append((id, origin if at < entry.healed else entry.origin))
        at += len(table[id])
    return found


def _run_origins(run: Sequence[Written], follows: bool, vocabulary: Vocabulary) -> list[tuple[int, Origin]]:
    """Tokens of neighbouring literal parts. A token that spans two parts belongs to the one its first byte is in."""
    if not run:
        return []
    ids = vocabulary.encode([w.part for w in run], after="text" if follows else "start")
    left = list(run)
    at = 0
    found: list[tuple[int, Origin]] = []
    for id in ids:
        if id in vocabulary.control_ids:
            while not isinstance(left[0].part, Control):
                left.pop(0)
            found.append((id, left.pop(0).origin))
            at = 0
            continue
        while len(left) > 1 and isinstance(left[0].part, str) and at >= len(left[0].part.encode("utf-8", "replace")):
            if isinstance(left[1].part, Control):
                break
            at -= len(left[0].part.encode("utf-8", "replace"))
            left.pop(0)
        found.append((id, left[0].origin))
        at += len(vocabulary.token_bytes[id])
    return found

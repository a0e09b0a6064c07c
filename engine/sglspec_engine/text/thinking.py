"""What a model thinks before it answers: the tags around it, its text, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence

from sglspec_engine.text.stream import TextStream
from sglspec_engine.text.tokens import Part, Vocabulary
from sglspec_engine.types import EngineError, Reasoning


class Thinking:
    """One generation's thinking. It has three phases: inside the tags, in the white space behind them, over.

    The tags are found in the bytes of the tokens, so it does not matter how the model spells them; a tag that is a
    control token without bytes is found by its id.

    Attributes:
        opening: ids that open it; none where the prompt ends with the opening tag.
        closing: ids that end it where the model does not, with the closing tag last.
        gap: ids between the closing tag and the answer.
        inside, over: the phase.
        length: tokens between the tags, so far.
    """

    def __init__(self, reasoning: Reasoning, vocabulary: Vocabulary, prompt: Sequence[int]) -> None:
        """Raises EngineError("unsupported") for empty tags."""
        if not reasoning.open or not reasoning.close:
            raise EngineError("unsupported", "a tag around the thinking is empty")
        opened = _ends_with(prompt, reasoning.open, vocabulary)
        close = vocabulary.control(reasoning.close)
        self.opening: list[int] = [] if opened else _encode(vocabulary, reasoning.open, reasoning.lead)
        self.closing: list[int] = _encode(vocabulary, reasoning.tail, reasoning.close)
        self.gap: list[int] = _encode(vocabulary, reasoning.gap)
        self.inside, self.over = True, False
        self.length = 0
        self._budget = reasoning.budget
        self._vocabulary = vocabulary
        self._left = len(self.opening)
        self._close_id = close.id if close is not None else -1
        self._close = reasoning.close.encode()
        self._pushed = 0
        self._stream = TextStream([self._close])
        self._edges = _Edges()

    @property
    def text(self) -> str:
        """What it says so far, without white space at its ends."""
        return self._edges.text

    @property
    def used_up(self) -> bool:
        """Whether it has to end now."""
        return self.inside and not self._left and self._budget is not None and self.length >= self._budget

    def push(self, id: int) -> str:
        """Take a token inside the tags; returns the text that is new."""
        if self._left:
            self._left -= 1
            return ""
        data = self._vocabulary.token_bytes[id]
        self._pushed += len(data)
        text = self._edges.push(self._stream.push(data))
        if self._stream.matched is not None or id == self._close_id:
            self.inside = False
            return text
        self.length += 1
        return text

    def cut(self, id: int) -> list[int]:
        """The last token, which ended the thinking, without what it holds behind the tag; [] if there is no such thing.
        Whatever the model begins its answer with is then chosen as an answer."""
        data = self._vocabulary.token_bytes[id]
        surplus = self._pushed - self._stream.surviving_bytes - len(self._close)
        if self._stream.matched is None or surplus <= 0:
            return []
        try:
            return _encode(self._vocabulary, data[: len(data) - surplus].decode())
        except UnicodeDecodeError:  # the tag begins in the middle of a character: the token stays whole
            return []

    def finish(self) -> str:
        """The end of the generation: text that was held back, if the thinking did not end."""
        return self._edges.push(self._stream.finish())


class _Edges:
    """A stream of text without white space at its ends."""

    def __init__(self) -> None:
        self.text: str = ""
        self._held: str = ""

    def push(self, text: str) -> str:
        text = self._held + text if self.text else text.lstrip()
        shown = text.rstrip()
        self._held = text[len(shown) :]
        self.text += shown
        return shown


def _encode(vocabulary: Vocabulary, *texts: str) -> list[int]:
    """Ids of texts; one that is an added token as a whole is that token."""
    parts: list[Part] = [vocabulary.control(text) or text for text in texts]
    return vocabulary.encode(parts, after="text")


def _ends_with(prompt: Sequence[int], tag: str, vocabulary: Vocabulary) -> bool:
    """Whether a prompt ends with the tag, but for white space."""
    last = prompt[-len(tag.encode()) - 16 :]
    control = vocabulary.control_ids
    data = b"".join(vocabulary.describe(i).encode() if i in control else vocabulary.token_bytes[i] for i in last)
    return data.decode("utf-8", "ignore").rstrip().endswith(tag)

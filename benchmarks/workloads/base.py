"""What a workload is: token ids that every system gets alike, and how this engine is asked."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

from sglspec_engine.engine import Engine
from sglspec_engine.session import Session
from sglspec_engine.text.tokens import Vocabulary
from sglspec_engine.types import GenRequest, TextSegment

Ids = tuple[int, ...]
Unit = Literal["tok/s", "s"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a system returned. outputs: new tokens per stream, or one pick per row. facts: what else is worth saying."""

    outputs: tuple[Ids, ...]
    facts: dict[str, float | int] = field(default_factory=dict[str, float | int])


class Case(ABC):
    """One variant of a workload. Variants differ from their first token, so that nothing can be cached from another.

    tokens: what the rate counts, 0 where only seconds are of interest.
    """

    tokens: int = 0

    @abstractmethod
    async def ours(self, engine: Engine) -> Answer:
        """Run the case through the engine's sessions."""


@dataclass(frozen=True)
class Generation(Case):
    """Greedy continuations of fixed length; the end token does not end them.

    texts, prompts: the contexts as text and as ids. new: tokens to generate for each. shared: leading tokens that all
    prompts have in common.
    """

    texts: tuple[str, ...]
    prompts: tuple[Ids, ...]
    new: int
    shared: int = 0
    tokens: int = 0

    async def ours(self, engine: Engine) -> Answer:
        """All at once, nothing said about what they share."""
        sessions = [engine.open() for _ in self.texts]
        try:
            for session, text in zip(sessions, self.texts, strict=True):
                await session.extend([TextSegment(text)])
            return await self.generate(sessions)
        finally:
            for session in sessions:
                await session.close()

    async def generate(self, sessions: list[Session]) -> Answer:
        """Continue every session, which holds its prompt."""
        for session, prompt in zip(sessions, self.prompts, strict=True):
            if tuple(token.id for token in session.trace()) != prompt:
                raise AssertionError("the engine reads other tokens than its peers")
        return Answer(tuple(await asyncio.gather(*(_continue(session, self.new) for session in sessions))))


async def _continue(session: Session, new: int) -> Ids:
    found: list[int] = []
    async for delta in session.generate(GenRequest(max_tokens=new, ignore_eos=True)):
        found += [token.id for token in delta.tokens]
    return tuple(found)


class Workload(ABC):
    """name: for the command line. title: what it does. unit: how results are shown."""

    name: str
    title: str
    unit: Unit = "s"

    @abstractmethod
    def case(self, texts: Texts, variant: int, quick: bool) -> Case:
        """The `variant`-th variant; `quick` a smaller one."""


NAMES = ("Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Karin", "Lukas")
_PLACES = ("the harbour", "the old library", "a mountain village", "the train station", "the market square")
VERBS = ("repaired", "painted", "described", "measured", "carried", "cleaned", "collected", "studied", "opened")
_THINGS = ("a wooden boat", "three red lamps", "the broken clock", "a box of letters", "two heavy baskets")
_TIMES = ("in the early morning", "after the long winter", "before the storm came", "late on Tuesday")


class Texts:
    """English of known length in the model's tokens, the same in every run."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def ids(self, text: str) -> Ids:
        """The tokens of a context that is `text`."""
        return tuple(self._vocabulary.encode([*self._vocabulary.start_parts(), text]))

    def exactly(self, count: int, start: str) -> str:
        """A text of `count` tokens that begins with `start`."""
        source = random.Random(start)
        text = start
        while len(self.ids(text)) < count + 8:
            text += " " + sentence(source)
        ids = self.ids(text)[len(self._vocabulary.start_parts()) :]
        spare = len(self._vocabulary.start_parts())
        for cut in range(count - spare, 0, -1):
            # A cut may be read as other tokens than before; filler makes up for those that are missing.
            head = self._vocabulary.decode_bytes(ids[:cut]).decode("utf-8", "ignore")
            found = head + " a" * (count - spare - cut)
            if len(self.ids(found)) == count:
                return found
        raise AssertionError(f"no text of {count} tokens")


def sentence(source: random.Random) -> str:
    """One plain sentence."""
    who, did, what = source.choice(NAMES), source.choice(VERBS), source.choice(_THINGS)
    return f"{who} {did} {what} at {source.choice(_PLACES)} {source.choice(_TIMES)}."


def common(prompts: tuple[Ids, ...]) -> int:
    """Leading tokens that all prompts have in common, one less than the shortest at most."""
    shortest = min(len(prompt) for prompt in prompts) - 1
    return next((i for i in range(shortest) if len({prompt[i] for prompt in prompts}) > 1), shortest)

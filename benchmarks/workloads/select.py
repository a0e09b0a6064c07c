"""Choosing among continuations by their log-probability."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.workloads.base import NAMES, VERBS, Answer, Case, Ids, Texts, Workload, sentence
from sglspec_engine.engine import Engine
from sglspec_engine.types import GenRequest, Scores, TextSegment


@dataclass(frozen=True)
class Choosing(Case):
    """Rows, each with its context and choices as text and as ids; `shared` leading tokens of all contexts agree.

    A choice is scored by the mean log-probability of its tokens. warm: the contexts are computed before the clock
    starts.
    """

    texts: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    contexts: tuple[Ids, ...]
    choice_ids: tuple[tuple[Ids, ...], ...]
    shared: int
    warm: bool = False

    async def read(self, engine: Engine) -> None:
        """Compute the contexts, for the prefix cache."""
        for text in self.texts:
            session = engine.open()
            await session.extend([TextSegment(text)])
            async for _ in session.generate(GenRequest(max_tokens=0)):
                pass
            await session.close()

    async def ours(self, engine: Engine) -> Answer:
        """All rows at once."""
        pairs = zip(self.texts, self.choices, strict=True)
        found = await asyncio.gather(*(_score(engine, text, choices) for text, choices in pairs))
        return Answer(tuple((scores.index,) for scores in found))

    async def one_by_one(self, engine: Engine) -> Answer:
        """Each choice as a request of its own, after the one before; the prefix cache stays on."""
        picks: list[Ids] = []
        for text, choices in zip(self.texts, self.choices, strict=True):
            means = [(await _score(engine, text, (choice,))).scores[0] for choice in choices]
            picks.append((means.index(max(means)),))
        return Answer(tuple(picks))


async def _score(engine: Engine, text: str, choices: tuple[str, ...]) -> Scores:
    session = engine.open()
    try:
        await session.extend([TextSegment(text)])
        return await session.score(choices, "length_normalized")
    finally:
        await session.close()


class SelectRows(Workload):
    """40 rows with 4 choices each, under one few-shot prefix."""

    name = "select40x4"
    title = "select among 4 choices for 40 rows, 600-token shared prefix"

    def case(self, texts: Texts, variant: int, quick: bool) -> Choosing:
        """See `Workload.case`."""
        length, rows = (200, 6) if quick else (600, 40)
        prefix = texts.exactly(length, f"{variant}. Choose the sentence that continues the text.")
        source = random.Random(variant)
        contexts: list[str] = []
        choices: list[tuple[str, ...]] = []
        for row in range(rows):
            contexts.append(f"{prefix}\n\nText {row}: {sentence(source)} {sentence(source)}\nContinuation:")
            choices.append(tuple(f" {sentence(source)}" for _ in range(4)))
        return _choosing(texts, contexts, choices, length)


class SelectMany(Workload):
    """One row with many short choices, some of which begin alike."""

    name = "select50"
    title = "select among 50 choices after 600 tokens"

    def case(self, texts: Texts, variant: int, quick: bool) -> Choosing:
        """See `Workload.case`."""
        length, count = (200, 12) if quick else (600, 50)
        context = texts.exactly(length, f"{variant}. Who did what, and where?")
        pairs = [f" {name} {verb} it" for name in NAMES for verb in VERBS]
        choices = random.Random(variant).sample(pairs, count)
        return _choosing(texts, [context], [tuple(choices)], length - 1)


class SelectKnown(SelectMany):
    """What the choices cost beyond their context."""

    name = "select50known"
    title = "select among 50 choices after 600 tokens that are computed already"

    def case(self, texts: Texts, variant: int, quick: bool) -> Choosing:
        """See `Workload.case`."""
        return replace(super().case(texts, 1000 + variant, quick), warm=True)


def _choosing(texts: Texts, contexts: Sequence[str], choices: Sequence[tuple[str, ...]], shared: int) -> Choosing:
    ids = tuple(map(texts.ids, contexts))
    endings = tuple(
        tuple(_rest(texts.ids(context + choice), own) for choice in row)
        for context, own, row in zip(contexts, ids, choices, strict=True)
    )
    return Choosing(tuple(contexts), tuple(choices), ids, endings, shared)


def _rest(whole: Ids, context: Ids) -> Ids:
    if whole[: len(context)] != context:
        raise AssertionError("a choice melts into its context: peers would score other tokens")
    return whole[len(context) :]

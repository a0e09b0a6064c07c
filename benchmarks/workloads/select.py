"""Choosing among continuations by their log-probability."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from benchmarks.workloads.base import Answer, Case, Ids, Texts, Workload, sentence
from sglspec_engine.engine import Engine
from sglspec_engine.types import TextSegment


@dataclass(frozen=True)
class Choosing(Case):
    """Rows, each with its context and choices as text and as ids; `shared` leading tokens of all contexts agree.

    A choice is scored by the mean log-probability of its tokens.
    """

    texts: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    contexts: tuple[Ids, ...]
    choice_ids: tuple[tuple[Ids, ...], ...]
    shared: int

    async def ours(self, engine: Engine) -> Answer:
        """All rows at once."""
        pairs = zip(self.texts, self.choices, strict=True)
        picks = await asyncio.gather(*(self._one(engine, text, choices) for text, choices in pairs))
        return Answer(tuple((pick,) for pick in picks))

    async def _one(self, engine: Engine, text: str, choices: tuple[str, ...]) -> int:
        session = engine.open()
        try:
            await session.extend([TextSegment(text)])
            return (await session.score(choices, "length_normalized")).index
        finally:
            await session.close()


class Select(Workload):
    """40 rows with 4 choices each, under one few-shot prefix."""

    name = "select"
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
        ids = tuple(map(texts.ids, contexts))
        endings = tuple(
            tuple(_rest(texts.ids(context + choice), own) for choice in row)
            for context, own, row in zip(contexts, ids, choices, strict=True)
        )
        return Choosing(tuple(contexts), tuple(choices), ids, endings, length)


def _rest(whole: Ids, context: Ids) -> Ids:
    if whole[: len(context)] != context:
        raise AssertionError("a choice melts into its context: peers would score other tokens")
    return whole[len(context) :]

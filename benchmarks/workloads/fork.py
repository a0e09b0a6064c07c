"""Branches of one context."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.workloads.base import Answer, Generation, Texts, Workload, common
from sglspec_engine.engine import Engine
from sglspec_engine.types import TextSegment


@dataclass(frozen=True)
class _Fork(Generation):
    """prefix: what is written before the fork; each branch adds the rest of its text."""

    prefix: str = ""

    async def ours(self, engine: Engine) -> Answer:
        """Write the prefix, fork, let every branch go on."""
        parent = engine.open()
        await parent.extend([TextSegment(self.prefix)])
        branches = await parent.fork(len(self.texts))
        try:
            for branch, text in zip(branches, self.texts, strict=True):
                await branch.extend([TextSegment(text[len(self.prefix) :])])
            return await self.generate(branches)
        finally:
            for session in (*branches, parent):
                await session.close()


class Fork(Workload):
    """What a fork brings over as many separate calls."""

    name = "fork8"
    title = "fork of 8 over a 1,000-token prefix, 64 new tokens each"

    def case(self, texts: Texts, variant: int, quick: bool) -> Generation:
        """See `Workload.case`."""
        prefix = texts.exactly(300 if quick else 1000, f"{variant}. The whole story so far.")
        found = tuple(f"{prefix}\n\nEnding number {i}:" for i in range(8))
        prompts = tuple(map(texts.ids, found))
        new = 8 if quick else 64
        return _Fork(found, prompts, new, common(prompts), new * 8, prefix)

"""The beginning that all runs of a program have in common, computed ahead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglspec.analysis.plan.beginning import Beginning
from sglspec.analysis.program import Program
from sglspec.backends.base import Backend


async def warm(program: Program, bound: Mapping[str, Any], backend: Backend) -> int:
    """Have the backend compute the text before the first input that is not bound, and before the first step that is
    no text. Gives the number of tokens that were computed."""
    beginning = Beginning(program, bound)
    segments = list(beginning.of(program.spec.steps))
    if not segments:
        return 0
    session = await backend.open(program.name)
    try:
        await session.extend(segments)
        # A fork computes what it shares.
        for child in await session.fork(1):
            await child.close()
        return session.usage.computed_tokens
    finally:
        await session.close()

"""Runs the command line with a slow backend in place of a model: `python runner.py MODE sglspec-arguments…`.

`slow`: the scripted backend, but concurrent, and every reply comes one character at a time; `fault`: a backend that
breaks; `stuck`: one whose generation ignores being cancelled; `loading`: one that takes long to open.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from sglspec import backends
from sglspec.backends.base import (
    Capabilities,
    Concat,
    Delta,
    GenRequest,
    Method,
    Scores,
    Segment,
    Session,
    TraceToken,
    Usage,
)
from sglspec.backends.scripted import ScriptedBackend, read_replies
from sglspec.cli import main

MODE = sys.argv[1]


class SlowBackend(ScriptedBackend):
    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(grammar=False, concurrent=True)

    async def open(self, label: str = "", caller: Session | None = None) -> Session:
        return SlowSession(await super().open(label))


class SlowSession:
    """A scripted session whose replies come one character each 50 ms, except those that begin with "fast"."""

    def __init__(self, inner: Session) -> None:
        self.inner = inner

    async def generate(self, request: GenRequest) -> AsyncIterator[Delta]:
        if MODE == "fault":
            raise RuntimeError("something that nobody expected")
        async for delta in self.inner.generate(request):
            for character in delta.text:
                try:
                    await asyncio.sleep(0 if delta.text.startswith("fast") else 0.05)
                except asyncio.CancelledError:
                    if MODE != "stuck":
                        raise
                yield Delta(character)
            yield Delta("", finish=delta.finish)

    @property
    def usage(self) -> Usage:
        return self.inner.usage

    async def extend(self, segments: Sequence[Segment]) -> None:
        await self.inner.extend(segments)

    async def score(self, choices: Sequence[str], method: Method, label: str = "") -> Scores:
        return await self.inner.score(choices, method, label)

    async def fork(self, n: int) -> list[Session]:
        return [SlowSession(session) for session in await self.inner.fork(n)]

    async def concat(self, branches: Sequence[Session], mode: Concat) -> None:
        await self.inner.concat([branch.inner for branch in branches if isinstance(branch, SlowSession)], mode)

    def text(self) -> str:
        return self.inner.text()

    def trace(self) -> list[TraceToken]:
        return self.inner.trace()

    def retire(self) -> None:
        self.inner.retire()

    async def close(self) -> None:
        await self.inner.close()


async def open_slow(reference: str | None = None, model: str | None = None, engine: object = None) -> SlowBackend:
    assert reference is not None
    if MODE == "loading":
        print("loading", file=sys.stderr, flush=True)
        await asyncio.sleep(60)
    return SlowBackend(read_replies(Path(reference.partition(":")[2])))


backends.open_backend = open_slow
sys.exit(main(sys.argv[2:]))

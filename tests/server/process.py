"""`sglspec serve` in a process, with short times: `python -m tests.server.process MODE serve-arguments…`.

`stuck`: a model that never says anything; `slow`: the scripted one, a character each 20 ms; `quick`: the scripted one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from sglspec import backends
from sglspec.backends.base import Delta, GenRequest, Session
from sglspec.backends.scripted import Script, ScriptedBackend, ScriptedSession, read_replies
from sglspec.cli import main
from sglspec.server import batches
from sglspec.server.runs import manager

MODE = sys.argv[1]
manager.RENEW_SECONDS = 0.2
manager.LEASE_SECONDS = 3.0
batches.LOOK_SECONDS = 0.1


class PacedBackend(ScriptedBackend):
    def __init__(self, replies: Mapping[str, Any]) -> None:
        super().__init__(replies)
        self._said = replies

    async def open(self, label: str = "", caller: Session | None = None) -> Session:
        return PacedSession(Script(self._said))


class PacedSession(ScriptedSession):
    async def generate(self, request: GenRequest) -> AsyncIterator[Delta]:
        async for delta in super().generate(request):
            for character in delta.text:
                await asyncio.sleep(0.02 if MODE == "slow" else 3600)
                yield Delta(character)
            yield Delta("", finish=delta.finish)


async def opened(reference: str | None = None, model: str | None = None, engine: object = None) -> ScriptedBackend:
    assert reference is not None
    replies = read_replies(Path(reference.partition(":")[2]))
    return ScriptedBackend(replies) if MODE == "quick" else PacedBackend(replies)


backends.open_backend = opened
sys.exit(main(["serve", *sys.argv[2:]]))

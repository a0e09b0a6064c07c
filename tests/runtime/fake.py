"""A backend with concurrent branches whose generations the test steers, and helpers to run a text as a program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from sglspec.analysis import load_program
from sglspec.analysis.program import Program
from sglspec.backends.base import (
    Capabilities,
    Concat,
    Delta,
    EngineError,
    Finish,
    GenRequest,
    Method,
    Scores,
    Session,
    Token,
    TraceToken,
    Usage,
)
from sglspec.backends.scripted import Script, ScriptedBackend, ScriptedSession, script_of
from sglspec.diagnostics import Report, SpecError
from sglspec.document.read import source_from_text
from sglspec.runtime.result import Result
from sglspec.runtime.run import Run, RunOptions, start
from sglspec.tools import Tools


def program(text: str, name: str = "test.yaml", tools: Tools | None = None) -> Program:
    """A checked program; SpecError when it does not check."""
    source = source_from_text(text, name)
    report = Report(source.name)
    checked = load_program(source, report, tools)
    report.raise_errors()
    assert checked is not None
    return checked


def steps(text: str, **top: str) -> Program:
    """A program from its steps alone."""
    head = "sglspec: v1\n" + "".join(f"{key}: {value}\n" for key, value in top.items())
    body = "\n".join("  " + line for line in text.strip("\n").split("\n"))
    return program(f"{head}steps:\n{body}\n")


async def run_scripted(
    checked: Program,
    inputs: Mapping[str, Any] | None = None,
    replies: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    return await start(checked, inputs or {}, ScriptedBackend(replies or {}), RunOptions(**options)).wait()


class FakeBackend(ScriptedBackend):
    """Concurrent. Each generation of key K waits for `gate(K)` (open unless closed by the test) and yields its reply
    a character at a time. A reply that is an exception is raised."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        super().__init__(replies)
        self.gates: dict[str, asyncio.Event] = {}
        self.order: list[str] = []
        self.requests: list[GenRequest] = []
        self.open_sessions = 0

    @property
    def model_name(self) -> str:
        return "fake"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    def close_gate(self, key: str) -> asyncio.Event:
        return self.gates.setdefault(key, asyncio.Event())

    async def until(self, moment: str) -> None:
        """Wait until "start KEY" or "end KEY" happened; fails after a while instead of hanging."""
        for _ in range(10_000):
            if moment in self.order:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"{moment!r} never happened: {self.order}")

    async def open(self, label: str = "", caller: Session | None = None) -> Session:
        return FakeSession(self, script_of(self.replies, label, caller))


class FakeSession(ScriptedSession):
    def __init__(self, backend: FakeBackend, script: Script, text: str = "") -> None:
        super().__init__(script, text)
        self._fake = backend
        self._closed = False
        self._usage = Usage()
        backend.open_sessions += 1

    @property
    def usage(self) -> Usage:
        return self._usage

    async def generate(self, request: GenRequest) -> AsyncIterator[Delta]:
        self._fake.requests.append(request)
        self._fake.order.append(f"start {request.label}")
        gate = self._fake.gates.get(request.label)
        if gate is not None:
            await gate.wait()
        reply = self.script.take(request.label, request.candidate)
        if isinstance(reply, Exception):
            raise reply
        for char in reply[: request.max_tokens]:
            await asyncio.sleep(0)
            self._text += char
            self._usage += Usage(generated_tokens=1)
            yield Delta(char, (Token(0, char, 0.0),))
        self._fake.order.append(f"end {request.label}")
        cut = len(reply) > request.max_tokens
        text = reply[: request.max_tokens]
        usage = Usage(generated_tokens=len(text))
        yield Delta("", finish=Finish("length" if cut else "end", text, usage=usage))

    async def score(self, choices: Sequence[str], method: Method, label: str = "") -> Scores:
        await asyncio.sleep(0)
        return await super().score(choices, method, label)

    async def fork(self, n: int) -> list[Session]:
        return [FakeSession(self._fake, self.script, self._text) for _ in range(n)]

    async def concat(self, branches: Sequence[Session], mode: Concat) -> None:
        await super().concat(branches, mode)

    def trace(self) -> list[TraceToken]:
        return []

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._fake.open_sessions -= 1


__all__ = ["EngineError", "FakeBackend", "Run", "SpecError", "program", "run_scripted", "start", "steps"]

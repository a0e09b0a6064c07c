"""Many streams of one server at once, and more requests than it takes.

Usage: python -m tests.soak.server [--streams 200] [--seconds 120] [--rate 10]

A server in a process of its own runs a model that says a word so many times a second. Every stream is read to its end:
numbers without gaps and one terminal event, or `Fault` is raised. While all run, three times as many requests as there
are places are sent; each has to be refused. Prints what was measured, as JSON: gaps between the frames of a stream, how
long a refusal took, the server's memory near the start and at the end (Linux).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglspec.backends.base import Backend, Delta, Finish, GenRequest, Session
from sglspec.backends.scripted import Script, ScriptedBackend, ScriptedSession

SPEC = "sglspec: v1\nlimits: {seconds: 3600}\nsteps:\n  - gen: story\n    max_tokens: 100000\n"


class Fault(AssertionError):
    """Something that must not happen."""


class Paced(ScriptedBackend):
    """Words at a steady rate, for some seconds."""

    def __init__(self, seconds: float, rate: float) -> None:
        super().__init__({})
        self.words, self.pause = int(seconds * rate), 1 / rate

    async def open(self, label: str = "", caller: Session | None = None) -> Session:
        return PacedSession(self)


class PacedSession(ScriptedSession):
    def __init__(self, paced: Paced) -> None:
        super().__init__(Script({}))
        self._paced = paced

    async def generate(self, request: GenRequest) -> AsyncIterator[Delta]:
        began = asyncio.get_running_loop().time()
        for word in range(self._paced.words):
            await asyncio.sleep(max(began + (word + 1) * self._paced.pause - asyncio.get_running_loop().time(), 0))
            yield Delta(f"word{word} ")
        yield Delta("", finish=Finish("length", "".join(f"word{word} " for word in range(self._paced.words))))


def serve(streams: int, seconds: float, rate: float) -> None:
    """The other process: an application over the paced model; its port goes to standard output."""
    from sglspec.server.application import create_app
    from sglspec.server.drain import Server
    from sglspec.server.listen import bind
    from sglspec.server.service import Limits

    async def opener(reference: str | None, model: str | None) -> Backend:
        return Paced(seconds, rate)

    app = create_app(opener=opener, limits=Limits(runs=streams, waiting=0))
    with bind("127.0.0.1", 0) as listener:
        print(listener.getsockname()[1], flush=True)
        Server(app).run(sockets=[listener])


@dataclass(slots=True)
class Measured:
    gaps: list[float] = field(default_factory=list)
    refusals: list[float] = field(default_factory=list)
    events: int = 0
    finished: int = 0
    memory: list[int] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def request(accept: str) -> bytes:
    body = json.dumps({"spec": SPEC}).encode()
    head = f"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def follow(port: int, measured: Measured, begun: asyncio.Event) -> None:
    """One stream from its first to its last event."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("text/event-stream"))
    seq, last, kind, text, data = -1, 0.0, "", "", b""
    while line := await reader.readline():
        if line.startswith(b"HTTP/1.1 ") and b" 200 " not in line:
            raise Fault(f"a stream was refused: {line!r}")
        if line.startswith(b"id: "):
            if int(line[4:]) != seq + 1:
                raise Fault(f"event {int(line[4:])} came after {seq}")
            seq += 1
            measured.events += 1
        elif line.startswith(b"event: "):
            kind = line[7:].decode().strip()
        elif line.startswith(b"data: ") and kind == "delta":
            now = time.monotonic()
            if last:
                measured.gaps.append(now - last)
            last = now
            text += json.loads(line[6:])["text"]
            begun.set()
        elif line.startswith(b"data: "):
            data = line
    if kind != "run.succeeded":
        raise Fault(f"a stream ended with {kind!r}: {data[:500]!r}")
    if text.split() != [f"word{n}" for n in range(len(text.split()))]:
        raise Fault("words are missing or doubled")
    measured.finished += 1
    writer.close()


async def refused(port: int, measured: Measured) -> None:
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("application/json"))
    answer = await reader.read()
    measured.refusals.append(time.monotonic() - began)
    if b" 503 " not in answer.split(b"\r\n")[0] or b"retry-after" not in answer.lower():
        raise Fault(f"a request beyond the server's places was not refused: {answer[:100]!r}")
    writer.close()


def processor(pid: int) -> float:
    """Seconds of a processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def overload(port: int, measured: Measured, count: int, seconds: float) -> None:
    """Requests at an even rate while every place is taken."""
    jobs: list[asyncio.Task[None]] = []
    for _ in range(count):
        jobs.append(asyncio.create_task(refused(port, measured)))
        await asyncio.sleep(seconds / count)
    await asyncio.gather(*jobs)


async def watch(pid: int, measured: Measured) -> None:
    while (size := resident(pid)) is not None:
        measured.memory.append(size)
        measured.processor.append(processor(pid))
        await asyncio.sleep(1)


def resident(pid: int) -> int | None:
    """Bytes of memory of a process; None where that is not told."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


async def soak(streams: int, seconds: float, rate: float) -> dict[str, Any]:
    """Run it all; what was measured."""
    words = (sys.executable, "-m", "tests.soak.server", "--serve")
    options = ("--streams", str(streams), "--seconds", str(seconds), "--rate", str(rate))
    process = await asyncio.create_subprocess_exec(*words, *options, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    measured = Measured()
    try:
        port = int(await process.stdout.readline())
        watching = asyncio.create_task(watch(process.pid, measured))
        async with asyncio.TaskGroup() as group:
            begun = [asyncio.Event() for _ in range(streams)]
            for one in begun:
                group.create_task(follow(port, measured, one))
            for one in begun:
                await one.wait()
            warm = len(measured.memory)
            group.create_task(overload(port, measured, 3 * streams, seconds / 2))
        watching.cancel()
    finally:
        process.terminate()
        await process.wait()
    gaps, refusals = sorted(measured.gaps), sorted(measured.refusals)
    return {
        "streams": measured.finished,
        "events": measured.events,
        "gap_ms": {name: round(gaps[int(part * (len(gaps) - 1))] * 1000) for name, part in PARTS.items()},
        "refused": len(refusals),
        "refusal_ms": {name: round(refusals[int(part * (len(refusals) - 1))] * 1000) for name, part in PARTS.items()},
        "memory_mb": {
            "warm": round(max(measured.memory[warm : warm + 5], default=0) / 2**20),
            "half": round((measured.memory[len(measured.memory) // 2] if measured.memory else 0) / 2**20),
            "end": round((measured.memory[-1] if measured.memory else 0) / 2**20),
        },
        "processors": round(
            (measured.processor[-1] - measured.processor[warm]) / (len(measured.processor) - 1 - warm), 2
        )
        if len(measured.processor) > warm + 1
        else None,
        "load": os.getloadavg()[0],
    }


PARTS = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rate", type=float, default=10)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.streams, given.seconds, given.rate)
        return
    print(json.dumps(asyncio.run(soak(given.streams, given.seconds, given.rate)), indent=1))


if __name__ == "__main__":
    main()

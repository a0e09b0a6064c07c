"""Programs run over HTTP beside the same programs run in this process: tokens per second of both, and the ratio.

Usage: python -m benchmarks.served [--model NAME] [--runs 32] [--tokens 64] [--rounds 3]

Each round runs as many programs at once in this process, then the same ones over HTTP against `sglspec serve` in a
process of its own: half of them as streams, half waiting for the result. The other side is idle meanwhile. Every
round has texts of its own, so neither side finds any but its own warm-up in its cache. Prints the rates of every round
and the ratio of the medians, which is at least 0.9 on a machine that does nothing else; below --limit the exit code
is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from sglspec.api import Model, Program, load

SPEC = """\
sglspec: v1
name: served
inputs: {number: string}
outputs: [answer]
steps:
  - system: You are a short-spoken clerk.
  - user: "Request {{ number }}: tell me about the weather in town {{ number }}."
  - gen: answer
    max_tokens: TOKENS
    ignore_eos: true
"""


@asynccontextmanager
async def serving(document: Path, model: str, runs: int) -> AsyncIterator[str]:
    """The address of a server in a process of its own."""
    command = (sys.executable, "-m", "sglspec", "serve", str(document), "--port", "0", "--model", model)
    process = await asyncio.create_subprocess_exec(
        *command, "--max-runs", str(runs), stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    assert process.stderr is not None
    try:
        while line := (await process.stderr.readline()).decode():
            if "listening on " in line:
                break
        else:
            raise SystemExit("the server did not start")
        drain = asyncio.create_task(_drained(process.stderr))
        yield line.split("listening on ")[1].strip()
        drain.cancel()
    finally:
        process.terminate()
        await process.wait()


async def _drained(reader: asyncio.StreamReader) -> None:
    while await reader.readline():
        pass


async def over_http(client: httpx.AsyncClient, number: str, stream: bool) -> int:
    """Tokens that the server generated in one run."""
    headers = {"Accept": "text/event-stream"} if stream else {}
    body = {"inputs": {"number": number}}
    async with client.stream("POST", "/v1/programs/served/runs", json=body, headers=headers) as answer:
        text = (await answer.aread()).decode()
    if answer.status_code != 200:
        raise SystemExit(f"{answer.status_code}: {text[:300]}")
    if stream:
        text = text.rstrip().rpartition("data: ")[2]
    return json.loads(text)["usage"]["generated_tokens"]


async def in_process(program: Program, model: Model, number: str) -> int:
    """Tokens that were generated in one run."""
    return (await program.arun({"number": number}, on=model)).usage.generated_tokens


async def rate(one: Callable[[int], Awaitable[int]], runs: int) -> float:
    """Tokens per second of so many runs at once."""
    began = time.perf_counter()
    tokens = await asyncio.gather(*(one(n) for n in range(runs)))
    return sum(tokens) / (time.perf_counter() - began)


async def measure(model: str, runs: int, tokens: int, rounds: int) -> float:
    """Prints the rates; the ratio of their medians."""
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "served.sglspec.yaml"
        document.write_text(SPEC.replace("TOKENS", str(tokens)), "utf-8")
        program = load(document)
        async with (
            Model(model) as inside,
            serving(document, model, runs) as address,
            httpx.AsyncClient(base_url=address, timeout=600, limits=httpx.Limits(max_connections=runs)) as client,
        ):
            here: list[float] = []
            there: list[float] = []
            for number in range(rounds + 1):  # the first one warms both up
                here.append(await rate(lambda n, r=number: in_process(program, inside, f"{r}/{n}"), runs))
                there.append(await rate(lambda n, r=number: over_http(client, f"{r}/{n}", n % 2 == 0), runs))
                note = "" if number else " (warm-up)"
                print(f"in this process {here[-1]:6.0f} tok/s   over HTTP {there[-1]:6.0f} tok/s{note}", flush=True)
    ratio = statistics.median(there[1:]) / statistics.median(here[1:])
    print(f"{runs} runs at once: over HTTP {ratio:.2f} of the rate in one process")
    return ratio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=0.9)
    options = parser.parse_args()
    return int(asyncio.run(measure(options.model, options.runs, options.tokens, options.rounds)) < options.limit)


if __name__ == "__main__":
    sys.exit(main())

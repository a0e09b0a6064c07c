"""Programs on a small local engine: what the interpreter tells it, and what happens where memory ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sglspec.backends.local import LocalBackend, open_local
from sglspec.runtime.result import Result
from sglspec.runtime.run import RunOptions, execute
from tests.runtime.fake import program

BRANCHES = """
sglspec: v1
inputs:
  digits: integer
outputs: [tips, best, code]
steps:
  - "Facts about some things, each of them short. "
  - fork: t
    in: [sun, rain, wind]
    do:
      - "{{ t }}: "
      - gen: word
        regex: "[a-z]{3,9}"
        temperature: 0.8
      - " and "
      - gen: tips
        max_tokens: 60
        ignore_eos: true
        temperature: 0.8
  - "Best:"
  - gen: best
    regex: "(one|two|three)"
  - gen: code
    regex: "[0-9]{{ '{' }}{{ digits }}{{ '}' }}"
"""
LONG = """
sglspec: v1
steps:
  - "Long: "
  - gen: x
    max_tokens: 400
    ignore_eos: true
"""
SHORT = """
sglspec: v1
steps:
  - "Short: "
  - gen: x
    max_tokens: 20
    ignore_eos: true
"""


@asynccontextmanager
async def local(path: Path, **settings: Any) -> AsyncIterator[LocalBackend]:
    backend = await open_local(path, weights="fp32", threads=1, **settings)
    try:
        yield backend
        await backend.engine.check()
        assert backend.engine.pool.live_bytes == 0
    finally:
        await backend.close()


async def run(backend: LocalBackend, text: str, **inputs: Any) -> Result:
    return await execute(program(text), inputs, backend, RunOptions(seed=3))


async def test_hints_change_counters_and_nothing_else(tiny_llama: Path) -> None:
    results: list[Result] = []
    for hints in (True, False):
        async with local(tiny_llama, hints=hints, debug=True) as backend:
            result = await run(backend, BRANCHES, digits=4)
            assert result.status == "succeeded", result.error
            results.append(result)
            metrics = backend.engine.metrics
            # Each branch's last text is read by nobody, but for the tokens that the step before it had computed; the
            # first regex and the last one came with the program.
            assert metrics.dropped == (3 * 58 if hints else 0)
            assert (metrics.transient > 0) == hints
            assert metrics.grammars_ahead == (3 if hints else 0)
    assert results[0].outputs == results[1].outputs
    assert results[0].text == results[1].text
    assert results[0].usage == results[1].usage
    assert len(results[0].outputs["code"]) == 4


@pytest.mark.parametrize("admission", ["optimistic", "worst_case"])
async def test_a_program_that_exceeds_the_memory_ends_with_a_limit_and_others_go_on(
    tiny_llama: Path, admission: str
) -> None:
    async with local(tiny_llama) as backend:
        size = backend.engine.pool.layout.bytes_per_token
        expected = (await run(backend, SHORT)).outputs
    async with local(tiny_llama, max_kv_bytes=200 * size, admission=admission, debug=True) as backend:
        long, *short = await asyncio.gather(run(backend, LONG), *(run(backend, SHORT) for _ in range(4)))
        assert long.status == "failed"
        assert long.error is not None and long.error.code == "S712"
        assert [one.outputs for one in short] == [expected] * 4
        assert (await run(backend, SHORT)).outputs == expected
        assert backend.engine.metrics.failed == 1

"""Programs that want more than there is: of memory for keys and values, and of the model's context.

Such a program ends with a diagnostic at the step that could not be served, and whoever runs beside it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sglspec.analysis import load_program
from sglspec.analysis.program import Program
from sglspec.backends.local import LocalBackend, open_local
from sglspec.diagnostics import Report
from sglspec.document.read import source_from_text
from sglspec.runtime.result import Result
from sglspec.runtime.run import RunOptions, execute

BYTES_PER_TOKEN = 2 * 2 * 2 * 16 * 4
"""The tiny model's: layers × (keys and values) × heads × width × float32."""
SLOTS = 200
HEAD = "sglspec: v1\ninputs: {big: {type: string, default: ''}}\nsteps:\n"

TOO_LONG = """
- "Once upon a time"
- gen: x
  max_tokens: 400
  ignore_eos: true
"""
TOO_MUCH_TEXT = """
- "{{ big }}"
- gen: x
  max_tokens: 4
"""
WIDE = """
- "Once upon a time"
- fork: 64
  do:
    - " branch {{ loop.index }} says:"
    - gen: x
      max_tokens: 12
      ignore_eos: true
"""
WIDE_AND_LONG = WIDE.replace("max_tokens: 12", "max_tokens: 400")
BIG_PREFIX = """
- "{{ big }}"
- fork: 64
  do:
    - gen: x
      max_tokens: 2
"""
HUGE_CHOICE = """
- "The answer is"
- select: x
  from: [" yes", "{{ big }}"]
"""
GOOD = """
- "Tell me something"
- gen: x
  max_tokens: 20
  ignore_eos: true
"""


def program_of(steps: str) -> Program:
    report = Report("test.yaml")
    program = load_program(source_from_text(HEAD + steps.lstrip(), "test.yaml"), report)
    report.raise_errors()
    assert program is not None
    return program


@asynccontextmanager
async def small(path: Path, **options: Any) -> AsyncIterator[LocalBackend]:
    """An engine with memory for `SLOTS` tokens; in the end nobody holds any."""
    settings = {"max_kv_bytes": SLOTS * BYTES_PER_TOKEN, "weights": "fp32", "debug": True, **options}
    backend = await open_local(path, **settings)
    try:
        yield backend
        assert backend.engine.pool.live_bytes == 0
        await backend.engine.check()
    finally:
        await backend.close()


async def run(steps: str, backend: LocalBackend, **inputs: Any) -> Result:
    return await execute(program_of(steps), inputs, backend, RunOptions(seed=1))


def place(result: Result) -> tuple[str, int]:
    """Code and line, counted in the steps."""
    assert result.error is not None and result.error.range is not None
    return result.error.code, result.error.range.start.line - HEAD.count("\n")


LIMITED: list[tuple[str, str, int, dict[str, Any]]] = [
    ("a generation beyond the memory", TOO_LONG, 2, {}),
    ("text beyond the memory", TOO_MUCH_TEXT, 2, {"words": 150}),
    ("text beyond the context", TOO_MUCH_TEXT, 2, {"words": 600}),
    ("a prefix that no branch could start from", BIG_PREFIX, 2, {"words": 150}),
    ("a prefix beyond the context", BIG_PREFIX, 2, {"words": 600}),
    ("branches that are too long each", WIDE_AND_LONG, 5, {}),
    ("a choice beyond the memory", HUGE_CHOICE, 2, {"words": 150}),
    ("a choice beyond the context", HUGE_CHOICE, 2, {"words": 600}),
]


@pytest.mark.parametrize(("steps", "line", "size"), [case[1:] for case in LIMITED], ids=[case[0] for case in LIMITED])
async def test_it_ends_with_a_diagnostic_and_the_others_go_on(
    steps: str, line: int, size: dict[str, int], tiny_llama: Path
) -> None:
    big = " ".join(["word"] * size.get("words", 0))
    async with small(tiny_llama) as backend:
        alone = await run(GOOD, backend)
        results = await asyncio.gather(run(steps, backend, big=big), *(run(GOOD, backend) for _ in range(4)))
        assert results[0].status == "failed"
        assert place(results[0]) == ("S712", line)
        for other in results[1:]:
            assert (other.status, other.outputs) == ("succeeded", alone.outputs)


async def test_branches_and_choices_that_fit_only_one_after_the_other(tiny_llama: Path) -> None:
    """Together they take several times the memory there is. They wait for each other, and nothing fails."""
    choices = ", ".join(f'" number {i} of the many"' for i in range(40))
    many = f'- "The answer is"\n- select: x\n  from: [{choices}]\n'
    async with small(tiny_llama) as backend:
        tight = await asyncio.gather(*(run(steps, backend) for steps in (WIDE, many, GOOD)))
        assert backend.engine.pool.peak_bytes <= SLOTS * BYTES_PER_TOKEN
    async with small(tiny_llama, max_kv_bytes=20_000 * BYTES_PER_TOKEN) as backend:
        roomy = await asyncio.gather(*(run(steps, backend) for steps in (WIDE, many, GOOD)))
        assert backend.engine.pool.peak_bytes > 3 * SLOTS * BYTES_PER_TOKEN
    assert [one.status for one in tight] == ["succeeded"] * 3
    assert [one.outputs for one in tight] == [one.outputs for one in roomy]

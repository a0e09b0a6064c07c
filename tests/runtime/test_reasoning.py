"""`reasoning` in programs: what is shown, what is kept, and how it goes with the other options."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sglspec.backends.local import LocalBackend, open_local
from sglspec.backends.scripted import ScriptedBackend
from sglspec.runtime.run import RunOptions, start
from tests.engine import tiny
from tests.engine.templates import write
from tests.runtime.fake import run_scripted, steps


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalBackend]:
    """A tiny model; its thinking is nonsense, and bounded."""
    opened = await open_local(tiny.build(tmp_path_factory.mktemp("reasoning")), threads=1, weights="fp32")
    yield opened
    await opened.engine.check()
    await opened.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_thinking_has_events_of_its_own() -> None:
    program = steps("- {gen: a, reasoning: qwen3}\n- '!'")
    run = start(program, {}, ScriptedBackend({"a": "<think>hm</think>yes"}), RunOptions())
    result = await run.wait()
    assert result.text == "yes!"
    shown = [(e.type, e.data["text"]) for e in run.log.events if e.type in ("thinking", "delta")]
    assert shown == [("thinking", "hm"), ("delta", "yes")]
    assert next(e.data["name"] for e in run.log.events if e.type == "thinking") == "a"


async def test_scripted_candidates_and_attempts_are_answers() -> None:
    program = steps(
        "- {gen: a, reasoning: qwen3, n: 2, temperature: 1}\n"
        "- {gen: b, reasoning: qwen3, type: integer, temperature: 1, retry: {max: 2, until: b > 1}}\n"
        "- set: {thought: \"{{ meta(a) | map(attribute='reasoning') }}\"}"
    )
    replies = {"a": [["<think>p</think>x", "y"]], "b": ["<think>9</think>1", "<think>0</think>2"]}
    result = await run_scripted(program, {}, replies)
    assert result.outputs == {"a": ["x", "y"], "b": 2, "thought": ["p", ""]}


async def test_an_answer_that_breaks_its_constraint() -> None:
    program = steps("- {gen: a, reasoning: qwen3, type: integer}")
    result = await run_scripted(program, {}, {"a": "<think>4</think>four"})
    assert result.error is not None and result.error.code == "S711"


async def test_a_program_on_a_model(backend: LocalBackend) -> None:
    """Thinking, then a typed answer; later turns know the answer only."""
    program = steps(
        """
- user: Hi
- gen: a
  max_tokens: 60
  reasoning: {parser: qwen3, budget: 6}
  fields: {n: {type: integer, minimum: 0, maximum: 99}}
- set: {why: "{{ meta(a).reasoning }}", usage: "{{ meta(a).usage }}", tokens: "{{ meta(a).tokens | map(attribute='text') | join }}"}
- user: And?
- assistant:
    - gen: b
      max_tokens: 12
      ignore_eos: true
      reasoning: {open: "[T]", close: "[/T]", budget: 2}
    - "."
"""
    )
    run = start(program, {}, backend, RunOptions())
    result = await run.wait()
    assert result.error is None, result.error
    assert 0 <= result.outputs["a"]["n"] <= 99
    assert result.outputs["tokens"] == result.text.partition("assistant\n")[2].partition("<|im_end|>")[0]
    events = run.log.events
    thought = "".join(e.data["text"] for e in events if e.type == "thinking" and e.data["name"] == "a")
    assert thought == result.outputs["why"]
    assert "think" not in result.text and "[T]" not in result.text
    assert result.outputs["usage"]["generated_tokens"] > 6


async def test_candidates_attempts_and_joins_on_a_model(backend: LocalBackend) -> None:
    program = steps(
        """
- user: Hi
- assistant:
    - fork: 2
      join: concat
      do:
        - "{{ loop.index }}:"
        - gen: part
          max_tokens: 20
          temperature: 1
          regex: "[a-c]{2}"
          reasoning: {open: "[T]", close: "[/T]", budget: 3}
    - gen: many
      n: 3
      keep: best
      max_tokens: 20
      temperature: 1
      regex: "[d-f]{2}"
      reasoning: {open: "[T]", close: "[/T]", budget: 3}
    - gen: again
      max_tokens: 20
      temperature: 1
      regex: "[0-9]"
      retry: {max: 50, until: again == "1"}
      reasoning: {open: "[T]", close: "[/T]", budget: 1}
"""
    )
    result = await start(program, {}, backend, RunOptions(seed=3)).wait()
    assert result.error is None, result.error
    said = result.text.partition("assistant\n")[2]
    assert re.fullmatch(r"1:[a-c]{2}2:[a-c]{2}[d-f]{2}1<\|im_end\|>\n", said), said
    assert len(result.outputs["many"]) == 3


async def test_thinking_that_does_not_end(backend: LocalBackend) -> None:
    program = steps("- user: Hi\n- {gen: a, reasoning: qwen3, type: boolean, max_tokens: 5}")
    result = await start(program, {}, backend, RunOptions()).wait()
    assert result.error is not None and result.error.code == "S708"
    assert "while the model was thinking" in result.error.message
    assert "budget" in (result.error.help or "")
    program = steps("- user: Hi\n- {gen: a, reasoning: qwen3, max_tokens: 5}\n- set: {how: '{{ meta(a).finish }}'}")
    result = await start(program, {}, backend, RunOptions()).wait()
    assert (result.outputs["a"], result.outputs["how"]) == ("", "length")


@pytest.mark.parametrize(
    ("name", "messages", "line", "words"),
    [
        ("gemma-2", "- system: Be brief.\n- user: Hi\n- gen: a", 3, "there is no system role"),
        ("llama-2", "- system: Be brief.\n- user: Hi\n- user: Ho\n- gen: a", 5, "must take turns"),
    ],
)
async def test_what_a_chat_template_refuses(tmp_path: Path, name: str, messages: str, line: int, words: str) -> None:
    opened = await open_local(write(tiny.build(tmp_path), name, "byte_level"), threads=1)
    result = await start(steps(messages), {}, opened, RunOptions()).wait()
    await opened.close()
    assert result.error is not None and result.error.code == "S603"
    assert words in result.error.message
    assert result.error.range is not None and result.error.range.start.line == line

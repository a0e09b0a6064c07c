"""S709: what the model wrote does not keep to its constraint, or could not be held to it."""

from __future__ import annotations

import pytest

from sglspec.backends.base import EngineError
from sglspec.runtime.run import RunOptions, start
from tests.runtime.fake import FakeBackend, steps

LENIENT = """
- gen: a
  lenient: true
  schema: {type: array, items: {type: integer}, contains: {const: 1}, minContains: 2}
"""


@pytest.mark.parametrize(
    ("retry", "help"),
    [("", "`retry: {max: 3}`"), ("  temperature: 1\n  retry: {max: 2}\n", None)],
    ids=["once", "retry"],
)
async def test_what_is_checked_afterwards_may_break(retry: str, help: str | None) -> None:
    backend = FakeBackend({"a": ["[1, 2]", "[1, 3]"]})
    error = (await start(steps(LENIENT + retry), {}, backend, RunOptions()).wait()).error
    assert error is not None and error.range is not None
    assert (error.code, error.range.start.line) == ("S709", 3)
    assert error.message.startswith("The generated text breaks its constraint: ")
    assert (help in (error.help or "")) if help else error.help is None


@pytest.mark.parametrize("retry", ["", "\n  retry: {max: 3}\n  temperature: 1"])
async def test_what_the_engine_cannot_follow_says_what_to_change(retry: str) -> None:
    dead_end = EngineError("constraint", "the constraint allows no token here, and the text is not complete")
    backend = FakeBackend({"a": [dead_end] * 3})
    error = (await start(steps(f"- gen: a\n  regex: '[0-9]+'{retry}"), {}, backend, RunOptions()).wait()).error
    assert error is not None
    assert (error.code, error.message) == (
        "S709",
        "The constraint allows no token here, and the text is not complete.",
    )
    assert "allow more texts, or make it simpler" in (error.help or "")

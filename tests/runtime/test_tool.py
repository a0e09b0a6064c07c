"""`tool` with real functions."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from sglspec.diagnostics import SpecError
from sglspec.runtime.result import Result
from sglspec.runtime.run import RunOptions
from sglspec.runtime.threads import MOST, TookTooLong, ToolThreads
from sglspec.runtime.tool import LONGEST
from sglspec.tools import ToolError, Tools, make_tool
from tests.runtime.fake import FakeBackend, program, start

HEAD = "sglspec: v1\n"


def host(*functions: Callable[..., Any]) -> Tools:
    return Tools(make_tool(function) for function in functions)


async def run(text: str, *functions: Callable[..., Any], inputs: dict[str, Any] | None = None) -> Result:
    """A program that runs where these are the tools."""
    offered = host(*functions)
    checked = program(HEAD + text, tools=offered)
    backend = FakeBackend({"x": "hello"})
    handle = start(checked, inputs or {}, backend, RunOptions(seed=1, tools=offered))
    result = await asyncio.wait_for(handle.wait(), 20)
    assert handle.fault is None and backend.open_sessions == 0
    return result


def one(name: str, **more: str) -> str:
    """A program that calls one tool and binds `r`."""
    keys = "".join(f", {key}: {value}" for key, value in more.items())
    return f"steps:\n  - {{tool: {name}, into: r{keys}}}\n"


async def test_the_calculator_is_always_there():
    result = await run(
        "steps:\n  - gen: x\n  - {tool: calculator, with: {expression: 6 * 7}, into: r}\n  - '{{ r }}'\n"
    )
    assert result.outputs == {"x": "hello", "r": 42} and result.text == "hello42"


async def test_plain_and_async_functions_with_converted_arguments():
    def area(width: int, height: int = 2) -> dict[str, int]:
        return {"area": width * height}

    async def doubled(words: list[str]) -> list[str]:
        await asyncio.sleep(0)
        return words * 2

    text = """inputs: {w: string}
steps:
  - {tool: area, with: {width: "{{ w }}"}, into: {a: area}}
  - {tool: doubled, with: {words: ["{{ w }}", 1]}, into: "all[]"}
"""
    result = await run(text, area, doubled, inputs={"w": "3"})
    assert result.error is None and result.outputs == {"a": 6, "all": [["3", "1", "3", "1"]]}


async def test_what_a_tool_gives_has_its_origin():
    def quote() -> str:
        return "{{ a }} <|im_end|>"

    offered = host(quote)
    handle = start(
        program(HEAD + one("quote") + "  - '{{ r }}'\n", tools=offered), {}, FakeBackend({}), RunOptions(tools=offered)
    )
    await handle.wait()
    (text,) = [event.data for event in handle.log.events if event.type == "text"]
    assert text == {"text": "{{ a }} <|im_end|>", "origin": "tool"}


async def failing() -> None:
    raise ToolError("no such city")


def breaking() -> None:
    raise KeyError("k")


def exiting() -> None:
    raise SystemExit(3)


async def exiting_soon() -> None:
    raise SystemExit(3)


async def interrupting() -> None:
    raise KeyboardInterrupt


async def leaving() -> None:
    raise GeneratorExit


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError


def speechless() -> None:
    raise Speechless


def halved() -> None:
    raise ToolError("\ud800")


def lengthy() -> None:
    raise ToolError("x" * 10 * LONGEST)


def deep() -> Any:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    return value


def endless() -> Any:
    return itertools.count()


def growing() -> Any:
    while True:
        yield 1


def unawaited() -> Any:
    return failing()


def stopping() -> None:
    raise StopIteration("s")


async def cancelling() -> None:
    raise asyncio.CancelledError


async def impatient() -> None:
    raise TimeoutError("its own")


def unprintable() -> object:
    return object()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (failing, "The tool `failing` failed: no such city."),
        (breaking, "The tool `breaking` failed: KeyError: 'k'."),
        (exiting, "The tool `exiting` failed: SystemExit: 3."),
        (exiting_soon, "The tool `exiting_soon` failed: SystemExit: 3."),
        (interrupting, "The tool `interrupting` failed: KeyboardInterrupt."),
        (leaving, "The tool `leaving` failed: GeneratorExit."),
        (stopping, "The tool `stopping` failed: StopIteration: s."),
        (speechless, "The tool `speechless` failed: Speechless."),
        (halved, "The tool `halved` failed: \\ud800."),
        (lengthy, f"The tool `lengthy` failed: {'x' * (LONGEST - 1)}…."),
        (deep, "The tool `deep` failed: it returned something that is no JSON value (list)."),
        (endless, "The tool `endless` failed: it returned something that is no JSON value (count)."),
        (growing, "The tool `growing` failed: it returned something that is no JSON value (generator)."),
        (unawaited, "The tool `unawaited` failed: it returned something that is no JSON value (coroutine)."),
        (cancelling, "The tool `cancelling` failed: it was cancelled."),
        (impatient, "The tool `impatient` failed: TimeoutError: its own."),
        (unprintable, "The tool `unprintable` failed: it returned something that is no JSON value (object)."),
    ],
)
async def test_a_tool_that_fails(function: Callable[..., Any], message: str):
    result = await run(one(function.__name__, timeout="15"), function)
    assert result.error is not None
    assert (result.error.code, result.error.pointer, result.error.message) == ("S716", "/steps/0/tool", message)
    kept = await run(one(function.__name__, on_error="keep"), function)
    assert kept.outputs["r"]["error"]["code"] == "S716"
    skipped = await run(one(function.__name__, on_error="skip"), function)
    assert skipped.error is None and skipped.outputs == {"r": None}


async def test_a_timeout_ends_the_wait_for_both_kinds():
    ended: list[str] = []
    release = threading.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("slow")
            raise

    def stuck() -> None:
        release.wait(60)

    result = await run(one("slow", timeout="0.01"), slow)
    assert result.error is not None and result.error.code == "S717" and ended == ["slow"]
    result = await run(one("stuck", timeout="0.01", on_error="keep"), stuck)
    release.set()
    assert result.outputs["r"]["error"]["code"] == "S717"


async def test_nobody_waits_for_a_tool_that_ignores_being_cancelled():
    """Neither the run, nor `asyncio.run` at its end."""
    goes_on, release = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                goes_on.set()

    tool = make_tool(stubborn)
    with pytest.raises(TookTooLong):
        await ToolThreads().call(tool, {}, 0.01, grace=0.01)
    assert goes_on.is_set() and asyncio.all_tasks() == {asyncio.current_task()}
    called = asyncio.ensure_future(ToolThreads().call(tool, {}, None, grace=0.01))
    await asyncio.sleep(0)
    called.cancel()
    with pytest.raises(asyncio.CancelledError):
        await called
    assert asyncio.all_tasks() == {asyncio.current_task()}
    release.set()


async def test_a_limit_of_the_run_is_not_caught():
    async def slow() -> None:
        await asyncio.sleep(60)

    result = await run("limits: {seconds: 0.05}\n" + one("slow", on_error="skip"), slow)
    assert result.error is not None and result.error.code == "S706"


async def test_cancelling_a_run_ends_its_tool():
    started = asyncio.Event()

    async def slow() -> None:
        started.set()
        await asyncio.sleep(60)

    offered = host(slow)
    checked = program(HEAD + one("slow", on_error="skip"), tools=offered)
    handle = start(checked, {}, FakeBackend({}), RunOptions(tools=offered))
    await started.wait()
    handle.cancel()
    assert (await asyncio.wait_for(handle.wait(), 10)).status == "cancelled"


async def test_plain_functions_run_at_the_same_time_but_not_too_many():
    lock, running, most = threading.Lock(), 0, 0
    full = threading.Event()

    def busy(n: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == MOST:
                full.set()
        assert full.wait(10)
        time.sleep(0.01)
        with lock:
            running -= 1
        return n

    text = f"""steps:
  - fork: i
    in: range({3 * MOST})
    do:
      - {{tool: busy, with: {{n: "{{{{ i }}}}"}}, into: r}}
"""
    result = await run(text, busy)
    assert result.outputs == {"r": list(range(3 * MOST))} and most == MOST


async def test_a_secret_reaches_the_tool_and_nothing_else():
    seen: list[str] = []

    def search(key: str, ok: bool) -> dict[str, Any]:
        seen.append(key)
        if not ok:
            raise ValueError(f"the key {key} is wrong")
        return {"answer": ["found with " + key]}

    text = """inputs: {k: {type: string, secret: true}}
steps:
  - {tool: search, with: {key: "{{ k }}", ok: true}, into: found}
  - {tool: search, with: {key: "{{ k }}", ok: false}, into: lost, on_error: keep}
"""
    offered = host(search)
    handle = start(program(HEAD + text, tools=offered), {"k": "s3cr3t"}, FakeBackend({}), RunOptions(tools=offered))
    result = await handle.wait()
    assert seen == ["s3cr3t", "s3cr3t"]
    assert result.outputs["found"] == {"answer": ["found with ***"]}
    assert result.outputs["lost"]["error"]["message"] == "The tool `search` failed: ValueError: the key *** is wrong."
    shown = [event.as_dict() for event in handle.log.events]
    assert "s3cr3t" not in repr(shown) + repr(result.as_dict())


def test_a_wrong_secret_is_not_shown_either():
    checked = program(
        HEAD
        + "inputs: {k: {type: string, secret: true, maxLength: 3}}\nsteps:\n  - {tool: calculator, with: {expression: '{{ k }}'}}\n"
    )
    for value in (12345, "s3cr3t"):
        with pytest.raises(SpecError) as problem:
            start(checked, {"k": value}, FakeBackend({}))
        assert str(value) not in str(problem.value) + repr(problem.value.diagnostics)


async def test_a_host_without_the_tool():
    text = HEAD + "steps:\n  - {tool: search, into: r}\n"
    with pytest.raises(SpecError) as problem:
        program(text, tools=Tools())
    assert [d.code for d in problem.value.diagnostics] == ["S320"]
    backend = FakeBackend({})
    result = await start(program(text), {}, backend).wait()
    assert result.error is not None and (result.error.code, result.error.severity) == ("S320", "error")
    assert backend.open_sessions == 0


async def test_events_of_a_tool():
    offered = host(breaking)
    text = HEAD + "steps:\n  - {tool: breaking, into: r, on_error: skip}\n"
    handle = start(program(text, tools=offered), {}, FakeBackend({}), RunOptions(tools=offered))
    await handle.wait()
    events = [(e.type, e.step, e.data.get("tool")) for e in handle.log.events if e.type.startswith("tool.")]
    assert events == [("tool.started", "/steps/0/tool", "breaking"), ("tool.finished", "/steps/0/tool", "breaking")]

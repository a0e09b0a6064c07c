"""`call` beside the steps that go on: when it is awaited, what it costs, how it ends. What it means is in tests/rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sglspec.analysis import load_program
from sglspec.analysis.program import Program
from sglspec.backends.base import EngineError
from sglspec.diagnostics import Report
from sglspec.document.read import read_source
from sglspec.runtime.limits import Bounds
from sglspec.runtime.run import RunOptions, start
from sglspec.tools import Tools, make_tool
from tests.runtime.fake import FakeBackend, run_scripted

CALLEE = """
sglspec: v1
inputs: {q: {type: string, default: q}}
outputs: [v]
steps:
  - "{{ q }}: "
  - gen: v
"""


def load(folder: Path, main: str, tools: Tools | None = None, **others: str) -> Program:
    """The program in `main`; `a` is `a.yaml` in its folder."""
    for name, text in others.items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    (folder / "main.yaml").write_text("sglspec: v1\n" + main, "utf-8")
    report = Report("main.yaml")
    program = load_program(read_source(folder / "main.yaml", "main.yaml"), report, tools)
    report.raise_errors()
    assert program is not None
    return program


async def test_the_caller_goes_on_until_it_reads(tmp_path: Path) -> None:
    program = load(
        tmp_path,
        "use: {a: ./a.yaml}\nsteps:\n  - call: a\n    into: {x: v}\n  - gen: y\n  - '{{ x }}'\n  - gen: z\n",
        a=CALLEE,
    )
    backend = FakeBackend({"a.v": "later", "y": "now", "z": "end"})
    gate = backend.close_gate("v")
    run = start(program, {}, backend)
    await backend.until("end y")
    assert "start v" in backend.order and "start z" not in backend.order
    gate.set()
    result = await run.wait()
    assert result.error is None and result.text == "nowlaterend"
    assert backend.open_sessions == 0


async def test_calls_of_a_loop_run_together_and_add_in_their_order(tmp_path: Path) -> None:
    main = (
        "use: {a: ./a.yaml}\nsteps:\n  - for: n\n    in: [p, q]\n    do: {call: a, with: {q: '{{ n }}'}, into: 'x[]'}\n"
    )
    program = load(tmp_path, main, a=CALLEE)

    backend = FakeBackend({"a.v": ["1", "2"]})
    gate = backend.close_gate("v")
    run = start(program, {}, backend)
    for _ in range(200):
        await asyncio.sleep(0)
    assert backend.order == ["start v", "start v"]
    gate.set()
    result = await run.wait()
    assert result.outputs == {"x": [{"v": "1"}, {"v": "2"}]}


async def test_a_list_does_not_depend_on_which_call_ends_first(tmp_path: Path) -> None:
    main = "use: {a: ./a.yaml, b: ./b.yaml}\nsteps:\n  - {call: a, into: 'x[]'}\n  - {call: b, into: 'x[]'}\n  - set: {'x[]': 3}\n"
    program = load(tmp_path, main, a=CALLEE, b=CALLEE.replace("[v]", "[w]").replace("gen: v", "gen: w"))
    backend = FakeBackend({"a.v": "1", "b.w": "2"})
    gate = backend.close_gate("v")
    run = start(program, {}, backend)
    await backend.until("end w")
    gate.set()
    assert (await run.wait()).outputs == {"x": [{"v": "1"}, {"w": "2"}, 3]}


async def test_unread_calls_are_awaited_also_on_return(tmp_path: Path) -> None:
    program = load(
        tmp_path, "use: {a: ./a.yaml}\nsteps:\n  - call: a\n  - if: 1 < 2\n    then: {return: null}\n", a=CALLEE
    )
    backend = FakeBackend({"a.v": "x"})
    gate = backend.close_gate("v")
    run = start(program, {}, backend)
    await backend.until("start v")
    assert not run.log.closed
    gate.set()
    assert (await run.wait()).status == "succeeded"
    assert backend.order == ["start v", "end v"]


async def test_a_failing_call_ends_the_program_at_once(tmp_path: Path) -> None:
    program = load(tmp_path, "use: {a: ./a.yaml}\nsteps:\n  - call: a\n    into: x\n  - gen: y\n", a=CALLEE)
    backend = FakeBackend({"a.v": EngineError("internal", "it broke"), "y": "never"})
    backend.close_gate("y")
    result = await start(program, {}, backend).wait()
    assert result.error is not None and (result.error.code, result.error.file) == ("S713", "a.yaml")
    assert [(one.message, one.file) for one in result.error.related] == [("called here", "main.yaml")]
    assert result.outputs == {"x": None, "y": None}
    assert backend.open_sessions == 0


async def test_cancelling_the_run_ends_its_calls(tmp_path: Path) -> None:
    main = "use: {a: ./a.yaml}\nsteps:\n  - call: a\n    into: x\n    on_error: keep\n  - '{{ x }}'\n"
    program = load(tmp_path, main, a=CALLEE)
    backend = FakeBackend({"a.v": "x"})
    backend.close_gate("v")
    run = start(program, {}, backend)
    await backend.until("start v")
    run.cancel()
    result = await run.wait()
    assert (result.status, result.outputs) == ("cancelled", {"x": None})
    assert backend.open_sessions == 0


async def test_cancelling_before_the_call_has_begun(tmp_path: Path) -> None:
    program = load(tmp_path, "use: {a: ./a.yaml}\nsteps:\n  - call: a\n  - gen: y\n", a=CALLEE)
    backend = FakeBackend({"a.v": "x", "y": "y"})
    for rounds in range(30):
        run = start(program, {}, backend)
        for _ in range(rounds):
            await asyncio.sleep(0)
        run.cancel()
        await run.wait()
        assert backend.open_sessions == 0, rounds


async def test_a_call_may_use_what_is_left(tmp_path: Path) -> None:
    main = (
        "limits: {tokens: 10}\nuse: {a: ./a.yaml}\nsteps:\n  - gen: y\n  - call: a\n    into: x\n    on_error: skip\n"
    )
    program = load(tmp_path, main, a=CALLEE)
    result = await start(program, {}, FakeBackend({"y": "12345678", "a.v": "123"})).wait()
    assert result.error is not None and result.error.code == "S705"
    assert result.error.message == "The run used up its 10 tokens."
    assert result.usage.generated_tokens == 10
    fits = await start(program, {}, FakeBackend({"y": "12345678", "a.v": "12"})).wait()
    assert fits.error is None and fits.usage.generated_tokens == 10


async def test_what_a_call_used_is_not_left_for_the_caller(tmp_path: Path) -> None:
    main = "limits: {tokens: 10}\nuse: {a: ./a.yaml}\nsteps:\n  - call: a\n    into: x\n  - '{{ x }}'\n  - gen: y\n"
    program = load(tmp_path, main, a=CALLEE)
    result = await start(program, {}, FakeBackend({"a.v": "12345678", "y": "123"})).wait()
    assert result.error is not None and result.error.code == "S705"
    assert (result.usage.generated_tokens, result.outputs["y"]) == (10, "12")


async def test_a_called_program_bounds_itself(tmp_path: Path) -> None:
    program = load(
        tmp_path,
        "limits: {tokens: 200000}\nuse: {a: ./a.yaml, b: ./b.yaml}\nsteps:\n  - call: b\n  - call: a\n",
        a=CALLEE.replace("inputs", "name: short\nlimits: {tokens: 3}\ninputs"),
        b=CALLEE,
    )
    result = await start(program, {}, FakeBackend({"a.v": "1234", "b.v": "1234"})).wait()
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("S705", "The program `short` used up its 3 tokens.")


async def test_the_host_bounds_calls(tmp_path: Path) -> None:
    program = load(tmp_path, "use: {a: ./a.yaml}\nsteps: [{call: a}]\n", a=CALLEE)
    options = RunOptions(bounds=Bounds(tokens=2))
    result = await start(program, {}, FakeBackend({"a.v": "1234"}), options).wait()
    assert result.error is not None and result.error.code == "S705"


@pytest.mark.parametrize("verb", ["call", "include"])
async def test_seconds_of_a_used_program(tmp_path: Path, verb: str) -> None:
    used = CALLEE.replace("inputs", "limits: {seconds: 0.01}\ninputs")
    program = load(tmp_path, f"use: {{a: ./a.yaml}}\nsteps:\n  - {verb}: a\n", a=used)
    backend = FakeBackend({"a.v": "x", "v": "x"})
    backend.close_gate("v")
    result = await start(program, {}, backend).wait()
    assert result.error is not None and (result.error.code, result.error.file) == ("S706", "a.yaml")
    assert backend.open_sessions == 0


async def test_paths_and_events_of_calls(tmp_path: Path) -> None:
    main = """use: {a: ./a.yaml}
steps:
  - fork: n
    in: [1, 2]
    do:
      - call: a
        with: {q: "{{ n }}"}
        into: x
      - scratch: [t]
"""
    inner = "sglspec: v1\ninputs: {q: any}\nsteps:\n  - fork: 1\n    do: ['{{ q }}', {gen: v}]\n"
    program = load(tmp_path, main, a=inner)
    result_of: list[Any] = []
    for _ in range(2):
        run = start(program, {}, FakeBackend({"a.v": "x"}), RunOptions(seed=1))
        await run.wait()
        seen = {(e.branch, e.data["call"], e.data["file"], e.step) for e in run.log.events if e.type == "generated"}
        paths = {e.data["path"] for e in run.log.events if e.type == "call.started"}
        result_of.append((seen, paths))
    assert result_of[0] == result_of[1]
    seen, paths = result_of[0]
    assert seen == {(f"1.{n}/call.1/1.0", "a", "a.yaml", "/steps/0/do/1/gen") for n in (0, 1)}
    assert paths == {"1.0/call.1", "1.1/call.1"}


async def test_noise_of_calls_differs(tmp_path: Path) -> None:
    main = "use: {a: ./a.yaml}\nsteps: [{call: a}, {call: a}, {gen: v, temperature: 1}]\n"
    program = load(tmp_path, main, a=CALLEE.replace("gen: v", "gen: v\n    temperature: 1"))
    backend = FakeBackend({"a.v": "x", "v": "x"})
    await start(program, {}, backend, RunOptions(seed=1)).wait()
    assert len({request.noise_key for request in backend.requests}) == 3


async def test_origins_come_back(tmp_path: Path) -> None:
    """What a called program generated is not taken for the author's text."""
    main = "inputs: {i: string}\nuse: {a: ./a.yaml}\nsteps:\n  - call: a\n    with: {q: '{{ i }}'}\n    into: x\n  - '{{ x.v }}{{ x.w }}'\n"
    callee = "sglspec: v1\ninputs: {q: string}\noutputs: {v: '{{ g }}', w: author}\nsteps: ['{{ q }}', {gen: g}]\n"
    program = load(tmp_path, main, a=callee)
    run = start(program, {"i": "I"}, FakeBackend({"a.g": "G"}))
    await run.wait()
    texts = [(e.data["text"], e.data["origin"]) for e in run.log.events if e.type == "text"]
    assert texts == [("I", "input"), ("Gauthor", "generated")]


async def test_secrets_of_a_called_program_are_masked(tmp_path: Path) -> None:
    tools = Tools([make_tool(echo)])
    main = "inputs: {s: {type: string, secret: true}}\nuse: {a: ./a.yaml}\nsteps: [{call: a, with: {k: '{{ s }}', l: given}, into: x}]\n"
    callee = """sglspec: v1
inputs: {k: {type: string, secret: true}, l: {type: string, secret: true}}
steps: [{tool: echo, with: {a: "{{ k }}", b: "{{ l }}"}, into: e}]
"""
    program = load(tmp_path, main, tools, a=callee)
    result = await start(program, {"s": "hidden"}, FakeBackend({}), RunOptions(tools=tools)).wait()
    assert result.outputs == {"x": {"e": "*** ***"}}


def echo(a: str, b: str) -> str:
    """Both."""
    return f"{a} {b}"


async def test_usage_and_traces_of_calls_count(tmp_path: Path) -> None:
    program = load(tmp_path, "use: {a: ./a.yaml}\nsteps: [{call: a}, t, {gen: y}]\n", a=CALLEE)
    result = await start(program, {}, FakeBackend({"a.v": "123", "y": "45"}), RunOptions(trace=True)).wait()
    assert result.usage.generated_tokens == 5
    assert list(result.branch_traces) == ["call.1"]


async def test_a_pending_list_that_fails_keeps_what_was_there(tmp_path: Path) -> None:
    main = "use: {a: ./a.yaml}\nsteps:\n  - set: {'x[]': 1}\n  - call: a\n    into: x[]\n  - gen: y\n"
    program = load(tmp_path, main, a="sglspec: v1\nsteps: [{fail: No.}]\n")
    result = await start(program, {}, FakeBackend({"y": "y"})).wait()
    assert result.error is not None and result.variables["x"] == [1]


async def test_meta_of_outputs(tmp_path: Path) -> None:
    main = "use: {a: ./a.yaml}\nsteps:\n  - call: a\n    into: x\n  - call: a\n    into: {y: v}\n  - set: {f: '{{ meta(x).v.finish }}', g: '{{ meta(y).finish }}'}\n"
    result = await run_scripted(load(tmp_path, main, a=CALLEE), replies={"a.v": "x"})
    assert result.error is None and (result.outputs["f"], result.outputs["g"]) == ("end", "end")

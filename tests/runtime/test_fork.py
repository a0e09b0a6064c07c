"""Fork and join: order, waiting, errors, limits, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sglspec.backends.base import Concat, EngineError, Session
from sglspec.backends.scripted import Script, ScriptedBackend, ScriptedSession
from sglspec.runtime.limits import Bounds
from sglspec.runtime.run import RunOptions
from tests.runtime.fake import FakeBackend, SpecError, program, run_scripted, start, steps

GATHER = """
- "Q"
- fork: d
  in: [x, y, z]
  do:
    - "[{{ d }}]"
    - gen: tip
- "{{ tip | join('|') }}"
"""


async def test_gather_is_in_branch_order_and_leaves_the_context_alone():
    result = await run_scripted(steps(GATHER), {}, {"tip": ["1", "2", "3"]})
    assert result.outputs == {"tip": ["1", "2", "3"]}
    assert result.text == "Q1|2|3"


async def test_concurrent_branches_finish_in_any_order_and_gather_in_theirs():
    source = GATHER.replace("- gen: tip", '- gen: tip\n      id: "tip"')
    fork = """
- fork: {a: [{gen: one}], b: [{gen: two}]}
- "{{ one }}{{ two }}"
"""
    backend = FakeBackend({"one": "1", "two": "2"})
    gate = backend.close_gate("one")
    run = start(steps(fork), {}, backend)
    await backend.until("end two")
    gate.set()
    result = await run.wait()
    assert result.text == "12"
    assert source
    assert backend.open_sessions == 0


async def test_the_parent_goes_on_until_it_reads_a_gathered_variable():
    source = '- fork: 2\n  do:\n    - gen: slow\n- gen: fast\n- "{{ slow | length }}"\n'
    backend = FakeBackend({"slow": "s", "fast": "f"})
    gate = backend.close_gate("slow")
    run = start(steps(source), {}, backend)
    await backend.until("end fast")
    assert "end slow" not in backend.order
    gate.set()
    assert (await run.wait()).text == "f2"


async def test_the_end_of_the_program_awaits_every_branch_also_on_return():
    source = "- fork: 2\n  do:\n    - gen: slow\n- return:\n"
    backend = FakeBackend({"slow": "s"})
    gate = backend.close_gate("slow")
    run = start(steps(source, outputs="[slow]"), {}, backend)
    for _ in range(20):
        await asyncio.sleep(0)
    gate.set()
    assert (await run.wait()).outputs == {"slow": ["s", "s"]}


async def test_unbound_in_a_branch_is_null_and_nested_forks_give_nested_lists():
    source = """
- fork: d
  in: [1, 2]
  do:
    - if: d == 1
      then:
        - set: {only: "{{ d }}"}
    - fork: 2
      do:
        - set: {inner: "{{ loop.index }}"}
"""
    result = await run_scripted(steps(source))
    assert result.outputs == {"only": [1, None], "inner": [[1, 2], [1, 2]]}


async def test_no_branches_give_empty_lists():
    result = await run_scripted(
        steps("- fork: d\n  in: items\n  do:\n    - gen: x\n", inputs="{items: array}"), {"items": []}
    )
    assert result.outputs == {"x": []}


async def test_width_from_a_template():
    result = await run_scripted(
        steps('- fork: "{{ n }}"\n  do:\n    - set: {x: "{{ loop.index0 }}"}\n', inputs="{n: integer}"), {"n": 3}
    )
    assert result.outputs == {"x": [0, 1, 2]}


async def test_into_gives_records():
    result = await run_scripted(
        steps(
            GATHER.replace("[x, y, z]", "[x, y]")
            .replace("  do:", "  into: r\n  do:")
            .replace("tip |", "r | map(attribute='tip') |")
        ),
        {},
        {"tip": ["1", "2"]},
    )
    assert result.outputs == {"r": [{"d": "x", "tip": "1"}, {"d": "y", "tip": "2"}]}


async def test_named_branches_bring_variables_back_plainly_or_as_a_record():
    source = "- fork:\n    pros: [{gen: p}]\n    cons: [{gen: c}]\nINTO"
    plain = await run_scripted(steps(source.replace("INTO", "")), {}, {"p": "good", "c": "bad"})
    assert plain.outputs == {"p": "good", "c": "bad"}
    record = await run_scripted(steps(source.replace("INTO", "  into: r\n")), {}, {"p": "good", "c": "bad"})
    assert record.outputs == {"r": {"pros": {"p": "good"}, "cons": {"c": "bad"}}}


async def test_additions_to_a_list_come_in_branch_order_after_what_was_there():
    source = '- set: {"t[]": 0}\n- fork: d\n  in: [1, 2]\n  do:\n    - set: {"t[]": "{{ d }}"}\n    - set: {"t[]": "{{ d * 10 }}"}\n- set: {"t[]": 9}\n'
    assert (await run_scripted(steps(source))).outputs == {"t": [0, 1, 10, 2, 20, 9]}


async def test_concat_appends_the_branches_text_in_order():
    source = GATHER.replace("  do:", "  join: concat\n  do:").replace("- \"{{ tip | join('|') }}\"", '- "."')
    result = await run_scripted(steps(source), {}, {"tip": ["1", "2", "3"]})
    assert result.text == "Q[x]1[y]2[z]3."
    assert result.outputs == {"tip": ["1", "2", "3"]}


async def test_concat_of_messages():
    source = '- user: Go\n- fork: d\n  in: [a, b]\n  join: concat\n  do:\n    - user: "{{ d }}"\n    - gen: x\n'
    result = await run_scripted(steps(source), {}, {"x": ["1", "2"]})
    assert [m["content"] for m in result.messages] == ["Go", "a", "1", "b", "2"]


KV = """
- "Q"
- fork: d
  in: [x, y]
  do: ["[{{ d }}]", {gen: tip}]
  join: concat_kv
- "."
"""


async def test_concat_kv_gives_the_text_of_concat():
    run = start(steps(KV), {}, ScriptedBackend({"tip": ["1", "2"]}))
    result = await run.wait()
    assert result.text == "Q[x]1[y]2."
    (joined,) = [event for event in run.log.events if event.type == "context.joined"]
    assert (joined.step, joined.data) == ("/steps/1/join", {"mode": "concat_kv", "divergence": None})


async def test_a_backend_without_concat_kv_is_told_before_anything_runs_unless_there_is_a_fallback():
    backend = FakeBackend({"tip": "1"})
    failed = await start(steps(KV), {}, backend).wait()
    assert failed.error is not None and failed.error.code == "S606" and failed.text == ""
    assert failed.error.range is not None and failed.error.range.start.line == 7
    assert backend.requests == []
    run = start(steps(KV.replace("join:", "fallback: concat\n  join:")), {}, backend)
    assert (await run.wait()).text == "Q[x]1[y]1."
    assert [e.data["mode"] for e in run.log.events if e.type == "context.joined"] == ["concat"]
    nested = steps(
        "- fork: 2\n  do:\n    - if: loop.first\n      then:\n        - fork: 1\n          do: x\n          join: concat_kv\n"
    )
    refused = await start(nested, {}, backend).wait()
    assert refused.error is not None and refused.error.code == "S606"


class Refusing(ScriptedSession):
    """Branches that cannot be joined, for a reason that shows at the join only."""

    def __init__(self, kind: str) -> None:
        super().__init__(Script({"tip": "1"}))
        self._kind = kind

    async def concat(self, branches: Sequence[Session], mode: Concat) -> float | None:
        if mode == "concat_kv":
            raise EngineError(self._kind, "it melts")
        return await super().concat(branches, mode)


@pytest.mark.parametrize(
    ("kind", "fallback", "code"),
    [
        ("unsupported", False, "S606"),
        ("unsupported", True, None),
        ("limit", False, "S712"),
        ("limit", True, "S712"),
    ],
)
async def test_a_join_that_fails(kind: str, fallback: bool, code: str | None, monkeypatch: pytest.MonkeyPatch):
    backend = ScriptedBackend({})

    async def refusing(label: str = "") -> Session:
        return Refusing(kind)

    monkeypatch.setattr(backend, "open", refusing)
    source = KV.replace("join:", "fallback: concat\n  join:") if fallback else KV
    result = await start(steps(source), {}, backend).wait()
    assert (result.error.code if result.error is not None else None) == code
    assert result.text == ("Q[x]1[y]1." if code is None else "Q")
    if code == "S606":
        assert result.error is not None and "fallback: concat" in (result.error.help or "")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("skip", ["1", None, "3"]), ("keep", ["1", {"error": {"code": "S713", "message": "Broken."}}, "3"])],
)
async def test_on_error_keeps_lists_aligned(policy: str, expected: list[Any]):
    source = GATHER.replace("  do:", f"  on_error: {policy}\n  do:").replace("- \"{{ tip | join('|') }}\"\n", "")
    backend = FakeBackend({"tip": ["1", EngineError("internal", "broken"), "3"]})
    result = await start(steps(source), {}, backend).wait()
    assert result.outputs == {"tip": expected}
    assert backend.open_sessions == 0


async def test_a_failing_branch_fails_the_program_at_once_and_cancels_its_siblings():
    source = "- fork:\n    a: [{gen: hangs}]\n    b: [{gen: breaks}]\n- gen: after\n"
    backend = FakeBackend({"hangs": "x", "breaks": EngineError("internal", "broken"), "after": "x" * 10_000})
    backend.close_gate("hangs")
    result = await asyncio.wait_for(start(steps(source), {}, backend).wait(), 5)
    assert result.status == "failed" and result.error is not None and result.error.code == "S713"
    assert result.error.range is not None and result.error.range.start.line == 5
    assert "end hangs" not in backend.order
    assert backend.open_sessions == 0


async def test_fail_in_a_branch_is_caught_by_on_error_but_a_limit_is_not():
    source = "- fork: 2\n  on_error: skip\n  do:\n    - FAIL\n    - set: {x: 1}\n"
    ok = await run_scripted(steps(source.replace("FAIL", "check: false")))
    assert ok.outputs == {"x": [None, None]}
    limited = await run_scripted(
        steps(source.replace("FAIL", "fork: '{{ 9 }}'\n      do:\n        - set: {y: 1}"), limits="{branches: 5}")
    )
    assert limited.error is not None and limited.error.code == "S705"


@pytest.mark.parametrize("on_error", ["skip", "keep"])
async def test_a_full_context_is_a_limit(on_error: str):
    source = f"- fork: 2\n  on_error: {on_error}\n  do: ['{{{{ loop.index }}}}', {{gen: x}}]\n"
    backend = FakeBackend({"x": EngineError("limit", "the context is full")})
    result = await start(steps(source), {}, backend).wait()
    assert result.error is not None and result.error.code == "S712"
    backend = FakeBackend({"x": EngineError("internal", "broken")})
    result = await start(steps(source), {}, backend).wait()
    assert result.status == "succeeded"


async def test_depth_limit():
    source = "- fork: 1\n  do:\n    - fork: 1\n      do:\n        - set: {x: 1}\n"
    assert (await run_scripted(steps(source, limits="{depth: 2}"))).outputs == {"x": [[1]]}
    failed = await run_scripted(steps(source), bounds=Bounds(depth=1))
    assert failed.error is not None and failed.error.code == "S705"


async def test_continue_ends_a_branch():
    source = '- fork: d\n  in: [1, 2]\n  do:\n    - if: d == 1\n      then: {continue: }\n    - set: {x: "{{ d }}"}\n'
    assert (await run_scripted(steps(source))).outputs == {"x": [None, 2]}


async def test_a_fork_inside_an_open_role():
    source = '- user: Go\n- assistant:\n    - "So: "\n    - fork: d\n      in: [a, b]\n      do:\n        - "{{ d }}"\n        - gen: x\n    - "{{ x | join }}"\n'
    result = await run_scripted(steps(source), {}, {"x": ["1", "2"]})
    assert result.messages[-1]["content"] == "So: 12"


async def test_a_fork_in_a_loop_may_gather_again():
    source = '- for: r\n  in: [1, 2]\n  do:\n    - fork: 2\n      do:\n        - set: {x: "{{ r * 10 + loop.index }}"}\n    - set: {"all[]": "{{ x }}"}\n'
    assert (await run_scripted(steps(source))).outputs["all"] == [[11, 12], [21, 22]]


async def test_in_a_later_round_a_branch_that_does_not_bind_gives_null():
    source = """
- for: r
  in: [1, 2]
  do:
    - fork: 2
      do:
        - if: r == 1
          then:
            - set: {x: "{{ loop.index }}"}
    - set: {"all[]": "{{ x }}"}
"""
    assert (await run_scripted(steps(source))).outputs["all"] == [[1, 2], [None, None]]


async def test_a_cancelled_generation_leaves_its_text():
    backend = FakeBackend({"x": "abcdef", "y": "123456"})
    source = "- fork: {a: [{gen: x}], b: [{gen: y, type: integer}]}\n"
    run = start(steps(source), {}, backend)
    async for event in run.events():
        if event.type == "delta" and event.data["text"] == "c":
            run.cancel()
    result = await run.wait()
    assert "abc" <= result.outputs["x"] < "abcdef"
    assert result.outputs["y"] is None
    assert result.usage.generated_tokens >= 5


async def test_cancel_while_the_run_ends_still_gives_one_terminal_event():
    backend = FakeBackend({"x": "a"})
    run = start(steps("- gen: x\n"), {}, backend)
    types: list[str] = []
    async for event in run.events():
        types.append(event.type)
        run.cancel()
    assert types[-1] in ("run.succeeded", "run.cancelled")
    assert (await run.wait()).status in ("succeeded", "cancelled")


async def test_a_step_that_fails_right_after_a_fork_leaves_no_session_open():
    backend = FakeBackend({"x": "a"})
    result = await start(
        steps("- fork: 2\n  do:\n    - fork: 2\n      do: [{gen: x}]\n    - fail: boom\n- fail: boom\n"), {}, backend
    ).wait()
    assert result.error is not None and result.error.code == "S701"
    assert backend.open_sessions == 0
    backend = FakeBackend({"x": "a"})
    source = "- fork: 2\n  on_error: skip\n  do:\n    - fork: 2\n      do: [{gen: x}]\n    - fail: boom\n"
    assert (await start(steps(source), {}, backend).wait()).outputs == {"x": [None, None]}
    assert backend.open_sessions == 0


async def test_a_huge_width_is_refused_before_anything_is_made():
    checked = steps("- fork: '{{ n }}'\n  do: [{gen: x}]\n", inputs="{n: integer}")
    result = await run_scripted(checked, {"n": 3_000_000_000})
    assert result.error is not None and result.error.code == "S705"
    with pytest.raises(SpecError, match="S212"):
        steps("- fork: 3000000000\n  do: [{gen: x}]\n")


async def test_a_loop_without_generations_can_be_stopped():
    source = '- for: a\n  in: range(10000)\n  do:\n    - for: b\n      in: range(10000)\n      do:\n        - set: {x: "{{ a + b }}"}\n'
    result = await run_scripted(steps(source, limits="{seconds: 0.1}"))
    assert result.error is not None and result.error.code == "S706"
    assert result.error.range is not None


async def test_nested_branch_paths_do_not_depend_on_timing():
    source = "- fork:\n    a: [{gen: slow}, {fork: 1, do: [{gen: x}]}]\n    b: [{fork: 1, do: [{gen: y}]}]\n"

    async def keys(first: str) -> dict[str, int]:
        backend = FakeBackend({"slow": "s", "x": "a", "y": "b"})
        gate = backend.close_gate(first)
        run = start(steps(source), {}, backend, RunOptions(seed=1))
        for _ in range(50):
            await asyncio.sleep(0)
        gate.set()
        await run.wait()
        return {request.label: request.noise_key for request in backend.requests}

    assert await keys("slow") == await keys("y")


async def test_cancel_before_the_first_step():
    run = start(steps("- gen: x\n"), {}, FakeBackend({"x": "a"}))
    run.cancel()
    assert [event.type async for event in run.events()][-1] == "run.cancelled"
    assert (await run.wait()).status == "cancelled"


async def test_token_limit_stops_in_the_middle_of_a_generation():
    backend = FakeBackend({"x": "a" * 100})
    result = await start(program("sglspec: v1\nlimits: {tokens: 10}\nsteps:\n  - gen: x\n"), {}, backend).wait()
    assert result.error is not None and result.error.code == "S705"
    assert result.outputs == {"x": "a" * 10}


async def test_cancel_in_the_middle_of_a_fork_gives_what_is_there():
    source = '- "Q"\n- fork:\n    a: [{gen: one}]\n    b: [{gen: two}]\n'
    backend = FakeBackend({"one": "1", "two": "2"})
    backend.close_gate("two")
    run = start(steps(source), {}, backend)
    await backend.until("end one")
    for _ in range(10):
        await asyncio.sleep(0)
    run.cancel()
    result = await run.wait()
    assert result.status == "cancelled"
    assert result.outputs == {"one": "1", "two": None}
    assert result.text == "Q"
    assert backend.open_sessions == 0


async def test_cancelling_is_not_caught():
    source = "- fork: i\n  in: [1, 2]\n  do: ['{{ i }}', {gen: x}]\n  on_error: keep\n- '{{ x }}'\n- fail: too far\n"
    backend = FakeBackend({"x": ["1", "2"]})
    backend.close_gate("x")
    run = start(steps(source), {}, backend)
    await backend.until("start x")
    run.cancel()
    result = await run.wait()
    assert (result.status, result.outputs) == ("cancelled", {"x": [None, None]})
    assert result.error is not None and result.error.code == "S714"


async def test_timeout():
    backend = FakeBackend({"one": "1"})
    backend.close_gate("one")
    result = await start(program("sglspec: v1\nlimits: {seconds: 0.05}\nsteps:\n  - gen: one\n"), {}, backend).wait()
    assert result.error is not None and result.error.code == "S706"
    assert backend.open_sessions == 0


async def test_events_are_gapless_with_one_terminal_event_for_every_reader():
    backend = FakeBackend({"tip": ["1", "22", "333"]})
    run = start(steps(GATHER), {}, backend)

    async def read() -> list[Any]:
        return [event async for event in run.events()]

    first, second = await asyncio.gather(read(), read())
    late = await read()
    assert first == second == late
    assert [event.seq for event in first] == list(range(len(first)))
    terminal = [event.type for event in first if event.type in ("run.succeeded", "run.failed", "run.cancelled")]
    assert terminal == ["run.succeeded"] and first[-1].type == "run.succeeded"
    by_branch: dict[str, str] = {}
    for event in first:
        if event.type == "delta":
            by_branch[event.branch] = by_branch.get(event.branch, "") + event.data["text"]
    assert by_branch == {"1.0": "1", "1.1": "22", "1.2": "333"}
    assert await anext(run.events(after=3)) == first[4]


async def test_noise_keys_depend_on_seed_branch_and_round_only():
    source = "- fork: 2\n  do:\n    - gen: x\n- for: r\n  in: [1, 2]\n  do:\n    - gen: y\n- gen: z\n  seed: 3\n"

    async def keys(seed: int, own: int = 3) -> list[tuple[str, int]]:
        backend = FakeBackend({"x": "a", "y": "b", "z": "c"})
        program = steps(source.replace("seed: 3", f"seed: {own}"))
        await start(program, {}, backend, RunOptions(seed=seed)).wait()
        return sorted((request.label, request.noise_key) for request in backend.requests)

    first, again, other = await keys(1), await keys(1), await keys(2)
    assert first == again
    assert len({key for _, key in first}) == 5
    assert not {key for _, key in first} & {key for _, key in other}
    assert [label for label, key in await keys(1, own=4) if (label, key) not in first] == ["z"]

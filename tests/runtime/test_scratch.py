"""`scratch` beside its parent."""

from __future__ import annotations

import asyncio

from tests.runtime.fake import FakeBackend, start, steps

ASIDE = """
- "Q"
- scratch:
    - "think:"
    - gen: slow
  export: [slow]
- gen: fast
- "{{ slow }}"
"""


async def test_the_parent_goes_on_until_it_reads_an_export():
    backend = FakeBackend({"slow": "S", "fast": "F"})
    gate = backend.close_gate("slow")
    run = start(steps(ASIDE), {}, backend)
    await backend.until("end fast")
    assert "end slow" not in backend.order
    gate.set()
    result = await run.wait()
    assert result.text == "QFS" and result.outputs == {"slow": "S", "fast": "F"}
    assert result.meta["slow"]["finish"] == "end"
    assert result.usage.generated_tokens == 2 and backend.open_sessions == 0


async def test_an_aside_that_fails_ends_the_program():
    backend = FakeBackend({"slow": RuntimeError("x"), "fast": "F"})
    backend.close_gate("fast")
    result = await asyncio.wait_for(start(steps("- scratch: [{fail: no}]\n- gen: fast\n"), {}, backend).wait(), 10)
    assert result.error is not None and result.error.code == "S701" and backend.open_sessions == 0


async def test_a_run_that_is_cancelled_closes_it():
    backend = FakeBackend({"slow": "S", "fast": "F"})
    backend.close_gate("slow")
    run = start(steps(ASIDE), {}, backend)
    await backend.until("end fast")
    run.cancel()
    result = await run.wait()
    assert result.status == "cancelled" and backend.open_sessions == 0


async def test_asides_are_awaited_at_the_end_also_unread():
    backend = FakeBackend({"slow": "S"})
    gate = backend.close_gate("slow")
    run = start(steps("- scratch: [{gen: slow}]\n  export: [slow]\n- return:\n"), {}, backend)
    await backend.until("start slow")
    gate.set()
    assert (await run.wait()).outputs == {"slow": "S"}


async def test_its_branch_is_numbered_among_the_forks():
    run = start(steps("- fork: 2\n  do: [{gen: a}]\n- scratch: [{gen: b}]\n"), {}, FakeBackend({"a": "1", "b": "2"}))
    await run.wait()
    started = [e.branch for e in run.log.events if e.type == "branch.started"]
    assert sorted(started) == ["1.0", "1.1", "2.0"]

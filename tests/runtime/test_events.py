"""The log of a run's events."""

from __future__ import annotations

from sglspec.runtime.events import EventLog


async def test_a_log_forgets_what_its_reader_has_seen():
    log = EventLog()
    for number in range(3):
        log.add("text", text=str(number))
    seen: list[int] = []
    async for events in log.batches():
        seen += [event.seq for event in events]
        log.forget(events[-1].seq)
        assert log.events == [] and log.count == seen[-1] + 1
        log.add("text" if len(seen) < 5 else "run.succeeded")
    assert seen == [0, 1, 2, 3, 4, 5]
    assert log.closed
    log.forget(2)
    assert log.count == 6

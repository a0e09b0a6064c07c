"""What needs a real socket: events as they happen, and clients that leave or send too much."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sglspec.server.asked import wants_events
from sglspec.server.runs.feed import TERMINAL

EVENTS = {"Accept": "text/event-stream"}
GEN = "sglspec: v1\nsteps:\n  - 'Once '\n  - gen: story\n"


def parse(text: str) -> list[dict[str, Any]]:
    """The events of a stream; every one must have the three fields, in order, and nothing else."""
    assert text.endswith("\n\n")
    events: list[dict[str, Any]] = []
    first, *blocks = text[:-2].split("\n\n")
    assert first == "retry: 2000"
    for block in blocks:
        if block.startswith(":"):
            continue
        first, second, third = block.split("\n")
        event = json.loads(third.removeprefix("data: "))
        assert first == f"id: {event['seq']}"
        assert second == f"event: {event['type']}"
        events.append(event)
    return events


def check_stream(events: list[dict[str, Any]]) -> None:
    assert [e["seq"] for e in events] == list(range(len(events)))
    assert [e["type"] in TERMINAL for e in events] == [False] * (len(events) - 1) + [True]
    assert len({e["run_id"] for e in events}) == 1


async def test_the_essay_judge_as_events(make_app, listening, judge) -> None:
    async with listening(make_app()) as client:
        answer = await client.post("/v1/runs", json={"spec": judge, "inputs": {"essay": "é\u2028"}}, headers=EVENTS)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-store", "no")
    events = parse(answer.content.decode())
    check_stream(events)
    assert [event["type"] for event in events[:2]] == ["run.queued", "run.started"]
    assert events[-1]["type"] == "run.succeeded"
    assert events[-1]["outputs"]["grade"] == {"summary": "good", "letter": "A"}
    assert len({e["branch"] for e in events}) == 4
    assert "delta" in {e["type"] for e in events}


async def test_a_failing_run_ends_its_stream_with_the_error(make_app, listening) -> None:
    async with listening(make_app(replies={})) as client:
        answer = await client.post("/v1/runs", json={"spec": GEN}, headers=EVENTS)
    events = parse(answer.text)
    check_stream(events)
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("run.failed", "S710")


async def test_errors_before_the_first_event_are_problems(make_app, listening) -> None:
    async with listening(make_app()) as client:
        answer = await client.post("/v1/runs", json={"spec": "x"}, headers=EVENTS)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


async def test_a_fault_ends_the_stream_with_a_terminal_event(make_app, listening, broken) -> None:
    async with listening(make_app(broken())) as client:
        answer = await client.post("/v1/runs", json={"spec": GEN}, headers=EVENTS)
    events = parse(answer.text)
    check_stream(events)
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("run.failed", "S799")
    assert "secret" not in answer.text


async def test_pings_while_nothing_happens(make_app, listening, stuck) -> None:
    backend = stuck()
    async with (
        listening(make_app(backend, ping_seconds=0.05)) as client,
        client.stream("POST", "/v1/runs", json={"spec": GEN}, headers=EVENTS) as answer,
    ):
        text = ""
        async for chunk in answer.aiter_text():
            text += chunk
            if text.count(": ping\n\n") >= 3:
                break
    assert [e["seq"] for e in parse(text)] == list(range(len(parse(text))))


@pytest.mark.parametrize("headers", [EVENTS, {}], ids=["events", "json"])
async def test_a_client_that_leaves_cancels_its_run(make_app, listening, stuck, headers: dict[str, str]) -> None:
    backend = stuck()
    app = make_app(backend)
    async with listening(app) as client:
        request = asyncio.create_task(client.post("/v1/runs", json={"spec": GEN}, headers=headers))
        await asyncio.wait_for(backend.started.wait(), 10)
        assert len(app.state.service.runs) == 1
        request.cancel()
        await asyncio.wait_for(backend.cancelled.wait(), 10)
        async with asyncio.timeout(60):
            while len(app.state.service.runs):  # noqa: ASYNC110 - the set of runs has no event to wait for
                await asyncio.sleep(0.01)
        assert (await client.get("/livez")).status_code == 200


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/event-stream", True),
        ("Text/Event-Stream;q=0.9", True),
        ("text/event-stream, */*", True),
        ("text/event-stream;q=0, */*", False),
        ("application/json, text/event-stream", False),
        ("text/event-stream, application/json", True),
        ("application/json;q=0.5, text/event-stream", True),
        ("text/event-stream;q=x, application/json", False),
        ("text/event-stream;q=²", False),
        (",,;;", False),
    ],
)
def test_which_answer_is_wanted(accept: str, wanted: bool) -> None:
    assert wants_events(accept) == wanted


async def test_a_client_that_sends_too_much_still_gets_its_answer(make_app, listening) -> None:
    async def chunks():
        for _ in range(80):
            yield b" " * 65_536

    async with listening(make_app()) as client:
        answer = await client.post("/v1/runs", content=chunks(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")


async def test_a_run_that_breaks_while_it_ends_still_ends_its_stream(make_app, listening, monkeypatch) -> None:
    async def finish(*_: object) -> None:
        raise ZeroDivisionError("secret of the house")

    monkeypatch.setattr("sglspec.runtime.run.Run._finish", finish)
    async with listening(make_app(replies={"story": "x"})) as client:
        answer = await client.post("/v1/runs", json={"spec": GEN}, headers=EVENTS)
        plain = await client.post("/v1/runs", json={"spec": GEN})
    check_stream(parse(answer.text))
    assert parse(answer.text)[-1]["error"]["code"] == "S799"
    assert (plain.status_code, plain.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text + plain.text

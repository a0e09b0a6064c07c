"""Four views of one run: waiting, following, asking later; and what a client can ask of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from sglspec.server.runs import manager
from sglspec.server.storage import runs as table
from tests.server.test_stream import check_stream, parse

EVENTS = {"Accept": "text/event-stream"}
ASYNC = {"Prefer": "respond-async"}
GEN = "sglspec: v1\nsteps:\n  - 'Once '\n  - gen: story\n"
SAY = "sglspec: v1\nsteps:\n  - set: {x: 1}\n"
REPLIES = {"story": ["upon a time"] * 20}


async def until_ended(client, run: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            face = (await client.get(f"/v1/runs/{run}", headers={"Prefer": "wait=5"})).json()
            if face["status"] not in ("queued", "running"):
                return face


async def test_a_run_that_nobody_waits_for(make_app, listening, database) -> None:
    async with listening(make_app(replies=REPLIES, database=database)) as client:
        body = {"spec": GEN, "trace": True, "seed": 2**64 - 1}
        made = await client.post("/v1/runs", json={**body, "seed": str(2**64 - 1)}, headers=ASYNC)
        run = made.json()["id"]
        face = await until_ended(client, run)
        result = (await client.get(f"/v1/runs/{run}/result")).json()
        trace = (await client.get(f"/v1/runs/{run}/trace")).json()
        page = (await client.get(f"/v1/runs/{run}/events?after=-1")).json()
        rest = (await client.get(f"/v1/runs/{run}/events?after=2")).json()
        stream = parse((await client.get(f"/v1/runs/{run}/events")).text)
        resumed = await client.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": "2"})
        end = await client.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": str(page["next"])})
    assert (made.status_code, made.headers["location"]) == (202, f"/v1/runs/{run}")
    assert made.headers["preference-applied"] == "respond-async"
    assert (face["status"], face["mode"], face["seed"]) == ("succeeded", "async", str(2**64 - 1))
    assert face["created_at"] <= face["started_at"] <= face["ended_at"]
    assert (result["run_id"], result["outputs"]) == (run, {"story": "upon a time"})
    assert face["usage"] == result["usage"]
    assert trace["tokens"] == [] and trace["branches"] == {}  # scripted replies have no tokens
    check_stream(stream)
    assert page["data"] == stream and rest["data"] == stream[3:] and page["status"] == "succeeded"
    assert stream[0]["type"] == "run.queued" and stream[-1]["outputs"] == result["outputs"]
    assert parse(resumed.text) == stream[3:]
    assert end.text == "retry: 2000\n\n"


async def test_a_trace_has_the_seed_as_the_run_has_it(make_app, listening, database) -> None:
    async with listening(make_app(replies=REPLIES, database=database)) as client:
        body = {"spec": GEN, "trace": True}
        runs = [await client.post("/v1/runs", json=body | {"seed": seed}) for seed in (7, str(2**64 - 1))]
        traces = [await client.get(f"/v1/runs/{run.json()['run_id']}/trace") for run in runs]
    assert [trace.json()["seed"] for trace in traces] == [7, str(2**64 - 1)]


async def test_waiting_for_a_while(make_app, listening, stuck) -> None:
    backend = stuck()
    async with listening(make_app(backend)) as client:
        short = await client.post("/v1/runs", json={"spec": GEN}, headers={"Prefer": "respond-async, wait=0.05"})
        run = short.json()["id"]
        state = await client.get(f"/v1/runs/{run}")
        unchanged = await client.get(f"/v1/runs/{run}", headers={"If-None-Match": state.headers["etag"]})
        early = await client.get(f"/v1/runs/{run}/result")
        untraced = await client.get(f"/v1/runs/{run}/trace")
        cancelled = [await client.post(f"/v1/runs/{run}/cancel") for _ in range(2)]
        face = await until_ended(client, run)
        none = await client.get(f"/v1/runs/{run}/trace")
        whole = await client.post("/v1/runs", json={"spec": SAY}, headers={"Prefer": "wait=20"})
    assert (short.status_code, short.json()["status"]) == (202, "running")
    assert unchanged.status_code == 304
    assert (early.status_code, early.json()["code"], untraced.status_code) == (409, "not-ended", 409)
    assert [c.status_code for c in cancelled] == [202, 202]
    assert all(c.json()["cancel_requested"] or c.json()["status"] == "cancelled" for c in cancelled)
    assert (face["status"], face["error"]["code"]) == ("cancelled", "S714")
    assert backend.cancelled.is_set()
    assert (none.status_code, none.json()["code"]) == (404, "no-trace")
    assert (whole.status_code, whole.json()["outputs"]) == (200, {"x": 1})


async def test_following_a_run_while_it_goes(make_app, listening, stuck) -> None:
    backend = stuck()
    async with listening(make_app(backend)) as client:
        run = (await client.post("/v1/runs", json={"spec": GEN}, headers=ASYNC)).json()["id"]
        await asyncio.wait_for(backend.started.wait(), 10)
        readers = [asyncio.create_task(client.get(f"/v1/runs/{run}/events")) for _ in range(3)]
        await asyncio.sleep(0.1)
        await client.post(f"/v1/runs/{run}/cancel")
        texts = [(await reader).text for reader in readers]
    for text in texts:
        check_stream(parse(text))
        assert parse(text)[-1]["type"] == "run.cancelled"


async def test_a_reader_that_leaves_does_not_end_a_run_that_nobody_waits_for(make_app, listening, stuck) -> None:
    backend = stuck()
    async with listening(make_app(backend)) as client:
        run = (await client.post("/v1/runs", json={"spec": GEN}, headers=ASYNC)).json()["id"]
        async with client.stream("GET", f"/v1/runs/{run}/events") as answer:
            async for _ in answer.aiter_bytes():
                break
        await asyncio.sleep(0.2)
        assert (await client.get(f"/v1/runs/{run}")).json()["status"] == "running"


@pytest.mark.parametrize("detach", [True, False])
async def test_detached_runs_outlive_their_client(make_app, listening, stuck, detach: bool) -> None:
    backend = stuck()
    app = make_app(backend)
    async with listening(app) as client:
        request = asyncio.create_task(client.post("/v1/runs", json={"spec": GEN, "detach": detach}, headers=EVENTS))
        await asyncio.wait_for(backend.started.wait(), 10)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        if not detach:
            await asyncio.wait_for(backend.cancelled.wait(), 10)
        await asyncio.sleep(0.1)
        assert len(app.state.service.runs) == int(detach)


async def test_the_queue(make_app, listening, stuck) -> None:
    backend = stuck()
    async with listening(make_app(backend, runs=1, waiting=2)) as client:
        first = (await client.post("/v1/runs", json={"spec": GEN}, headers=ASYNC)).json()["id"]
        await asyncio.wait_for(backend.started.wait(), 10)
        second = (await client.post("/v1/runs", json={"spec": SAY}, headers=ASYNC)).json()["id"]
        waiting = asyncio.create_task(client.post("/v1/runs", json={"spec": SAY}, headers=EVENTS))
        async with asyncio.timeout(60):
            while len((await client.get("/v1/runs?status=queued")).json()["data"]) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        refused = await client.post("/v1/runs", json={"spec": SAY})
        states = [(await client.get(f"/v1/runs/{run}")).json()["status"] for run in (first, second)]
        await client.post(f"/v1/runs/{second}/cancel")
        gone = await until_ended(client, second)
        await client.post(f"/v1/runs/{first}/cancel")
        events = parse((await waiting).text)
        page = (await client.get("/v1/runs")).json()["data"]
    assert states == ["running", "queued"]
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "busy", "1")
    assert (gone["status"], gone["started_at"]) == ("cancelled", None)
    check_stream(events)
    assert (events[0]["position"], events[-1]["type"]) == (1, "run.succeeded")
    assert [r["status"] for r in page] == ["succeeded", "cancelled", "cancelled"]


async def test_a_client_that_leaves_the_queue(make_app, listening, stuck) -> None:
    backend = stuck()
    app = make_app(backend, runs=1, waiting=5)
    async with listening(app) as client:
        first = (await client.post("/v1/runs", json={"spec": GEN}, headers=ASYNC)).json()["id"]
        leaving = [asyncio.create_task(client.post("/v1/runs", json={"spec": SAY}, headers=h)) for h in (EVENTS, {})]
        async with asyncio.timeout(60):
            while len(app.state.service.runs) < 3:  # noqa: ASYNC110 - the set of runs has no event to wait for
                await asyncio.sleep(0.01)
        for request in leaving:
            request.cancel()
        async with asyncio.timeout(60):
            while len(app.state.service.runs) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        rows = (await client.get("/v1/runs?status=cancelled")).json()["data"]
        assert len(rows) == 2 and all(row["started_at"] is None for row in rows)
        assert (await client.get(f"/v1/runs/{first}")).json()["status"] == "running"


@pytest.mark.parametrize("headers", [{"Cancel-After": "1000ms"}, {"Cancel-After": "1h", "Run-Deadline": "1"}])
async def test_deadlines(make_app, listening, stuck, headers: dict[str, str]) -> None:
    backend = stuck()
    async with listening(make_app(backend)) as client:
        await client.post("/v1/runs", json={"spec": SAY})  # the store is open then
        result = (await client.post("/v1/runs", json={"spec": GEN}, headers=headers)).json()
        stream = parse((await client.post("/v1/runs", json={"spec": GEN}, headers=headers | EVENTS)).text)
        face = (await client.get(f"/v1/runs/{result['run_id']}")).json()
    assert (result["status"], result["error"]["code"]) == ("expired", "S718")
    assert (face["status"], face["error"]["code"]) == ("expired", "S718") and face["deadline"] is not None
    check_stream(stream)
    assert (stream[-1]["type"], stream[-1]["error"]["code"]) == ("run.expired", "S718")


async def test_a_deadline_in_the_queue(make_app, listening, stuck) -> None:
    backend = stuck()
    async with listening(make_app(backend, runs=1)) as client:
        await client.post("/v1/runs", json={"spec": GEN}, headers=ASYNC)
        await asyncio.wait_for(backend.started.wait(), 10)
        past = await client.post("/v1/runs", json={"spec": SAY}, headers={"Run-Deadline": "0001-01-01T00:00:00+23:59"})
        soon = await client.post("/v1/runs", json={"spec": SAY}, headers={"Cancel-After": "0.1"})
        far = await client.post("/v1/runs", json={"spec": SAY}, headers=ASYNC | {"Cancel-After": "999999999h"})
    assert far.json()["deadline"] is not None
    for answer in (past, soon):
        assert (answer.json()["status"], answer.json()["error"]["code"]) == ("aborted", "S718")


@pytest.mark.parametrize(
    "headers",
    [{"Run-Deadline": "soon"}, {"Run-Deadline": "2030-01-01T00:00:00"}, {"Run-Deadline": "-1"}, {"Cancel-After": "1d"},
     {"Cancel-After": ""}, {"Cancel-After": "9" * 40}, {"Prefer": "wait=x"}, {"Prefer": "wait"}, {"Idempotency-Key": ""},
     {"Idempotency-Key": "k" * 256}, {"Run-Deadline": "99999-01-01T00:00:00Z"}],
)  # fmt: skip
async def test_headers_that_cannot_be_read(make_app, client_of, headers: dict[str, str]) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", json={"spec": SAY}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request"), answer.text


async def test_a_request_with_a_key_runs_once(make_app, listening, database) -> None:
    key = {"Idempotency-Key": "a key"}
    async with listening(make_app(replies=REPLIES, database=database)) as client:
        first, *others = await asyncio.gather(
            *(client.post("/v1/runs", json={"spec": GEN}, headers=key) for _ in range(5))
        )
        stream = await client.post("/v1/runs", json={"spec": GEN}, headers=key | EVENTS)
        later = await client.post("/v1/runs", json={"spec": GEN}, headers=key | ASYNC)
        other = await client.post("/v1/runs", json={"spec": GEN, "seed": 1}, headers=key)
        runs = (await client.get("/v1/runs")).json()["data"]
    answers = [first, *others]
    assert len({a.json()["run_id"] for a in answers}) == 1 and all(a.status_code == 200 for a in answers)
    assert sorted(a.headers.get("idempotency-replayed", "false") for a in answers) == ["false"] + ["true"] * 4
    check_stream(parse(stream.text))
    assert (stream.headers["idempotency-replayed"], later.json()["id"]) == ("true", first.json()["run_id"])
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")
    assert len(runs) == 1


async def test_a_run_with_a_key_is_there_for_who_comes_back(make_app, listening, stuck) -> None:
    backend = stuck()
    app = make_app(backend)
    key = {"Idempotency-Key": "k"}
    async with listening(app) as client:
        request = asyncio.create_task(client.post("/v1/runs", json={"spec": GEN}, headers=key))
        await asyncio.wait_for(backend.started.wait(), 10)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        again = asyncio.create_task(client.post("/v1/runs", json={"spec": GEN}, headers=key))
        await asyncio.sleep(0.2)
        assert len(app.state.service.runs) == 1 and not backend.cancelled.is_set()
        app.state.service.runs.cancel_all()
        assert (await again).headers["idempotency-replayed"] == "true"


async def test_a_store_that_fails_when_a_run_ends(make_app, listening, database, monkeypatch) -> None:
    """The client gets its answer, and the store the end of the run when it works again."""
    real, failures = table.finish, 0

    def failing(*arguments: Any, **named: Any) -> bool:
        nonlocal failures
        failures += 1
        if failures < 4:
            raise OperationalError("finish", {}, Exception("disk full"))
        return real(*arguments, **named)

    monkeypatch.setattr(table, "finish", failing)
    monkeypatch.setattr(manager, "_TRIES", 1)
    monkeypatch.setattr(manager, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(manager, "FLUSH_SECONDS", 0.01)
    async with listening(make_app(database=database)) as client:
        answer = await client.post("/v1/runs", json={"spec": SAY})
        run = answer.json()["run_id"]
        face = (await client.get(f"/v1/runs/{run}", headers={"Prefer": "wait=20"})).json()
        result = await client.get(f"/v1/runs/{run}/result")
        events = (await client.get(f"/v1/runs/{run}/events?after=-1")).json()["data"]
    assert (answer.status_code, face["status"], result.json()) == (200, "succeeded", answer.json())
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "run.succeeded"


async def test_pages_of_runs(make_app, client_of, database) -> None:
    async with client_of(make_app(database=database)) as client:
        await client.post("/v1/programs?name=p", content=SAY, headers={"Content-Type": "application/yaml"})
        ids = [(await client.post("/v1/programs/p/runs")).json()["run_id"] for _ in range(3)]
        await client.post("/v1/runs", json={"spec": "sglspec: v1\nsteps: [{fail: no}]"})
        failed = (await client.get("/v1/runs?status=failed,expired")).json()
        first = (await client.get("/v1/runs?program=p&limit=2")).json()
        second = (await client.get(f"/v1/runs?program=p&limit=2&after={first['next']}")).json()
        wrong = await client.get("/v1/runs?status=lost")
    assert [r["error"]["code"] for r in failed["data"]] == ["S701"]
    assert [r["id"] for r in first["data"] + second["data"]] == ids[::-1]
    assert second["next"] is None and wrong.status_code == 400


@pytest.mark.parametrize("run", ["x", "run_", "run_" + "0" * 28, "run_" + "A" * 28, "%00", "run_" + "0" * 200])
async def test_runs_that_there_are_not(make_app, client_of, run: str) -> None:
    async with client_of(make_app()) as client:
        for method, rest in (
            ("GET", ""),
            ("GET", "/result"),
            ("GET", "/trace"),
            ("GET", "/events"),
            ("POST", "/cancel"),
        ):
            answer = await client.request(method, f"/v1/runs/{run}{rest}")
            assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


@pytest.mark.parametrize("after", [2**31, 10**15 - 1])
async def test_places_far_behind_the_end_of_a_log(make_app, client_of, database, after: int) -> None:
    async with client_of(make_app(database=database)) as client:
        run = (await client.post("/v1/runs", json={"spec": "sglspec: v1\nsteps: [hello]\n"})).json()["run_id"]
        page = await client.get(f"/v1/runs/{run}/events?after={after}")
        stream = await client.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": str(after)})
    assert (page.status_code, page.json()["data"]) == (200, [])
    assert stream.text.count("event: ") == 1 and "event: run.succeeded" in stream.text


@pytest.mark.parametrize("query", ["after=x", "after=-2", "after=99999999999999999999", "after="])
async def test_places_in_a_log_that_there_are_not(make_app, client_of, query: str) -> None:
    async with client_of(make_app()) as client:
        run = (await client.post("/v1/runs", json={"spec": SAY})).json()["run_id"]
        assert (await client.get(f"/v1/runs/{run}/events?{query}")).status_code == 400
        assert (await client.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": query})).status_code == 400


async def test_inputs_are_kept_only_while_a_run_waits(make_app, listening, stuck, tmp_path) -> None:
    from sglspec.server.storage.database import database_at

    program = "sglspec: v1\ninputs: {word: {type: string, secret: true}}\nsteps: [{set: {x: 1}}]\n"
    backend = stuck()
    async with listening(make_app(backend, database=database_at(str(tmp_path / "s.db")), runs=1)) as client:
        first = (await client.post("/v1/runs", json={"spec": GEN}, headers=ASYNC)).json()["id"]
        body = {"spec": program, "inputs": {"word": "sesame-seeds"}}
        run = (await client.post("/v1/runs", json=body, headers=ASYNC)).json()["id"]
        await client.post(f"/v1/runs/{first}/cancel")
        assert (await until_ended(client, run))["status"] == "succeeded"
        told = [await client.get(f"/v1/runs/{run}{rest}") for rest in ("", "/result", "/events")]
    import sqlite3

    dump = "\n".join(sqlite3.connect(tmp_path / "s.db").iterdump())
    assert "sesame" not in dump + "".join(answer.text for answer in told)
    assert json.dumps(run) in "".join(answer.text for answer in told)

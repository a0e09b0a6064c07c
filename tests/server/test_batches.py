"""Batches: rows in, results by row out, whoever does the work."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from sglspec.server.storage import batches as table
from sglspec.server.storage import runs as run_table
from sglspec.server.storage.database import database_at

YAML = {"Content-Type": "application/yaml"}
JSONL = {"Content-Type": "application/jsonl"}
DOUBLE = "sglspec: v1\nname: double\ninputs: {n: integer}\nsteps:\n  - set: {twice: '{{ n * 2 }}'}\n"
GEN = "sglspec: v1\nname: tale\ninputs: {n: integer}\nsteps:\n  - 'Once '\n  - gen: story\n"


async def until_ended(client, batch: str) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while True:
            face = (await client.get(f"/v1/batches/{batch}")).json()
            if face["status"] not in ("queued", "running"):
                return face
            await asyncio.sleep(0.05)


def lines(answer) -> list[dict[str, Any]]:
    assert answer.headers["content-type"] == "application/jsonl"
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_rows_in_results_out(make_app, listening, database) -> None:
    rows = [{"n": n, "custom_id": f"row-{n}"} for n in range(5)] + [{"n": "x"}, {"n": 3, "custom_id": 7}]
    async with listening(make_app(database=database)) as client:
        await client.post("/v1/programs", content=DOUBLE, headers=YAML)
        made = await client.post("/v1/batches", json={"program": "double@1", "rows": rows, "seed": 1})
        batch = made.json()["id"]
        face = await until_ended(client, batch)
        good = lines(await client.get(f"/v1/batches/{batch}/output"))
        bad = lines(await client.get(f"/v1/batches/{batch}/errors"))
        run = (await client.get(f"/v1/runs/{good[0]['run_id']}")).json()
        page = (await client.get("/v1/batches")).json()
        again = await client.post(f"/v1/batches/{batch}/cancel")
    assert (made.status_code, made.headers["location"]) == (201, f"/v1/batches/{batch}")
    assert (face["status"], face["rows"], face["counts"]) == ("succeeded", 7, {"succeeded": 6, "refused": 1})
    assert [(r["row"], r["custom_id"], r["outputs"]) for r in good[:2]] == [
        (1, "row-0", {"twice": 0}), (2, "row-1", {"twice": 2}),
    ]  # fmt: skip
    assert (good[-1]["row"], good[-1]["custom_id"]) == (7, "7")
    assert len({r["seed"] for r in good}) == 6
    assert [(r["row"], r["error"]["code"]) for r in bad] == [(6, "S401")]
    assert (run["mode"], run["status"]) == ("batch", "succeeded")
    assert [b["id"] for b in page["data"]] == [batch] and "counts" not in page["data"][0]
    assert (again.status_code, again.json()["status"]) == (202, "succeeded")


async def test_rows_as_lines(make_app, listening) -> None:
    body = b'{"n": 1}\n\n{"n": 2, "more": [1]}\r\n{"n": NaN}\n[3]\n{"n": 4'
    async with listening(make_app()) as client:
        await client.post("/v1/programs", content=DOUBLE, headers=YAML)
        made = await client.post("/v1/batches?program=double&seed=9", content=body, headers=JSONL)
        face = await until_ended(client, made.json()["id"])
        bad = lines(await client.get(face["urls"]["errors"]))
    assert face["counts"] == {"succeeded": 2, "refused": 3}
    assert [r["error"]["code"] for r in bad] == ["S411"] * 3


@pytest.mark.parametrize(
    ("query", "body", "kind", "status"),
    [
        ("", "{}", "application/json", 400),
        ("", '{"program": "double"}', "application/json", 400),
        ("", '{"program": "double", "rows": []}', "application/json", 400),
        ("", '{"program": "double", "rows": [1]}', "application/json", 400),
        ("", '{"program": 1, "rows": [{"n": 1}]}', "application/json", 400),
        ("", '{"program": "nothing", "rows": [{"n": 1}]}', "application/json", 404),
        ("", '{"program": "double", "rows": [{"n": 1}], "seed": -1}', "application/json", 400),
        ("", '{"program": "double", "rows": [{"n": 1}], "row": 1}', "application/json", 400),
        ("", '{"n": 1}', "application/jsonl", 400),
        ("?program=double", "", "application/jsonl", 400),
        ("?program=double&seed=x", '{"n": 1}', "application/jsonl", 400),
        ("?program=double@2", '{"n": 1}', "application/jsonl", 404),
        ("?program=double", '{"n": 1}', "text/plain", 415),
    ],
)
async def test_batches_that_are_not_made(make_app, client_of, query, body, kind, status) -> None:
    async with client_of(make_app()) as client:
        await client.post("/v1/programs", content=DOUBLE, headers=YAML)
        answer = await client.post(f"/v1/batches{query}", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
        assert (await client.get("/v1/batches")).json()["data"] == []


@pytest.mark.parametrize("batch", ["x", "batch_" + "0" * 28, "run_" + "0" * 28, "%00"])
async def test_batches_that_there_are_not(make_app, client_of, batch: str) -> None:
    async with client_of(make_app()) as client:
        for method, rest in (("GET", ""), ("GET", "/output"), ("GET", "/errors"), ("POST", "/cancel")):
            assert (await client.request(method, f"/v1/batches/{batch}{rest}")).status_code == 404


async def test_a_batch_that_is_cancelled(make_app, listening, stuck) -> None:
    backend = stuck()
    app = make_app(backend, runs=2)
    async with listening(app) as client:
        await client.post("/v1/programs", content=GEN, headers=YAML)
        batch = (
            await client.post("/v1/batches", json={"program": "tale", "rows": [{"n": n} for n in range(9)]})
        ).json()
        await asyncio.wait_for(backend.started.wait(), 10)
        assert len(app.state.service.runs) == 1  # half of the slots
        asked = await client.post(f"/v1/batches/{batch['id']}/cancel")
        face = await until_ended(client, batch["id"])
        assert (asked.json()["cancel_requested"], face["status"], face["counts"]) == (True, "cancelled", {"waiting": 9})
        async with asyncio.timeout(60):
            while len(app.state.service.runs):  # noqa: ASYNC110 - the set of runs has no event to wait for
                await asyncio.sleep(0.01)
        assert backend.cancelled.is_set()


async def test_a_batch_that_is_cancelled_while_a_row_is_stored(make_app, listening, stuck, monkeypatch) -> None:
    """The run of that row does not stay behind."""
    app = make_app(stuck(), runs=2)
    runs = app.state.service.runs
    create, stored, go_on = runs.create, asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any) -> Any:
        made = await create(*arguments)
        stored.set()
        await go_on.wait()
        return made

    monkeypatch.setattr(runs, "create", slow)
    async with listening(app) as client:
        await client.post("/v1/programs", content=GEN, headers=YAML)
        batch = (await client.post("/v1/batches", json={"program": "tale", "rows": [{"n": 1}]})).json()["id"]
        await asyncio.wait_for(stored.wait(), 10)
        await client.post(f"/v1/batches/{batch}/cancel")
        rows = [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "_row"]
        async with asyncio.timeout(30):
            while not all(task.cancelling() for task in rows):  # noqa: ASYNC110 - a cancel tells nobody
                await asyncio.sleep(0.01)
        go_on.set()
        assert (await until_ended(client, batch))["status"] == "cancelled"
        run = (await client.get("/v1/runs")).json()["data"][0]["id"]
        face = (await client.get(f"/v1/runs/{run}", headers={"Prefer": "wait=20"})).json()
    assert face["status"] == "cancelled"


@pytest.mark.parametrize("step", ["row_done", "finish", "pending"])
async def test_a_store_that_fails_for_a_while(make_app, listening, place, monkeypatch, step: str) -> None:
    """The process goes on with its batch."""
    real, failed = getattr(table, step), asyncio.Event()

    def failing(connection: Any, **arguments: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise OperationalError(step, {}, Exception("disk full"))
        return real(connection, **arguments)

    monkeypatch.setattr(table, step, failing)
    monkeypatch.setattr("sglspec.server.batches.LOOK_SECONDS", 0.01)
    async with listening(make_app(replies={"story": "x"}, database=database_at(place))) as client:
        await client.post("/v1/programs", content=GEN, headers=YAML)
        batch = (await client.post("/v1/batches", json={"program": "tale", "rows": [{"n": 1}, {"n": 2}]})).json()["id"]
        face = await until_ended(client, batch)
    assert failed.is_set() and (face["status"], face["counts"]) == ("succeeded", {"succeeded": 2})


async def test_another_process_goes_on_with_a_batch(make_app, listening, stuck, place) -> None:
    first, backend = database_at(place), stuck()
    async with listening(make_app(backend, database=first)) as client:
        await client.post("/v1/programs", content=GEN, headers=YAML)
        batch = (
            await client.post("/v1/batches", json={"program": "tale", "rows": [{"n": n} for n in range(4)]})
        ).json()["id"]
        await asyncio.wait_for(backend.started.wait(), 10)
    second = database_at(place)
    left = await second.read(partial(table.get, batch=batch))
    assert left is not None and (left.state, left.owner) == ("running", None)
    async with listening(make_app(replies={"story": "x"}, database=second)) as client:
        face = await until_ended(client, batch)
        good = lines(await client.get(f"/v1/batches/{batch}/output"))
    assert face["counts"] == {"succeeded": 4} and [r["row"] for r in good] == [1, 2, 3, 4]


async def test_a_process_that_died_left_runs(make_app, listening, place) -> None:
    """A run that had begun is failed with the reason, one that nobody waits for is run, one that somebody waited for is
    aborted; each has one terminal event."""
    dead = database_at(place)
    from tests.server.test_storage import created

    await dead.write(partial(run_table.renew, owner="dead", expires=0.0))
    begun, waiting = await created(dead, owner="dead"), await created(dead, owner="dead")
    watched = await created(dead, owner="dead", mode="stream")
    await dead.write(partial(run_table.begin, run=begun, owner="dead"))
    await dead.write(
        partial(
            run_table.append,
            owner="dead",
            chunks=[run_table.Chunk(begun, 0, 0, '{"run_id":"x","seq":0,"type":"run.started"}')],
        )
    )
    queued = run_table.Chunk(waiting, 0, 0, f'{{"run_id":"{waiting}","seq":0,"type":"run.queued"}}')
    await dead.write(partial(run_table.append, owner="dead", chunks=[queued]))
    await dead.write(
        lambda c: c.execute(
            run_table.runs.update().where(run_table.runs.c.id == waiting).values(request='{"inputs":{},"trace":false}')
        )
    )
    await dead.close()
    async with listening(make_app(database=database_at(place))) as client:
        faces = {
            run: (await client.get(f"/v1/runs/{run}", headers={"Prefer": "wait=20"})).json()
            for run in (begun, waiting, watched)
        }
        logs = {run: (await client.get(f"/v1/runs/{run}/events?after=-1")).json()["data"] for run in faces}
        beyond = await client.get(f"/v1/runs/{begun}/events", headers={"Last-Event-ID": "50"})
    assert [faces[run]["status"] for run in (begun, waiting, watched)] == ["failed", "succeeded", "aborted"]
    assert (faces[begun]["error"]["code"], faces[watched]["error"]["code"]) == ("S719", "S719")
    assert [[e["type"] for e in logs[run]][-1] for run in (begun, waiting, watched)] == [
        "run.failed",
        "run.succeeded",
        "run.aborted",
    ]
    assert [e["seq"] for e in logs[begun]] == [0, 1]
    assert [e["seq"] for e in logs[waiting]] == list(range(len(logs[waiting])))
    assert beyond.text.count("event: run.failed") == 1  # who saw more than was stored still learns the end

"""Programs as endpoints: versions, aliases, pages, and running them by name."""

from __future__ import annotations

import pytest
from sqlalchemy import text

YAML = {"Content-Type": "application/yaml"}
JSON = {"Content-Type": "application/json"}
TALE = "sglspec: v1\nname: tale\ninputs: {who: string}\nsteps:\n  - 'Once {{ who }} '  # ü\r\n  - gen: story\n"
SAY = "sglspec: v1\nsteps:\n  - set: {x: %s}\n"


async def test_a_program_is_stored_and_run(make_app, client_of, database) -> None:
    async with client_of(make_app(replies={"story": "a"}, database=database)) as client:
        first = await client.post("/v1/programs", content=TALE.encode(), headers=YAML)
        again = await client.post("/v1/programs", content=TALE.encode(), headers=YAML)
        changed = await client.post("/v1/programs", content=TALE.replace("Once", "Twice").encode(), headers=YAML)
        source = await client.get("/v1/programs/tale@1/source")
        run = await client.post("/v1/programs/tale@1/runs", json={"inputs": {"who": "Ada"}, "seed": 3})
        latest = await client.post("/v1/programs/tale/runs", json={"inputs": {"who": "Ada"}})
        state = (await client.get(f"/v1/runs/{run.json()['run_id']}")).json()
    assert (first.status_code, again.status_code, changed.status_code) == (201, 200, 201)
    assert first.headers["location"] == "/v1/programs/tale/versions/1"
    assert first.json()["digest"] == again.json()["digest"] != changed.json()["digest"]
    assert (again.json()["version"], changed.json()["version"]) == (1, 2)
    assert source.content == TALE.encode()
    assert run.json()["text"] == "Once Ada a" and run.json()["seed"] == 3
    assert latest.json()["text"] == "Twice Ada a"
    assert state["status"] == "succeeded"
    assert state["program"] == {"name": "tale", "version": 1, "digest": first.json()["digest"]}


async def test_the_body_is_the_program_in_json_too(make_app, client_of) -> None:
    text = '{"sglspec": "v1",\n "steps": [{"set": {"x": "\\ud83d\\ude00"}}]}'
    async with client_of(make_app()) as client:
        made = await client.post("/v1/programs?name=smile", content=text.encode(), headers=JSON)
        run = await client.post("/v1/programs/smile/runs")
    assert made.status_code == 201
    assert run.json()["outputs"] == {"x": "\U0001f600"}


async def test_a_dry_run_only_checks(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        good = await client.post("/v1/programs?dry_run=true", content=TALE.encode(), headers=YAML)
        bad = await client.post("/v1/programs?dry_run=true", content=b"sglspec: v1\nsteps: [{genn: x}]", headers=YAML)
        page = await client.get("/v1/programs")
    assert (good.json()["ok"], good.json()["name"], good.json()["diagnostics"]) == (True, "tale", [])
    assert not bad.json()["ok"] and bad.json()["diagnostics"][0]["code"] == "S204"
    assert page.json() == {"data": [], "next": None}


@pytest.mark.parametrize(
    ("address", "body", "status", "code"),
    [
        ("/v1/programs", "sglspec: v1\nsteps: [{genn: x}]", 422, "invalid-program"),
        ("/v1/programs", "sglspec: v1\nsteps: [hi]", 422, "no-name"),
        ("/v1/programs?name=", "sglspec: v1\nsteps: [hi]", 400, "invalid-request"),
        ("/v1/programs?name=A", "sglspec: v1\nsteps: [hi]", 400, "invalid-request"),
        ("/v1/programs?name=a%2Fb", "sglspec: v1\nsteps: [hi]", 400, "invalid-request"),
        ("/v1/programs?dry_run=1", "sglspec: v1\nsteps: [hi]", 400, "invalid-request"),
        ("/v1/programs?name=" + "a" * 64, "sglspec: v1\nsteps: [hi]", 400, "invalid-request"),
    ],
)
async def test_programs_that_are_not_stored(make_app, client_of, address, body, status, code) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post(address, content=body.encode(), headers=YAML)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert (await client.get("/v1/programs")).json()["data"] == []


async def test_pages_of_programs_and_versions(make_app, client_of, database) -> None:
    async with client_of(make_app(database=database)) as client:
        for name in "dbca":
            for n in range(3):
                await client.post(f"/v1/programs?name={name}", content=(SAY % n).encode(), headers=YAML)
        first = (await client.get("/v1/programs?limit=3")).json()
        second = (await client.get(f"/v1/programs?limit=3&after={first['next']}")).json()
        newest = (await client.get("/v1/programs/a/versions?limit=2")).json()
        oldest = (await client.get(f"/v1/programs/a/versions?limit=2&after={newest['next']}")).json()
    assert [p["name"] for p in first["data"] + second["data"]] == list("abcd")
    assert {p["version"] for p in first["data"]} == {3} and second["next"] is None
    assert [v["version"] for v in newest["data"] + oldest["data"]] == [3, 2, 1] and oldest["next"] is None


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "limit=²", "after=%00", "archived=x", "limit=1e3"]
)
async def test_pages_that_there_are_not(make_app, client_of, query: str) -> None:
    async with client_of(make_app()) as client:
        answer = await client.get(f"/v1/programs?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request")


async def test_an_archived_program_keeps_its_history(make_app, client_of, database) -> None:
    async with client_of(make_app(database=database)) as client:
        await client.post("/v1/programs?name=p", content=(SAY % 1).encode(), headers=YAML)
        gone = await client.delete("/v1/programs/p")
        again = await client.delete("/v1/programs/p")
        run = await client.post("/v1/programs/p/runs")
        seen = await client.get("/v1/programs/p")
        live = await client.get("/v1/programs")
        archived = await client.get("/v1/programs?archived=true")
        back = await client.post("/v1/programs?name=p", content=(SAY % 2).encode(), headers=YAML)
        works = await client.post("/v1/programs/p/runs")
        none = await client.delete("/v1/programs/q")
    assert (gone.status_code, again.status_code, none.status_code) == (204, 204, 404)
    assert (run.status_code, run.json()["code"]) == (410, "archived")
    assert seen.json()["archived"] is True
    assert live.json()["data"] == [] and [p["name"] for p in archived.json()["data"]] == ["p"]
    assert (back.json()["version"], works.json()["outputs"]) == (2, {"x": 2})


async def test_an_alias_moves_between_versions(make_app, client_of, database) -> None:
    async with client_of(make_app(database=database)) as client:
        digests = [
            (await client.post("/v1/programs?name=p", content=(SAY % n).encode(), headers=YAML)).json()["digest"]
            for n in (1, 2)
        ]
        put = "/v1/programs/p/aliases/prod"
        none = await client.get(put)
        made = await client.put(put, json={"version": 1}, headers={"If-None-Match": "*"})
        clash = await client.put(put, json={"version": 2}, headers={"If-None-Match": "*"})
        before = await client.post("/v1/programs/p@prod/runs")
        stale = await client.put(put, json={"version": 2}, headers={"If-Match": '"7"'})
        moved = await client.put(put, json={"version": digests[1]}, headers={"If-Match": made.headers["etag"]})
        after = await client.post("/v1/programs/p@prod/runs")
        listed = await client.get("/v1/programs/p/aliases")
        gone = [(await client.delete(put)).status_code for _ in range(2)]
        missing = await client.post("/v1/programs/p@prod/runs")
    assert none.status_code == 404
    assert (made.json()["revision"], clash.status_code, stale.status_code) == (1, 412, 412)
    assert (before.json()["outputs"], after.json()["outputs"]) == ({"x": 1}, {"x": 2})
    assert moved.json()["version"] == 2 and moved.headers["etag"] == '"2"'
    assert [(a["alias"], a["version"]) for a in listed.json()["data"]] == [("prod", 2)]
    assert (gone, missing.status_code) == ([204, 404], 404)


@pytest.mark.parametrize("body", ["{}", '{"version": 3}', '{"version": "prod"}', '{"version": 1.5}', '{"version": true}',
                                  '{"version": -1}', '{"version": 99999999999}', '{"version": [1]}', "[]", "1", '{"versio": 1}'])  # fmt: skip
async def test_an_alias_of_nothing(make_app, client_of, body: str) -> None:
    async with client_of(make_app()) as client:
        await client.post("/v1/programs?name=p", content=(SAY % 1).encode(), headers=YAML)
        answer = await client.put("/v1/programs/p/aliases/prod", content=body, headers=JSON)
    assert answer.status_code in (400, 404), answer.text


@pytest.mark.parametrize(
    "reference",
    ["q", "p@2", "p@0", "p@-1", "p@" + "9" * 40, "p@", "p@@", "@1", "P", "p@sha256:00", "p@sha256:" + "0" * 64, "p%00",
     "%2e%2e", "p@prod", "p ", "é", "p@²", "p@1@1", "a" * 64],
)  # fmt: skip
async def test_programs_that_there_are_not(make_app, client_of, database, reference: str) -> None:
    async with client_of(make_app(database=database)) as client:
        await client.post("/v1/programs?name=p", content=(SAY % 1).encode(), headers=YAML)
        for method, rest in (("GET", ""), ("GET", "/source"), ("POST", "/runs")):
            answer = await client.request(method, f"/v1/programs/{reference}{rest}")
            assert (answer.status_code, answer.json()["code"]) == (404, "not-found"), answer.text


async def test_inputs_of_a_stored_program(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        await client.post("/v1/programs", content=TALE.encode(), headers=YAML)
        missing = await client.post("/v1/programs/tale/runs")
        wrong = await client.post("/v1/programs/tale/runs", json={"inputs": {"who": 1}})
        query = await client.post("/v1/programs/tale/runs", params={"inputs": '{"who": "Ada"}', "seed": "1"})
        spec = await client.post("/v1/programs/tale/runs", json={"spec": TALE})
    assert (missing.status_code, missing.json()["errors"][0]["code"]) == (422, "S402")
    assert missing.json()["errors"][0]["help"] == "Give it in `inputs`, in the body."
    assert (wrong.status_code, wrong.json()["errors"][0]["code"]) == (422, "S401")
    assert query.json()["status"] == "failed" and query.json()["text"] == "Once Ada "  # no reply is left
    assert (spec.status_code, spec.json()["errors"][0]["code"]) == (400, "S201")


async def test_a_store_that_fails_is_no_fault_of_the_client(make_app, client_of, database, caplog) -> None:
    async with client_of(make_app(database=database)) as client:
        await client.post("/v1/programs?name=p", content=(SAY % 1).encode(), headers=YAML)
        await database.write(lambda connection: connection.execute(text("DROP TABLE aliases")))
        answer = await client.get("/v1/programs/p/aliases")
    assert (answer.status_code, answer.json()["code"]) == (503, "storage-unavailable")
    assert answer.headers["retry-after"] == "1" and "aliases" not in answer.text and "aliases" in caplog.text

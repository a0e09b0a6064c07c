"""Posting a program: the answer, in JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sglspec.backends.base import Backend
from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.runtime.limits import Bounds
from sglspec.server.application import create_app

SAY: dict[str, Any] = {"sglspec": "v1", "steps": [{"set": {"x": 1}}]}
GEN = "sglspec: v1\nsteps:\n  - 'Once '\n  - gen: story\n"


async def test_the_essay_judge(make_app, client_of, judge) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", json={"spec": judge, "inputs": {"essay": "On salt."}, "seed": 7})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert body["run_id"].startswith("run_")
    assert (body["status"], body["error"], body["seed"]) == ("succeeded", None, 7)
    assert body["outputs"]["grade"] == {"summary": "good", "letter": "A"}
    assert len(body["outputs"]["judgment"]) == 3
    assert body["usage"].keys() >= {"prompt_tokens", "generated_tokens"} or body["usage"]


async def test_a_program_as_an_object(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", json={"spec": SAY})
    assert answer.json()["outputs"] == {"x": 1}


async def test_a_json_program_as_text_may_hold_surrogate_escapes(make_app, client_of) -> None:
    program = json.dumps({"sglspec": "v1", "steps": [{"set": {"x": "\U0001f600"}}]}, ensure_ascii=True)
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", json={"spec": program})
    assert answer.json()["outputs"] == {"x": "\U0001f600"}


@pytest.mark.parametrize("kind", ["application/yaml", "application/x-yaml", "text/yaml; charset=UTF-8"])
async def test_a_yaml_body_takes_inputs_and_seed_from_the_query(make_app, client_of, judge, kind: str) -> None:
    query = {"inputs": json.dumps({"essay": "On salt.", "dimensions": ["wit"]}), "seed": "18446744073709551615"}
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", params=query, content=judge, headers={"Content-Type": kind})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["outputs"]["judgment"]) == 1
    assert answer.json()["seed"] == 2**64 - 1


async def test_a_random_seed_can_be_posted_again(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        seed = (await client.post("/v1/runs", json={"spec": SAY})).json()["seed"]
        again = await client.post("/v1/runs", json={"spec": SAY, "seed": seed})
    assert again.json()["seed"] == seed < 2**53


async def test_a_run_that_fails_is_an_answer(make_app, client_of) -> None:
    program = "sglspec: v1\nsteps:\n  - set: {x: 1}\n  - fail: no luck\n"
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", json={"spec": program})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["error"]["code"], body["outputs"]) == ("failed", "S701", {"x": 1})
    assert body["error"]["range"]["start"]["line"] == 4


async def test_a_program_cannot_raise_the_bounds_of_the_host(make_app, client_of) -> None:
    program = (
        "sglspec: v1\nlimits: {iterations: 1000}\nsteps:\n  - for: i\n    in: '[1, 2, 3]'\n    do: [{set: {x: 1}}]\n"
    )
    async with client_of(make_app(bounds=Bounds(iterations=2))) as client:
        answer = await client.post("/v1/runs", json={"spec": program})
    assert (answer.json()["status"], answer.json()["error"]["code"]) == ("failed", "S705")


async def test_inputs_that_do_not_fit(make_app, client_of, judge) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", json={"spec": judge, "inputs": {"esay": 1, "dimensions": 3}})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["code"] == "invalid-inputs"
    assert sorted(e["code"] for e in body["errors"]) == ["S401", "S402", "S403"]
    assert "--set" not in answer.text
    assert all(e["message"][0].isupper() and e["message"].endswith(".") for e in body["errors"])
    missing = next(e for e in body["errors"] if e["code"] == "S402")
    assert missing["help"] == "Give it in `inputs`: beside `spec` in a JSON body, in the query with a YAML body."


async def test_a_wrong_program_gets_its_diagnostics(make_app, client_of, judge) -> None:
    wrong = judge.replace("select: related", "selct: related")
    line = wrong[: wrong.index("selct")].count("\n") + 1
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", json={"spec": wrong, "inputs": {"essay": "x"}})
    assert answer.status_code == 422
    body = answer.json()
    assert (body["type"], body["status"], body["code"]) == (
        "urn:sglspec:problem:invalid-program",
        422,
        "invalid-program",
    )
    assert body["detail"].startswith(f"line {line}, column ")
    (error,) = body["errors"]
    assert error["code"] == "S204"
    assert error["range"]["start"]["line"] == line
    assert "`select`" in error["help"]
    assert error["pointer"] and error["file"] == "spec"


async def test_places_in_an_object_are_places_in_the_body(make_app, client_of) -> None:
    text = '{\n  "inputs": {},\n  "spec": {"sglspec": "v1",\n    "steps": [{"selct": "x"}]}\n}'
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", content=text, headers={"Content-Type": "application/json"})
    (error,) = answer.json()["errors"]
    assert error["file"] == "body"
    assert error["range"]["start"] == {"line": 4, "column": text.split("\n")[3].index('"selct"') + 1}


async def test_check_says_everything_and_runs_nothing(make_app, client_of, judge) -> None:
    async with client_of(make_app(replies={})) as client:
        good = await client.post("/v1/check", json={"spec": judge})
        bad = await client.post("/v1/check", json={"spec": judge.replace("essay: string", "essay: strin")})
        worse = await client.post("/v1/check", json={"spec": "a: [1"})
    assert good.json() == {"ok": True, "diagnostics": [], "omitted": 0}
    assert not bad.json()["ok"] and bad.json()["diagnostics"][0]["range"]["start"]["line"] == 7
    assert worse.status_code == 200 and worse.json()["diagnostics"][0]["code"].startswith("S1")


async def test_a_backend_that_cannot_be_opened_is_tried_again() -> None:
    import httpx

    from sglspec.backends.scripted import ScriptedBackend

    tries = 0

    async def opener(reference: str | None, model: str | None) -> Backend:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise SpecError(Diagnostic("S602", "no such model", help="Run `sglspec models pull x`."))
        if tries == 2:
            raise RuntimeError("secret of the house")
        return ScriptedBackend({})

    transport = httpx.ASGITransport(create_app(opener=opener))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        waiting = await client.get("/readyz")
        first = await client.post("/v1/runs", json={"spec": SAY})
        unready = await client.get("/readyz")
        second = await client.post("/v1/runs", json={"spec": SAY})
        third = await client.post("/v1/runs", json={"spec": SAY})
        ready = await client.get("/readyz")
        models = await client.get("/v1/models")
    assert (waiting.status_code, waiting.json()["code"]) == (503, "backend-loading")
    assert (first.status_code, first.json()["code"]) == (503, "backend-unavailable")
    assert first.json()["errors"][0]["help"] == "Run `sglspec models pull x`."
    assert unready.json()["errors"][0]["code"] == "S602"
    assert second.status_code == 503 and "secret" not in second.text
    assert third.status_code == 200
    assert ready.json() == {"status": "ready", "model": "scripted"}
    assert [(one["id"], one["ready"]) for one in models.json()["data"]] == [("scripted", True)]


async def test_one_opening_serves_all_who_wait(client_of) -> None:
    from sglspec.backends.scripted import ScriptedBackend

    tries = 0

    async def opener(reference: str | None, model: str | None) -> Backend:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0.05)
        return ScriptedBackend({})

    async with client_of(create_app(opener=opener)) as client:
        answers = await asyncio.gather(*(client.post("/v1/runs", json={"spec": SAY}) for _ in range(5)))
    assert [a.status_code for a in answers] == [200] * 5
    assert tries == 1


async def test_too_many_runs(make_app, client_of, stuck) -> None:
    backend = stuck()
    app = make_app(backend, runs=1, waiting=0)
    async with client_of(app) as client:
        first = asyncio.create_task(client.post("/v1/runs", json={"spec": GEN}))
        await asyncio.wait_for(backend.started.wait(), 10)
        second = await client.post("/v1/runs", json={"spec": GEN})
        assert (second.status_code, second.json()["code"], second.headers["retry-after"]) == (503, "busy", "1")
        (run,) = (await client.get("/v1/runs")).json()["data"]
        await client.post(f"/v1/runs/{run['id']}/cancel")
        assert (await first).json()["status"] == "cancelled"
        assert len(app.state.service.runs) == 0
        third = await client.post("/v1/runs", json={"spec": SAY})
    assert third.status_code == 200


async def test_a_fault_is_logged_and_not_told(make_app, client_of, broken, caplog) -> None:
    app = make_app(broken())
    async with client_of(app) as client:
        answer = await client.post("/v1/runs", json={"spec": GEN})
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert "secret of the house" in caplog.text
    assert len(app.state.service.runs) == 0

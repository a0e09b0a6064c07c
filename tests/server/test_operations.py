"""Health, metrics and the log: what operators see, and what they must never see."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sglspec.backends.base import Usage, Vitals
from sglspec.backends.scripted import ScriptedBackend
from sglspec.server.logs import JsonLines, TextLines, configure
from sglspec.server.runs.manager import LEASE_SECONDS
from tests.server.test_access import Keys
from tests.server.test_listen import GEN
from tests.server.test_refusals import check_problem

SECRET = "correct horse battery staple"


class Watched(ScriptedBackend):
    """A backend whose engine says what a test wants."""

    vitals = Vitals(
        running=2, waiting=1, live=30, cached=20, capacity=100, usage=Usage(7, 6, 5, 4, 3), steps=9, requests=8
    )


async def ready(client: Any) -> None:
    """Wait until the model is open."""
    await client.post("/v1/runs", json={"spec": GEN})


async def test_ready_as_long_as_the_engine_moves(make_app, client_of) -> None:
    backend = Watched({"story": "x"})
    async with client_of(make_app(backend, stall_seconds=10.0)) as client:
        await ready(client)
        assert (await client.get("/readyz")).json()["status"] == "ready"
        backend.vitals = replace(backend.vitals, still_seconds=9.0)
        assert (await client.get("/readyz")).status_code == 200
        backend.vitals = replace(backend.vitals, still_seconds=11.0)
        stalled = await client.get("/readyz")
        check_problem(stalled, 503, "engine-stalled")
        assert stalled.json()["detail"] == "It has 3 requests and did nothing for 11 s."
        assert (await client.get("/livez")).status_code == 200
        backend.vitals = replace(backend.vitals, still_seconds=0.0, alive=False)
        check_problem(await client.get("/readyz"), 503, "engine-ended")


async def test_ready_as_long_as_the_store_takes_what_is_written(make_app, client_of, monkeypatch) -> None:
    app = make_app()
    async with client_of(app) as client:
        await ready(client)
        assert (await client.get("/readyz")).status_code == 200
        app.state.service.runs._renewed -= LEASE_SECONDS + 1
        check_problem(await client.get("/readyz"), 503, "storage-unavailable")


async def test_not_ready_and_nothing_new_while_it_stops(make_app, client_of) -> None:
    app = make_app()
    async with client_of(app) as client:
        await ready(client)
        app.state.service.stop_admitting()
        check_problem(await client.get("/readyz"), 503, "stopping")
        answer = await client.post("/v1/runs", json={"spec": GEN})
        check_problem(answer, 503, "stopping")
        assert int(answer.headers["retry-after"]) > 0
        assert (await client.get("/v1/runs")).status_code == 200
        assert (await client.get("/livez")).status_code == 200


def values(text: str) -> dict[str, float]:
    """Samples by their names with labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_metrics(make_app, client_of) -> None:
    async with client_of(make_app(Watched({"story": "x"}))) as client:
        await client.post("/v1/runs", json={"spec": GEN})
        await client.post("/v1/runs", json={"spec": "nonsense"})
        for path in (f"/{SECRET}", "/v1/runs/run_x", "/v1/programs/a", "/v1/programs/b"):
            await client.get(path)
        await client.request("BREW", "/livez")
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = values(answer.text)
    assert found["sglspec_runs_total{status=succeeded}"] == 1
    assert found["sglspec_run_seconds_count"] == found["sglspec_run_queue_seconds_count"] == 1
    assert found["sglspec_http_requests_total{method=POST,route=/v1/runs,status=200}"] == 1
    assert found["sglspec_http_requests_total{method=POST,route=/v1/runs,status=422}"] == 1
    assert found["sglspec_http_requests_total{method=GET,route=/v1/programs/{reference},status=404}"] == 2
    assert found["sglspec_http_requests_total{method=GET,route=none,status=404}"] == 1
    assert found["sglspec_http_requests_total{method=other,route=/livez,status=405}"] == 1
    assert found["sglspec_ready"] == 1
    assert found["sglspec_runs_active{state=running}"] == 0
    assert found["sglspec_engine_requests{state=running}"] == 2
    assert found["sglspec_kv_tokens{state=free}"] == 50
    assert found["sglspec_generated_tokens_total"] == 4
    assert found["sglspec_reused_tokens_total"] == 5
    assert SECRET not in answer.text


async def test_metrics_of_refusals_and_of_runs_that_end_otherwise(make_app, client_of, stuck) -> None:
    backend = stuck()
    app = make_app(backend, runs=1, waiting=0)
    async with client_of(app) as client:
        prefer = {"Prefer": "respond-async"}
        run = (await client.post("/v1/runs", json={"spec": GEN}, headers=prefer)).json()["id"]
        assert (await client.post("/v1/runs", json={"spec": GEN})).status_code == 503
        assert values((await client.get("/metrics")).text)["sglspec_runs_active{state=running}"] == 1
        await client.post(f"/v1/runs/{run}/cancel")
        while len(app.state.service.runs):  # noqa: ASYNC110 - a run is counted after its end is stored
            await asyncio.sleep(0.01)
        found = values((await client.get("/metrics")).text)
    assert found["sglspec_rejected_total{code=busy}"] == 1
    assert found["sglspec_runs_total{status=cancelled}"] == 1


@pytest.fixture
def logged(monkeypatch):
    """What the server logs, in a format."""
    before = {name: logging.getLogger(name) for name in ("sglspec", "uvicorn")}
    state = {name: (list(log.handlers), log.propagate, log.level) for name, log in before.items()}
    stream = io.StringIO()

    def start(format: Any) -> io.StringIO:
        monkeypatch.setattr(sys, "stderr", stream)
        configure(format, "info")
        return stream

    yield start
    for name, log in before.items():
        log.handlers[:], log.propagate, log.level = state[name]


@pytest.mark.parametrize("format", ["json", "text"])
async def test_the_log_tells_of_requests_and_keeps_secrets(make_app, client_of, logged, format) -> None:
    stream = logged(format)
    keys = Keys()
    header = keys.new("admin")
    token = header["Authorization"].removeprefix("Bearer ")
    async with client_of(make_app(access=keys.access())) as client:
        said = {"spec": f"sglspec: v1\nsteps: ['{SECRET}']\n"}
        run = (await client.post("/v1/runs", json=said, headers=header | {"X-Request-Id": "abc-1"})).json()["run_id"]
        answer = await client.get(f"/v1/runs/{run}", params={"key": token}, headers=header)
        await client.get(f"/{token}/{SECRET}", headers=header)
        await client.get("/v1/models", headers={"Authorization": f"Bearer {token[:-1]}0"})
        await client.get(f"/v1/runs/{SECRET}", headers=header)
        await client.get("/v1/models", headers=header | {"X-Request-Id": f"a b\n{SECRET}"})
    logging.getLogger("sglspec.server").warning("somebody wrote %s down\nand more", token)
    text = stream.getvalue()
    assert SECRET not in text
    assert token not in text
    assert token.rsplit("_", 1)[1] not in text
    assert f"sgs_{keys.kept[0].id}_***" in text
    assert answer.headers["x-request-id"].startswith("req_")
    lines = text.splitlines()
    assert len(lines) == 7
    if format == "json":
        entries = [json.loads(line) for line in lines]
        assert entries[0]["request_id"] == "abc-1"
        assert entries[0]["route"] == "/v1/runs"
        assert (entries[0]["method"], entries[0]["status"], entries[0]["key"]) == ("POST", 200, keys.kept[0].id)
        assert entries[1]["run"] == run
        assert entries[2]["route"] == ""
        assert all(entry["request_id"].startswith("req_") for entry in entries[1:6])
    else:
        assert "request_id=abc-1" in lines[0]


async def test_a_fault_is_logged_with_its_request(make_app, client_of, logged) -> None:
    stream = logged("json")

    class Broken(ScriptedBackend):
        async def open(self, label: str = "", caller: Any = None) -> Any:
            raise RuntimeError("bang")

    async with client_of(make_app(Broken({}))) as client:
        answer = await client.post("/v1/runs", json={"spec": GEN}, headers={"X-Request-Id": "r1"})
    check_problem(answer, 500, "internal")
    assert answer.json()["request_id"] == "r1"
    faults = [entry for entry in map(json.loads, stream.getvalue().splitlines()) if "exception" in entry]
    assert faults
    assert all(entry["request_id"] == "r1" and "bang" in entry["exception"] for entry in faults)


def test_lines_of_the_log() -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, "x\x1b[2J%s", ("\n",), None)
    assert re.fullmatch(r"\S+Z INFO a: x\\x1b\[2J\\n", TextLines().format(record))
    assert json.loads(JsonLines().format(record))["message"] == "x\x1b[2J\n"

"""Requests made from the API's own descriptions, right ones and wrong ones: none brings the server into trouble."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from starlette.testclient import TestClient

PROGRAM = """\
sglspec: v1
name: tale
inputs:
  who: {type: string, minLength: 1, maxLength: 20}
  count: {type: integer, minimum: 1, maximum: 5, default: 2}
  tags: {type: array, items: {enum: [short, long]}, default: []}
  how: {enum: [kind, cruel], default: kind}
outputs: [story]
steps:
  - "Once {{ who }} {{ count }} {{ tags }} {{ how }} "
  - gen: story
"""


WRONG = "sglspec: v1\nsteps: [{genn: story}]\n"


@pytest.fixture
def client(make_app) -> Generator[TestClient]:
    """A server with a program, an alias, a run and a batch."""
    app = make_app(replies={"story": "a tale"})
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        stored = client.post("/v1/programs", content=PROGRAM, headers={"Content-Type": "application/yaml"})
        assert stored.status_code == 201
        assert client.put("/v1/programs/tale/aliases/prod", json={"version": 1}).status_code == 200
        yield client


def attack(client: TestClient, document: dict[str, Any], examples: int) -> dict[str, set[int]]:
    """Ask what a description describes, and what it does not. Returns the statuses of each operation's answers."""
    statuses: dict[str, set[int]] = {}
    operations: list[Any] = []
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(result, Ok), result
        operations.append(result.ok())
    for operation in sorted(operations, key=lambda operation: operation.method == "delete"):
        seen = statuses.setdefault(f"{operation.method.upper()} {operation.path}", set())
        for mode in GenerationMode:
            seen |= ask(client, operation.as_strategy(generation_mode=mode), examples)
    return statuses


def ask(client: TestClient, cases: Any, examples: int) -> set[int]:
    seen = set[int]()

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(cases)
    def send(case: Any) -> None:
        sent = {name: value for name, value in case.as_transport_kwargs(base_url="http://localhost").items() if value}
        if "data" in sent and not isinstance(sent["data"], dict):
            sent["content"] = sent.pop("data")
        answer = client.request(**sent)
        seen.add(answer.status_code)
        assert answer.status_code < 500, answer.text

    with suppress(Unsatisfiable):  # an operation that takes nothing cannot be asked wrongly
        send()
    return seen


def test_the_whole_server(client: TestClient) -> None:
    run = client.post("/v1/programs/tale/runs", json={"inputs": {"who": "Ada"}, "trace": True}).json()["run_id"]
    batch = client.post("/v1/batches", json={"program": "tale", "rows": [{"who": "Ada"}]}).json()["id"]
    document = client.get("/openapi.json").json()
    # names and texts that lead somewhere: at random nothing but 404 and 422 would be reached
    known = {"run": [run], "batch": [batch], "reference": ["tale", "tale@1", "tale@prod", "none"], "version": ["1"]}
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in known:
                    parameter["schema"] = {"enum": known[parameter["name"]]}
    schemas = document["components"]["schemas"]
    schemas["Posted"]["properties"]["spec"] = {"enum": [PROGRAM, WRONG, "a: [", 7]}
    schemas["Rows"]["properties"]["program"] = {"enum": ["tale", "none"]}
    for path in ("/v1/chat/completions", "/v1/completions"):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        body["properties"]["model"] = {"enum": ["default", "tale", "none"]}
    statuses = attack(client, document, 4)
    assert len(statuses) >= len(document["paths"])
    for succeeds in ("GET /v1/runs/{run}/events", "GET /v1/batches/{batch}/output", "POST /v1/check", "GET /metrics"):
        assert 200 in statuses[succeeds]
    assert 404 in statuses["POST /v1/programs/{reference}/runs"]


def test_one_program(client: TestClient) -> None:
    document = client.get("/v1/programs/tale/openapi.json").json()
    (statuses,) = attack(client, document, 25).values()
    assert {200, 400, 422} <= statuses

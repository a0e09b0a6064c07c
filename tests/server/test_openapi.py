"""The API's descriptions say what the routes are, and what a program takes and gives."""

from __future__ import annotations

import jsonschema
from starlette.routing import Route

YAML = {"Content-Type": "application/yaml"}
JUDGE = (
    "sglspec: v1\nname: judge\ndescription: Judge.\ninputs:\n  essay: {type: string, minLength: 1}\n  n: {type: integer, default: 2}\n"
    "steps:\n  - select: grade\n    from: [good, bad]\n"
)


async def test_every_route_is_described(make_app, client_of) -> None:
    app = make_app()
    async with client_of(app) as client:
        document = (await client.get("/openapi.json")).json()
    routes = {
        (route.path, method.lower())
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    described = {(path, method) for path, operations in document["paths"].items() for method in operations}
    assert routes == described
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(set(ids)) == len(ids)


async def test_a_program_is_described_with_its_types(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        await client.post("/v1/programs", content=JUDGE, headers=YAML)
        document = (await client.get("/v1/programs/judge@1/openapi.json")).json()
        inputs = (await client.get("/v1/programs/judge/input.schema.json")).json()
        outputs = (await client.get("/v1/programs/judge/output.schema.json")).json()
    (path,) = document["paths"]
    assert path == "/v1/programs/judge@1/runs"
    assert document["components"]["schemas"]["Inputs"] == inputs
    assert inputs["required"] == ["essay"] and inputs["properties"]["n"]["default"] == 2
    assert outputs["properties"] == {"grade": {"enum": ["good", "bad"]}}
    for schema in (inputs, outputs):
        jsonschema.Draft202012Validator.check_schema(schema)

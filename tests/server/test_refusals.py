"""What is refused, and how: problem+json, small, without the input in it, never a 5xx."""

from __future__ import annotations

import json

import httpx
import pytest

JSON = {"Content-Type": "application/json"}
SAY = '{"sglspec": "v1", "steps": ["hi"]}'

NOT_JSON: list[bytes] = [
    b"",
    b" ",
    b"{",
    b"}",
    b"[",
    b"nul",
    b"{]",
    b"{'spec': 1}",
    b"{spec: 1}",
    b'{"spec"}',
    b'{"spec":}',
    b'{"spec": 1,}',
    b'{"spec": "x" "y"}',
    b'{"spec": "x"} {}',
    b'{"spec": "x',
    b'{"spec": "a\nb"}',
    b'{"spec": "\\x"}',
    b'{"spec": "\\u12"}',
    b'{"spec": "\\ud800"}',
    b'{"spec": "\\udc00\\ud800"}',
    b'{"\\ud800": 1}',
    b'{"spec": NaN}',
    b'{"inputs": {"a": NaN}, "spec": "x"}',
    b'{"inputs": {"a": Infinity}}',
    b'{"inputs": {"a": -Infinity}}',
    b'{"inputs": {"a": 1e400}}',
    b'{"inputs": {"a": 01}}',
    b'{"inputs": {"a": +1}}',
    b'{"inputs": {"a": 9007199254740993}}',
    b'{"inputs": {"a": 1, "a": 2}}',
    b'{"spec": "a", "spec": "b"}',
    b'{"spec": {"sglspec": "v1", "sglspec": "v1"}}',
    b'{"spec": "\xff"}',
    b"\xff\xfe{\x00}\x00",
    b'\x00{"spec": ""}',
    b'{"spec": "\x00"}',
    b"// {}",
    b'{"inputs": ' + b"[" * 5000,
    b"[" * 70 + b"]" * 70,
    b'{"inputs": {"a": [' + b"1," * 60_000 + b"1]}}",
]
NOT_A_REQUEST: list[bytes] = [
    b"null",
    b"1",
    b'"spec"',
    b"[]",
    b"{}",
    b'{"spec": null}',
    b'{"spec": 1}',
    b'{"spec": true}',
    b'{"spec": []}',
    b'{"specs": "x"}',
    b'{"sglspec": "v1", "steps": []}',
    b'{"spec": "x", "inputs": []}',
    b'{"spec": "x", "inputs": "a"}',
    b'{"spec": "x", "inputs": 1}',
    b'{"spec": "x", "seed": -1}',
    b'{"spec": "x", "seed": 1.5}',
    b'{"spec": "x", "seed": true}',
    b'{"spec": "x", "seed": "18446744073709551616"}',
    b'{"spec": "x", "seed": {}}',
    '{"spec": "x", "seed": "\u0661"}'.encode(),
]
NOT_A_PROGRAM: list[str] = [
    "",
    "   ",
    "x",
    "- a",
    "a: [1",
    "\t- x",
    "{",
    "{{{{{{",
    "%YAML 9.9\n---\na",
    "a: &a [*a]",
    "!!python/object/apply:os.system ['true']",
    "--- a\n--- b",
    "\ufeff",
    "\x00",
    "a: \x07",
    "sglspec: v9\nsteps: []",
    "sglspec: v1",
    "sglspec: v1\nsteps: null",
    "sglspec: v1\nsteps: {}",
    "sglspec: v1\nsteps: [{gen: 1}]",
    "sglspec: v1\nsteps: [{gen: x, regex: '('}]",
    "sglspec: v1\nsteps: [{gen: x, schema: ./secret.json}]",
    "sglspec: v1\nsteps: ['{{ nobody }}']",
    "sglspec: v1\nsteps: ['{{ 1 + }}']",
    "sglspec: v1\nsteps:\n" + "  - fork: 3\n    do:\n" * 40,
    "[" * 100_000,
    "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c]",
]


def check_problem(answer, status: int, code: str) -> None:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    body = answer.json()
    assert body["type"] == f"urn:sglspec:problem:{code}"
    assert (body["status"], body["code"]) == (status, code)
    assert body["title"]
    assert len(answer.content) < 16_384
    assert len(body.get("errors", [])) <= 20


@pytest.mark.parametrize("body", NOT_JSON + NOT_A_REQUEST, ids=lambda body: repr(body[:30]))
async def test_malformed_bodies(make_app, client_of, body: bytes) -> None:
    async with client_of(make_app()) as client:
        for path in ("/v1/runs", "/v1/check"):
            answer = await client.post(path, content=body, headers=JSON)
            check_problem(answer, 400, "invalid-request")
            assert answer.json().get("errors") or answer.json()["detail"]


@pytest.mark.parametrize("program", NOT_A_PROGRAM, ids=lambda program: repr(program[:30]))
async def test_malformed_programs(make_app, client_of, program: str) -> None:
    async with client_of(make_app()) as client:
        for content, kind in ((json.dumps({"spec": program}), "application/json"), (program, "application/yaml")):
            answer = await client.post("/v1/runs", content=content, headers={"Content-Type": kind})
            check_problem(answer, 422, "invalid-program")
            assert answer.json()["errors"]


async def test_the_place_of_an_error_in_the_body(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", content=b'{"spec": "x",\n "seed": -1}', headers=JSON)
        close = await client.post("/v1/runs", content=b'{"spec": "x", "input": {}}', headers=JSON)
    (error,) = answer.json()["errors"]
    assert error["range"]["start"] == {"line": 2, "column": 10}
    assert (error["pointer"], error["file"]) == ("/seed", "body")
    assert close.json()["errors"][0]["help"] == "Did you mean `inputs`?"


async def test_bytes_that_are_not_text_in_a_yaml_body(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", content=b"a: \xff", headers={"Content-Type": "application/yaml"})
    check_problem(answer, 422, "invalid-program")


@pytest.mark.parametrize(
    "query", [{"inputs": "{"}, {"inputs": "[]"}, {"inputs": '{"a": NaN}'}, {"seed": "x"}, {"seed": ""}, {"sed": "1"}]
)
async def test_wrong_query_of_a_yaml_body(make_app, client_of, query: dict[str, str]) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", params=query, content=SAY, headers={"Content-Type": "application/yaml"})
    check_problem(answer, 400, "invalid-request")


async def test_a_json_body_takes_no_query(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs?seed=1", content=b'{"spec": "x"}', headers=JSON)
    check_problem(answer, 400, "invalid-request")


@pytest.mark.parametrize(
    "kind",
    [None, "", "text/plain", "multipart/form-data; boundary=x", "application/json; charset=latin-1", "json", ";;"],
)
async def test_other_content_types(make_app, client_of, kind: str | None) -> None:
    async with client_of(make_app()) as client:
        headers = {} if kind is None else {"Content-Type": kind}
        answer = await client.post("/v1/runs", content=b"{}", headers=headers)
    check_problem(answer, 415, "unsupported-media-type")


async def test_packed_bodies(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        for address in ("/v1/runs", "/v1/programs", "/v1/check", "/v1/chat/completions"):
            headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
            packed = await client.post(address, content=b"\x1f\x8b{}", headers=headers)
            assert packed.status_code == 415 and "Content-Encoding" in packed.text
        check_problem(await client.post("/v1/check", content=b"x", headers=headers), 415, "unsupported-media-type")
        plain = await client.post("/v1/check", content=b"{}", headers=headers | {"Content-Encoding": "identity"})
        assert plain.status_code != 415


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("/v1/runs?colour=secret", "colour"),
        ("/v1/runs?limit=3&limit=secret", "limit"),
        ("/v1/runs?after=secret", "after"),
        ("/v1/runs?program=secret%00", "program"),
        ("/v1/runs?program=Secret", "program"),
        ("/v1/batches?after=run_secret", "after"),
        ("/v1/programs?after=Secret", "after"),
        ("/v1/programs/p/versions?after=secret", "after"),
        ("/v1/programs/p?version=secret", "version"),
    ],
)
async def test_queries_that_an_address_does_not_take(make_app, client_of, query: str, key: str) -> None:
    async with client_of(make_app()) as client:
        document = b"sglspec: v1\nname: p\nsteps: hello\n"
        await client.post("/v1/programs", content=document, headers={"Content-Type": "application/yaml"})
        answer = await client.get(query)
        check_problem(answer, 400, "invalid-request")
        assert f"`{key}`" in answer.json()["detail"] and "secret" not in answer.text.lower()
        assert (await client.get("/v1/runs?status=queued&status=running")).status_code == 200
        assert (await client.get("/v1/programs?archived=true&limit=1")).status_code == 200


async def test_latest_is_no_alias(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        document = b"sglspec: v1\nname: p\nsteps: hello\n"
        await client.post("/v1/programs", content=document, headers={"Content-Type": "application/yaml"})
        answer = await client.put("/v1/programs/p/aliases/latest", json={"version": 1})
        check_problem(answer, 400, "invalid-request")
        assert (await client.get("/v1/programs/p/aliases")).json()["data"] == []


async def test_large_bodies(make_app, client_of) -> None:
    async def chunks():
        for _ in range(400):
            yield b" " * 65_536

    async with client_of(make_app()) as client:
        known = await client.post("/v1/runs", content=b" " * (2 * 1_048_576 + 1), headers=JSON)
        huge = await client.post("/v1/runs", content=b"", headers={**JSON, "Content-Length": "9" * 30})
        unknown = await client.post("/v1/runs", content=chunks(), headers=JSON)
        program = await client.post("/v1/runs", json={"spec": "x" * 1_048_577})
    check_problem(known, 413, "too-large")
    check_problem(unknown, 413, "too-large")
    check_problem(huge, 413, "too-large")
    check_problem(program, 422, "invalid-program")
    assert program.json()["errors"][0]["code"] == "S109"


async def test_errors_are_capped_and_do_not_repeat_the_input(make_app, client_of) -> None:
    long_key = "k" * 500_000
    many = "sglspec: v1\nsteps:\n" + "".join(f"  - '{{{{ unknown_{i} }}}}'\n" for i in range(500))
    async with client_of(make_app()) as client:
        answers = [
            await client.post("/v1/runs", json={"spec": f"sglspec: v1\n{long_key}: 1\nsteps: [hi]"}),
            await client.post("/v1/runs", json={"spec": {"sglspec": "v1", "steps": [{long_key: "x"}]}}),
            await client.post("/v1/runs", json={"spec": "sglspec: v1\nsteps: [hi]", "inputs": {long_key: 1}}),
            await client.post("/v1/runs", json={long_key: 1}),
            await client.post("/v1/runs", json={"spec": many}),
        ]
    for answer in answers:
        assert 400 <= answer.status_code < 500
        assert len(answer.content) < 16_384
    assert len(answers[-1].json()["errors"]) == 20
    assert answers[-1].json()["errors_omitted"] == 480


async def test_other_addresses_and_methods(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        check_problem(await client.get("/docs"), 404, "not-found")
        wrong = await client.get("/v1/check")
        check_problem(wrong, 405, "method-not-allowed")
        assert wrong.headers["allow"] == "POST"
        check_problem(await client.options("/v1/check"), 405, "method-not-allowed")
        check_problem(await client.delete("/livez"), 405, "method-not-allowed")
        assert (await client.get("/livez")).json() == {"status": "alive"}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080"])
async def test_loopback_names(make_app, client_of, host: str) -> None:
    async with client_of(make_app()) as client:
        assert (await client.get("/livez", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.org",
        "localhost.example.org",
        "127.0.0.1.nip.io",
        "me@localhost",
        "localhost/x",
        "localhost:",
        "[::1",
        "::1",
        "10.0.0.1",
    ],
)
async def test_other_names(make_app, client_of, host: str) -> None:
    async with client_of(make_app()) as client:
        check_problem(await client.get("/livez", headers={"Host": host}), 421, "misdirected")


async def test_connections_over_a_network(make_app) -> None:
    transport = httpx.ASGITransport(make_app())
    for address, status in (("192.168.0.1", 421), ("[2001:db8::1]", 421), ("127.0.0.2", 200), ("[::1]", 200)):
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{address}:8080") as client:
            assert (await client.get("/livez", headers={"Host": "localhost"})).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 400),
        ("https://127.0.0.1", 400),
        ("http://[::1]:1", 400),
        ("null", 403),
        ("", 403),
        ("https://example.org", 403),
        ("http://localhost.example.org", 403),
        ("file://localhost", 403),
    ],
)
async def test_pages_of_other_sites(make_app, client_of, origin: str, status: int) -> None:
    async with client_of(make_app()) as client:
        answer = await client.post("/v1/runs", content=b"{}", headers={**JSON, "Origin": origin})
    assert answer.status_code == status


async def test_many_headers(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        answer = await client.get("/livez", headers={f"X-{i}": "1" for i in range(200)})
    check_problem(answer, 431, "too-many-headers")

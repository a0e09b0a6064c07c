"""Every address asks for a key: no way of writing an address leads around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.routing import Route

from sglspec.server.access import Access
from sglspec.server.access.gate import GatedRoute, require_gates
from sglspec.server.access.hosts import Hosts
from sglspec.server.access.keys import SCOPES, Key, Scope, new_key
from sglspec.server.access.ring import KeyRing
from tests.server.test_refusals import check_problem

SAY = {"spec": {"sglspec": "v1", "steps": ["hi"]}}
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "get", "Post", "X")


class Keys:
    """Some keys, and who may use a server with them."""

    def __init__(self) -> None:
        self.kept: list[Key] = []

    def new(self, *scopes: Scope, owner: str = "alice", **more: Any) -> dict[str, str]:
        token, key = new_key(owner, scopes, **more)
        self.kept.append(key)
        return {"Authorization": f"Bearer {token}"}

    def access(self, *names: str) -> Access:
        async def source() -> Sequence[Key]:
            return self.kept

        return Access(KeyRing([source]), Hosts(names))


@pytest.fixture
def keys() -> Keys:
    return Keys()


async def ask(app: FastAPI, method: str, path: str, *headers: tuple[str, str]) -> int:
    """The status of a request whose path is not tidied up by a client."""
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    named = [("host", "localhost"), ("content-type", "application/json"), *headers]
    await app(
        {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "headers": [(name.lower().encode(), value.encode()) for name, value in named],
        },
        receive,
        send,
    )
    (status,) = statuses
    return status


def addresses(app: FastAPI) -> list[tuple[GatedRoute, str, str]]:
    """Every route with its method and a path that leads to it."""
    found: list[tuple[GatedRoute, str, str]] = []
    for route in app.routes:
        assert isinstance(route, GatedRoute)
        assert route.methods is not None
        path = re.sub(r"\{[a-z_]+(:[a-z]+)?\}", "x", route.path)
        found += [(route, method, path) for method in route.methods]
    return found


def disguises(path: str) -> list[str]:
    """Other ways to write a path, as they arrive behind a server's decoding."""
    return [
        path + "/",
        path + "//",
        "/" + path,
        path.replace("/", "//"),
        path.replace("/", "/./"),
        "/x/.." + path,
        path + "/..",
        path + "/.",
        path + "%2f",
        path.replace("/", "%2f"),
        path + "%00",
        path + "\x00",
        path + ";x=1",
        path + "?",
        path + "#",
        path + " ",
        path + "\n",
        path.upper(),
        path.title(),
        path.replace("/", "\\"),
        path[1:],
        f"http://localhost{path}",
        f"/livez{path}",
        f"/livez/..{path}",
        path + "/livez",
    ]


async def test_every_address_without_a_key_or_with_a_wrong_one(make_app, keys) -> None:
    valid = keys.new("admin")["Authorization"]
    token = valid.removeprefix("Bearer ")
    revoked = keys.new("admin")
    keys.kept[-1] = replace(keys.kept[-1], revoked=1.0)
    expired = keys.new("admin", expires=1.0)
    _, stranger = new_key("eve", ["admin"])
    app = make_app(access=keys.access())
    wrong: list[tuple[tuple[str, str], ...]] = [
        (),
        (("Authorization", ""),),
        (("Authorization", "Bearer"),),
        (("Authorization", "Bearer "),),
        (("Authorization", token),),
        (("Authorization", f"Basic {token}"),),
        (("Authorization", f"Bearer {token[:-1]}"),),
        (("Authorization", f"Bearer {token}0"),),
        (("Authorization", f"Bearer {token[:-1]}{'0' if token[-1] != '0' else '1'}"),),
        (("Authorization", f"Bearer {token.upper()}"),),
        (("Authorization", f"Bearer sgs_{stranger.id}_{'0' * 64}"),),
        (("Authorization", f"Bearer {keys.kept[0].digest}"),),
        (("Authorization", f"Bearer {token}, Bearer {token}"),),
        (("Authorization", valid), ("Authorization", valid)),
        (("Authorization", revoked["Authorization"]),),
        (("Authorization", expired["Authorization"]),),
        (("X-Api-Key", token), ("Cookie", f"key={token}")),
    ]
    walked = 0
    for route, method, path in addresses(app):
        for headers in wrong:
            status = await ask(app, method, path, *headers)
            assert (status == 401) != (route.need == "public"), (method, path, headers)
            walked += 1
    assert walked > 200
    for header in ("Authorization", "AUTHORIZATION"):
        for scheme in ("Bearer", "bearer", "BEARER"):
            assert await ask(app, "GET", "/v1/models", (header, f"{scheme} {token}")) == 200


async def test_every_address_with_a_key_for_others(make_app, keys) -> None:
    held: dict[Scope, str] = {scope: keys.new(scope)["Authorization"] for scope in SCOPES}
    app = make_app(access=keys.access())
    for route, method, path in addresses(app):
        for scope, header in held.items():
            status = await ask(app, method, path, ("Authorization", header))
            allowed = route.need in ("public", scope) or scope == "admin"
            assert (status == 403) != allowed, (method, path, scope)
            assert status < 500 or path == "/readyz"


async def test_every_address_in_disguise(make_app, keys) -> None:
    held: dict[Scope, str] = {scope: keys.new(scope)["Authorization"] for scope in ("metrics", "models")}
    app = make_app(access=keys.access())
    for route, own, path in addresses(app):
        if route.need == "public":
            continue
        other = held["models" if route.need == "metrics" else "metrics"]
        cases = [(method, path) for method in METHODS]
        cases += [(method, form) for form in disguises(path) for method in (own, "HEAD")]
        for method, form in cases:
            assert await ask(app, method, form) == 401, (method, form)
            status = await ask(app, method, form, ("Authorization", other))
            assert status in (403, 404, 405), (method, form, status)


async def test_only_the_path_that_is_routed_counts(make_app, keys) -> None:
    """Headers that name another path or host change nothing."""
    keys.new("admin")
    app = make_app(access=keys.access())
    for name in ("X-Forwarded-Prefix", "X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Path", "Forwarded"):
        assert await ask(app, "GET", "/v1/programs", (name, "/livez")) == 401
    assert await ask(app, "GET", "/v1/programs", ("X-HTTP-Method-Override", "HEAD")) == 401


async def test_what_a_refusal_says(make_app, client_of, keys) -> None:
    header = keys.new("models")
    async with client_of(make_app(access=keys.access())) as client:
        missing = await client.get("/v1/models")
        other = await client.get("/v1/programs", headers=header)
        nothing = await client.get("/v2", headers=header)
        in_address = await client.get("/v1/models", params={"key": header["Authorization"][7:]})
    check_problem(missing, 401, "unauthorized")
    assert missing.headers["www-authenticate"].startswith("Bearer")
    check_problem(other, 403, "forbidden")
    assert "`programs:read`" in other.json()["detail"]
    check_problem(nothing, 404, "not-found")
    check_problem(in_address, 401, "unauthorized")


async def test_an_address_without_a_gate_stops_everything(make_app, client_of) -> None:
    app = make_app()

    async def handler(request: Any) -> None:
        raise AssertionError("it must not be reached")

    app.router.routes.append(Route("/v1/secret", handler))
    with pytest.raises(RuntimeError, match="/v1/secret"):
        require_gates(app.routes)
    async with client_of(app) as client:
        for path in ("/v1/secret", "/livez", "/v1/models"):
            check_problem(await client.get(path), 500, "internal")
    with pytest.raises(RuntimeError, match="/v1/secret"):
        async with app.router.lifespan_context(app):
            raise AssertionError("it must not start")


async def test_runs_are_there_for_their_owner(make_app, client_of, keys) -> None:
    wide: tuple[Scope, ...] = ("run:adhoc", "runs:read", "runs:write")
    alice, again, bob = keys.new(*wide), keys.new(*wide), keys.new(*wide, owner="bob")
    admin = keys.new("admin", owner="root")
    async with client_of(make_app(access=keys.access())) as client:
        run = (await client.post("/v1/runs", json=SAY, headers=alice)).json()["run_id"]
        for header in (alice, again, admin):
            for view in ("", "/result", "/events?after=-1"):
                assert (await client.get(f"/v1/runs/{run}{view}", headers=header)).status_code == 200
            listed = (await client.get("/v1/runs", headers=header)).json()["data"]
            assert [item["id"] for item in listed] == [run]
        for view in ("", "/result", "/trace", "/events"):
            check_problem(await client.get(f"/v1/runs/{run}{view}", headers=bob), 404, "not-found")
        check_problem(await client.post(f"/v1/runs/{run}/cancel", headers=bob), 404, "not-found")
        assert (await client.get("/v1/runs", headers=bob)).json()["data"] == []


async def test_requests_a_minute(make_app, client_of, keys) -> None:
    header = keys.new("models", requests=3)
    free = keys.new("models")
    async with client_of(make_app(access=keys.access())) as client:
        answers = [await client.get("/v1/models", headers=header) for _ in range(5)]
        refused = await client.get("/v1/programs", headers=header)
        assert (await client.get("/v1/models", headers=free)).status_code == 200
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    check_problem(answers[-1], 429, "rate-limited")
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
    check_problem(refused, 403, "forbidden")


async def test_runs_at_once(make_app, client_of, keys, stuck) -> None:
    """Many requests at the same moment find room for as many as there is, and what was refused leaves no trace."""
    import asyncio

    from tests.server.test_listen import GEN

    header = keys.new("run:adhoc", "runs:read", "runs:write", runs=2)
    other = keys.new("run:adhoc", owner="bob")
    backend = stuck()
    async with client_of(make_app(backend, access=keys.access())) as client:
        prefer = {"Prefer": "respond-async"}
        posts = [client.post("/v1/runs", json={"spec": GEN}, headers=header | prefer) for _ in range(20)]
        answers = await asyncio.gather(*posts)
        taken = [answer for answer in answers if answer.status_code == 202]
        assert len(taken) == 2
        for answer in answers:
            if answer.status_code != 202:
                check_problem(answer, 429, "too-many-runs")
                assert answer.headers["retry-after"] == "1"
        assert (await client.post("/v1/runs", json={"spec": GEN}, headers=other | prefer)).status_code == 202
        listed = (await client.get("/v1/runs", headers=header)).json()["data"]
        assert len(listed) == 2
        ended = taken[0].json()["id"]
        await client.post(f"/v1/runs/{ended}/cancel", headers=header)
        await client.get(f"/v1/runs/{ended}", headers=header | {"Prefer": "wait=10"})
        again = await client.post("/v1/runs", json={"spec": GEN}, headers=header | prefer)
        assert again.status_code == 202


async def test_names_that_are_allowed(make_app, client_of, keys) -> None:
    header = keys.new("models")
    app = make_app(access=keys.access("api.example.org"))
    cases = [
        ({"Host": "api.example.org"}, 200),
        ({"Host": "API.example.org:8443"}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "example.org"}, 421),
        ({"Host": "api.example.org.evil.org"}, 421),
        ({"Host": "api.example.org@evil.org"}, 421),
        ({"Host": "api.example.org", "Origin": "https://api.example.org"}, 200),
        ({"Host": "api.example.org", "Origin": "https://evil.org"}, 403),
    ]
    async with client_of(app) as client:
        for more, status in cases:
            answer = await client.get("/v1/models", headers=header | more)
            assert answer.status_code == status, more
    async with client_of(make_app(access=keys.access("*"))) as client:
        assert (await client.get("/v1/models", headers=header | {"Host": "any.org"})).status_code == 200
        foreign = header | {"Host": "any.org", "Origin": "https://any.org"}
        assert (await client.get("/v1/models", headers=foreign)).status_code == 403


async def test_a_connection_over_a_network_needs_keys(make_app, keys) -> None:
    import httpx

    address = "http://192.168.0.1:8080"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(make_app()), base_url=address) as client:
        check_problem(await client.get("/livez"), 421, "misdirected")
    header = keys.new("models")
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(make_app(access=keys.access())), base_url=address
    ) as client:
        assert (await client.get("/v1/models", headers=header)).status_code == 200
        assert (await client.get("/v1/models", headers=header | {"Host": "192.168.0.2"})).status_code == 421


async def test_keys_that_cannot_be_read_let_nobody_in(make_app, client_of, keys) -> None:
    from sglspec.diagnostics import Diagnostic, SpecError

    async def broken() -> Sequence[Key]:
        raise SpecError(Diagnostic("S613", "gone"))

    async with client_of(make_app(access=Access(KeyRing([broken])))) as client:
        answer = await client.get("/v1/models", headers=keys.new("admin"))
    check_problem(answer, 503, "storage-unavailable")

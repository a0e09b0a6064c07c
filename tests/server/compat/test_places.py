"""How much is made at once, who leaves, and models without tokens."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from sglspec.backends.local import open_local
from sglspec.runtime.limits import Bounds

CHAT = {"model": "default", "messages": [{"role": "user", "content": "a"}], "max_tokens": 4}
LEGACY = {"model": "default", "prompt": "a"}
ALL = [
    ("/generate", {"text": "a"}),
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", LEGACY),
]


async def test_scripted_replies(make_app, client_of) -> None:
    replies = {"generate": "one", "chat": "two", "completion": "three"}
    async with client_of(make_app(replies=replies)) as client:
        generate = (await client.post("/generate", json={"text": "a"})).json()
        several = (await client.post("/generate", json={"text": ["a", "b"], "sampling_params": {"n": 2}})).json()
        chat = (await client.post("/v1/chat/completions", json=CHAT | {"n": 2})).json()
        legacy = (await client.post("/v1/completions", json=LEGACY | {"echo": True})).json()
        info = (await client.get("/server_info")).json()
        flushed = await client.post("/flush_cache")
        nothing = await client.post("/generate", json={"text": "a", "sampling_params": {"max_new_tokens": 0}})
    assert generate["text"] == "one" and generate["meta_info"]["finish_reason"]["type"] == "stop"
    assert [one["text"] for one in several] == ["one"] * 4
    assert [choice["message"]["content"] for choice in chat["choices"]] == ["two", "two"]
    assert legacy["choices"][0]["text"] == "athree"
    assert info["context_length"] is None
    assert flushed.status_code == 200
    assert nothing.json()["text"] == ""


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/generate", {"input_ids": [1]}, "input_ids"),
        ("/generate", {"text": "a", "return_logprob": True, "logprob_start_len": 0}, "text"),
        ("/generate", {"text": "a", "sampling_params": {"regex": "a"}}, "sampling_params.regex"),
        ("/v1/completions", LEGACY | {"prompt": [1]}, "prompt"),
        ("/v1/completions", LEGACY | {"logprobs": 1}, "logprobs"),
        ("/v1/chat/completions", CHAT | {"logprobs": True}, "logprobs"),
        ("/v1/chat/completions", CHAT | {"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
async def test_what_needs_tokens(make_app, client_of, path, body, param) -> None:
    async with client_of(make_app(replies={"generate": "a", "chat": "a", "completion": "a"})) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(("path", "body"), ALL)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels(make_app, listening, stuck, path, body, stream) -> None:
    backend = stuck()
    app = make_app(backend)
    async with listening(app) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(path, json=body | {"stream": stream}, timeout=0.5)
        await asyncio.wait_for(backend.cancelled.wait(), 20)
        while app.state.places.taken:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_a_stream_that_waits_is_kept_open(make_app, listening, stuck, path, body) -> None:
    async with (
        listening(make_app(stuck(), ping_seconds=0.05)) as client,
        client.stream("POST", path, json=body | {"stream": True}) as answer,
    ):
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            assert line == ": ping"
            break


async def test_there_are_only_so_many_places(make_app, listening, stuck) -> None:
    backend = stuck()
    app = make_app(backend)
    app.state.places.most = 2
    async with listening(app) as client:
        first = asyncio.create_task(client.post("/generate", json={"text": ["a", "b"]}))
        await asyncio.wait_for(backend.started.wait(), 20)
        for path, body in ALL:
            busy = await client.post(path, json=body)
            assert busy.status_code == 503 and busy.headers["retry-after"] == "1"
            assert busy.json()["error"]["code"] == "busy"
        streamed = await client.post("/generate", json={"text": "a", "stream": True})
        assert streamed.status_code == 503
        first.cancel()
        await asyncio.wait({first})


async def test_the_host_bounds_what_is_asked(make_app, client_of) -> None:
    bounds = Bounds(tokens=100, branches=4)
    async with client_of(make_app(replies={"generate": "a", "chat": "a", "completion": "a"}, bounds=bounds)) as client:
        for path, body in (
            ("/generate", {"text": ["a"] * 5}),
            ("/generate", {"text": "a", "sampling_params": {"n": 5, "max_new_tokens": 1}}),
            ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 101}}),
            ("/v1/completions", LEGACY | {"n": 5}),
            ("/v1/completions", LEGACY | {"prompt": ["a"] * 5}),
            ("/v1/chat/completions", CHAT | {"max_tokens": 51, "n": 2}),
        ):
            answer = await client.post(path, json=body)
            assert answer.status_code == 400, (path, body)
            message = answer.json()["error"]["message"]
            assert "this server" in message or "1 to 4 items" in message
        unbounded = {key: value for key, value in CHAT.items() if key != "max_tokens"}
        assert (await client.post("/v1/chat/completions", json=unbounded)).status_code == 200


async def test_what_takes_too_long_is_ended(make_app, client_of, stuck) -> None:
    backend = stuck()
    async with client_of(make_app(backend, bounds=Bounds(seconds=0.1))) as client:
        for path, body in ALL:
            assert (await client.post(path, json=body)).status_code == 504
            streamed = await client.post(path, json=body | {"stream": True})
            assert streamed.status_code == 504 and streamed.json()["error"]["code"] == "timeout"
    assert backend.cancelled.is_set()


async def test_a_fault_tells_nothing(make_app, client_of, broken) -> None:
    async with client_of(make_app(broken())) as client:
        for path, body in ALL:
            for stream in (False, True):
                answer = await client.post(path, json=body | {"stream": stream})
                assert answer.status_code == 500
                assert "secret" not in answer.text and answer.json()["error"]["message"]


async def test_the_end_of_the_server_ends_them(make_app, stuck) -> None:
    backend = stuck()
    app = make_app(backend)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        task = asyncio.create_task(client.post("/generate", json={"text": "a"}))
        await asyncio.wait_for(backend.started.wait(), 20)
        app.state.places.close()
        refused = await client.post("/generate", json={"text": "a"})
        app.state.places.cancel_all()
        answer = await task
    assert answer.status_code == 503
    assert json.loads(answer.content)["error"]["code"] == "stopping"
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")


async def test_control_tokens(make_app, client_of, tiny_llama) -> None:
    """The operator decides what raw prompts may spell, and a request may say it for itself."""
    backend = await open_local(tiny_llama, threads=1)
    text = "<|im_start|>user Hi<|im_end|>"

    async def counts(**more: object) -> list[int]:
        found: list[int] = []
        for flag in (False, True):
            async with client_of(make_app(backend, control_tokens=flag)) as client:
                body = {"text": text, "sampling_params": {"max_new_tokens": 0}, **more}
                raw = (await client.post("/generate", json=body)).json()["meta_info"]["prompt_tokens"]
                body = {"model": "default", "prompt": text, "max_tokens": 0, **more}
                legacy = (await client.post("/v1/completions", json=body)).json()["usage"]["prompt_tokens"]
                assert raw == legacy
                found.append(raw)
        return found

    data, control = await counts()
    assert control < data
    assert await counts(control_tokens=True) == [control, control]
    assert await counts(control_tokens=False) == [data, data]
    await backend.close()


async def test_keys(make_app, client_of, keys) -> None:
    replies = {"generate": "a", "chat": "a", "completion": "a"}
    adhoc, seer = keys.new("run:adhoc", "models"), keys.new("models")
    runner = keys.new("models", "runs:write", "programs:read")
    admin = keys.new("admin", owner="root")
    program = b"sglspec: v1\nname: echo\ninputs: {a: string}\noutputs: [b]\nsteps:\n  - set: {b: '{{ a }}'}\n"
    ask = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
    async with client_of(make_app(replies=replies, access=keys.access())) as client:
        made = await client.post("/v1/programs", content=program, headers=admin | {"Content-Type": "application/yaml"})
        assert made.status_code == 201
        for path, body in ALL:
            none = await client.post(path, json=body)
            few = await client.post(path, json=body, headers=seer)
            right = await client.post(path, json=body, headers=adhoc)
            assert (none.status_code, few.status_code, right.status_code) == (401, 403, 200)
            assert none.json()["error"]["code"] == "unauthorized" and "run:adhoc" in few.json()["error"]["message"]
            if path != "/generate":
                assert none.json()["error"]["type"] == "authentication_error"
                assert few.json()["error"]["type"] == "permission_error"
        assert (await client.post("/v1/chat/completions", json=ask, headers=runner)).status_code == 200
        assert (await client.post("/v1/chat/completions", json=ask, headers=adhoc)).status_code == 403
        assert len((await client.get("/v1/models", headers=runner)).json()["data"]) == 2
        assert len((await client.get("/v1/models", headers=seer)).json()["data"]) == 1
        assert (await client.get("/v1/models/echo", headers=seer)).status_code == 404
        assert (await client.post("/flush_cache", headers=adhoc)).status_code == 403
        assert (await client.post("/flush_cache", headers=admin)).status_code == 200
        assert (await client.get("/health")).status_code == 200

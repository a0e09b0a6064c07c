"""Stored programs answer as models do."""

from __future__ import annotations

import json
from typing import Any

import pytest

YAML = {"Content-Type": "application/yaml"}
TALE = """
sglspec: v1
name: tale
inputs: {who: string, tone: {type: string, default: kind}}
outputs: [story]
steps:
  - "Once {{ tone }} {{ who }} "
  - gen: story
"""
TALK = """
sglspec: v1
name: talk
inputs: {talk: messages, tone: {type: string, default: kind}}
outputs: [first, count]
steps:
  - set: {first: "{{ talk[0].content }}", count: "{{ talk | length }}"}
"""
PAIR = (
    "sglspec: v1\nname: pair\ninputs: {a: string, b: string}\noutputs: [x]\nsteps:\n  - set: {x: '{{ a }}-{{ b }}'}\n"
)
FAILS = "sglspec: v1\nname: fails\ninputs: {a: string}\nsteps:\n  - fail: 'No {{ a }} here.'\n"
ALL = (TALE, TALK, PAIR, FAILS)


async def store(client: Any) -> None:
    for program in ALL:
        made = await client.post("/v1/programs", content=program.encode(), headers=YAML)
        assert made.status_code == 201, made.text


def ask(model: str, *texts: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text} for text in texts], **more}


async def test_they_are_listed_and_reply(make_app, client_of) -> None:
    async with client_of(make_app(replies={"story": "there was a fox."})) as client:
        await store(client)
        one = (await client.get("/v1/models/tale")).json()
        tale = (await client.post("/v1/chat/completions", json=ask("tale", "no", "Ada", user="me", seed=3))).json()
        version = await client.post("/v1/chat/completions", json=ask("tale@1", "Ada", inputs={"tone": "grim"}))
        talk = (await client.post("/v1/chat/completions", json=ask("talk", "a", "b"))).json()
        pair = (await client.post("/v1/chat/completions", json=ask("pair", "x", inputs={"b": "y"}))).json()
        models = (await client.get("/v1/models")).json()
        run = (await client.get("/v1/runs")).json()["data"]
    assert [(model["id"], model["owned_by"]) for model in models["data"]] == [
        ("scripted", "sglspec"), ("fails", "program"), ("pair", "program"), ("tale", "program"), ("talk", "program"),
    ]  # fmt: skip
    assert one["id"] == "tale" and one["object"] == "model"
    assert tale["choices"][0]["message"] == {"role": "assistant", "content": "there was a fox.", "refusal": None}
    assert tale["model"] == "tale" and tale["object"] == "chat.completion"
    assert set(tale["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}
    assert version.status_code == 200
    assert json.loads(talk["choices"][0]["message"]["content"]) == {"first": "a", "count": 2}
    assert pair["choices"][0]["message"]["content"] == "x-y"
    assert len(run) == 4, "they are runs like all others"


async def test_their_streams(make_app, client_of) -> None:
    async with client_of(make_app(replies={"story": "a fox."})) as client:
        await store(client)
        body = ask("tale", "Ada", stream=True, stream_options={"include_usage": True})
        answer = await client.post("/v1/chat/completions", json=body)
        failed = await client.post("/v1/chat/completions", json=ask("fails", "a", stream=True))
    lines = [line[6:] for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "a fox."}
    assert chunks[1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[2]["choices"] == [] and chunks[2]["usage"]["total_tokens"] == 0
    assert failed.status_code == 422
    assert failed.json()["error"]["message"] == "No a here."


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (ask("tale", "a", temperature=0.5), 400, "temperature"),
        (ask("tale", "a", max_tokens=5), 400, "max_tokens"),
        (ask("tale", "a", n=2), 400, "n"),
        (ask("tale", "a", tools=[]), 400, "tools"),
        (ask("tale", "a", inputs={"nobody": 1}), 400, "inputs"),
        (ask("tale", "a", inputs={"tone": 3}), 400, "inputs"),
        (ask("tale", "a", inputs={"who": "b", "tone": "c"}), 400, "messages"),
        (ask("pair", "a"), 400, "messages"),
        ({"model": "tale", "messages": [{"role": "system", "content": "a"}]}, 400, "messages"),
        (ask("tale@9", "a"), 404, "model"),
        (ask("tale@", "a"), 404, "model"),
    ],
)
async def test_what_they_do_not_take(make_app, client_of, body, status, param) -> None:
    async with client_of(make_app(replies={"story": "a"})) as client:
        await store(client)
        answer = await client.post("/v1/chat/completions", json=body)
        legacy = await client.post("/v1/completions", json={"model": "tale", "prompt": "a"})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param
    assert legacy.status_code == 400 and legacy.json()["error"]["param"] == "model"

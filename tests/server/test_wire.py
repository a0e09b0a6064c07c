"""Slow and rude clients, and stopping while clients are in the middle of something."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from sglspec.server import intake, wire
from sglspec.server.drain import Server
from sglspec.server.listen import bind
from tests.server.test_listen import GEN

ROOT = Path(__file__).parents[2]
HEAD = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def serving(app: FastAPI, drain_seconds: float = 1.0) -> AsyncGenerator[tuple[Server, int], None]:
    with bind("127.0.0.1", 0) as listener:
        server = Server(app, drain_seconds)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
        try:
            yield server, listener.getsockname()[1]
        finally:
            server.should_exit = True
            await asyncio.wait_for(task, 30)


async def talk(port: int, *pieces: bytes, until_closed: bool = True) -> bytes:
    """Send, and read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    answer = await asyncio.wait_for(reader.read(-1 if until_closed else 65_536), 30)
    writer.close()
    return answer


def client_at(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120)


async def test_headers_that_do_not_come(make_app, monkeypatch, caplog) -> None:
    monkeypatch.setattr(wire, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(wire, "KEEP_ALIVE_SECONDS", 1)
    whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with serving(make_app()) as (_, port):
        assert await talk(port) == b""
        assert await talk(port, b"GET /livez HTTP/1.1\r\nHost: loc") == b""
        assert b"alive" in await talk(port, whole, b"GET /li")
        drip = asyncio.create_task(talk(port))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\n")
        sent = 0
        while not reader.at_eof() and sent < 200:  # each byte comes in time, the headers never do
            writer.write(b"X")
            await asyncio.sleep(0.02)
            sent += 1
            if writer.is_closing():
                break
        assert sent < 200
        await drip
    assert not [record for record in caplog.records if record.exc_info]


async def test_bodies_that_do_not_come(make_app, monkeypatch, caplog) -> None:
    monkeypatch.setattr(intake, "PIECE_SECONDS", 0.2)
    async with serving(make_app()) as (_, port):
        answer = await talk(port, HEAD + b"Content-Length: 1000\r\n\r\n{")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"timeout"' in answer
        chunked = await talk(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
        assert chunked.startswith(b"HTTP/1.1 408 ")
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD.replace(b"application/json", b"text/plain") + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\nzz\r\n",
        b"get /v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET http://localhost/v1/secret HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET //livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /livez%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
    ids=lambda request: repr(request[-40:]),
)
async def test_requests_that_are_none(make_app, monkeypatch, caplog, request_: bytes) -> None:
    monkeypatch.setattr(wire, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(wire, "KEEP_ALIVE_SECONDS", 1)
    async with serving(make_app()) as (_, port):
        try:
            answer = await talk(port, request_)
        except ConnectionResetError:  # it was closed while more came
            answer = b"HTTP/1.1 400 "
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
        assert b"alive" in await talk(port, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert not [record for record in caplog.records if record.exc_info]


async def test_what_is_no_http_is_answered_as_everything_else(make_app) -> None:
    async with serving(make_app()) as (_, port):
        answer = await talk(port, b"GET /livez HTTP/1.1\r\nHost localhost\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    assert json.loads(body)["code"] == "invalid-request"


@pytest.mark.parametrize("size", [60_000, 100_000])
@pytest.mark.parametrize("where", ["a header", "many", "the query"])
async def test_headers_that_are_too_large(make_app, size: int, where: str) -> None:
    """They come in one piece, or nearly: what is read at once can be larger than what the parser would wait for."""
    piece = "x" * (size // 50)
    target, headers = "/v1/runs", [f"X-{n}: {piece}" for n in range(50)]
    if where == "a header":
        headers = [f"X: {'x' * size}"]
    elif where == "the query":
        target, headers = f"/livez?x={'x' * size}", []
    lines = [f"GET {target} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]
    async with serving(make_app()) as (_, port):
        try:
            answer = await talk(port, "\r\n".join(lines).encode())
        except ConnectionResetError:  # it was closed while more came
            answer = b"HTTP/1.1 400 application/problem+json"
    if size < 65_536:
        assert answer.startswith(b"HTTP/1.1 200 ")
    else:
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
        assert b"application/problem+json" in answer


async def test_large_headers_in_one_piece(make_app, client_of) -> None:
    async with client_of(make_app()) as client:
        answer = await client.get("/livez", headers={"X-A": "x" * 100_000})
    assert (answer.status_code, answer.json()["code"]) == (431, "too-many-headers")


async def test_more_connections_than_there_may_be(make_app, monkeypatch) -> None:
    monkeypatch.setattr(wire, "MAX_CONNECTIONS", 1)
    whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with serving(make_app()) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(whole)
        await reader.readuntil(b'"alive"}')
        refused = await talk(port, whole)
        writer.write(whole)
        await reader.readuntil(b'"alive"}')
        writer.close()
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"busy"' in refused


async def test_stopping_lets_runs_end(make_app, stuck, caplog) -> None:
    """While it waits it answers, says that it stops, and takes nothing new; then it ends without waiting longer."""
    backend = stuck()
    app = make_app(backend)
    async with serving(app, drain_seconds=30.0) as (server, port), client_at(port) as client:
        posted = asyncio.create_task(
            client.post("/v1/runs", json={"spec": GEN}, headers={"Accept": "text/event-stream"}, timeout=120)
        )
        await asyncio.wait_for(backend.started.wait(), 10)
        half = asyncio.create_task(talk(port, HEAD + b"Content-Length: 1000\r\n\r\n{"))
        await asyncio.sleep(0.1)
        server.should_exit = True
        refused = await asyncio.wait_for(half, 60)
        ready = await client.get("/readyz")
        again = await client.post("/v1/runs", json={"spec": GEN})
        listed = await client.get("/v1/runs")
        (run,) = app.state.service.runs._live.values()
        run.stop("cancelled", "That is enough.")
        text = (await asyncio.wait_for(posted, 60)).text
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"stopping"' in refused
    assert (ready.status_code, ready.json()["code"]) == (503, "stopping")
    assert (again.status_code, again.json()["code"]) == (503, "stopping")
    assert listed.json()["data"][0]["status"] == "running"
    assert text.count("event: run.cancelled\n") == 1
    assert not [record for record in caplog.records if record.exc_info or record.levelno > logging.WARNING]


async def test_a_second_signal_means_now(make_app, stuck) -> None:
    backend = stuck()
    async with serving(make_app(backend), drain_seconds=300.0) as (server, port), client_at(port) as client:
        posted = asyncio.create_task(client.post("/v1/runs", json={"spec": GEN}, timeout=120))
        await asyncio.wait_for(backend.started.wait(), 10)
        server.handle_exit(signal.SIGTERM, None)
        server._captured_signals.clear()  # else it would be raised again
        await asyncio.sleep(0.2)
        assert not posted.done()
        server.handle_exit(signal.SIGTERM, None)
        server._captured_signals.clear()  # else it would be raised again
        answer = await asyncio.wait_for(posted, 60)
    assert answer.json()["status"] == "cancelled"


def test_a_process_that_is_told_to_stop(tmp_path: Path) -> None:
    """With a body half sent: the client is answered, nothing is on standard error, and the exit status is the signal."""
    import socket

    replies = tmp_path / "replies.yaml"
    replies.write_text("story: upon a time\n")
    arguments = ["serve", "--port", "0", "--backend", f"scripted:{replies}", str(replies.parent / "p.sglspec.yaml")]
    (tmp_path / "p.sglspec.yaml").write_text(f"name: p\n{GEN}")
    process = subprocess.Popen(
        [sys.executable, "-m", "sglspec", *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert process.stderr is not None
        port = int(process.stderr.readline().rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
            connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
            with socket.create_connection(("127.0.0.1", port), timeout=120) as other:
                other.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert b"alive" in other.makefile("rb").read()
            process.send_signal(signal.SIGTERM)
            assert connection.makefile("rb").read().startswith(b"HTTP/1.1 503 ")
        assert process.wait(30) in (-signal.SIGTERM, 128 + signal.SIGTERM)
        assert process.stderr.read() == ""
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()

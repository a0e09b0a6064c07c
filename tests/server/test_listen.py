"""Where the server listens, and what importing it costs."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from sglspec.diagnostics import SpecError
from sglspec.server import serve
from sglspec.server.drain import Server
from sglspec.server.listen import bind, open_for_good

ROOT = Path(__file__).parents[2]
GEN = "sglspec: v1\nsteps:\n  - 'Once '\n  - gen: story\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_only_loopback(host: str) -> None:
    with pytest.raises(SpecError, match="not a loopback address"):
        serve(host, 0)


def test_a_port_that_is_taken() -> None:
    with bind("127.0.0.1", 0) as listener, pytest.raises(SpecError, match="cannot listen"):
        bind("127.0.0.1", listener.getsockname()[1])


async def test_the_collector_does_not_look_through_a_backend_again(tmp_path: Path) -> None:
    replies = tmp_path / "replies.yaml"
    replies.write_text("story: there was a fox\n")
    try:
        backend = await open_for_good(f"scripted:{replies}", None, None)
        assert not any(one is backend for one in gc.get_objects())
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_importing_the_server_imports_no_model() -> None:
    code = "import sys, server; server.app; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_serve_says_where_and_stops_when_told(tmp_path: Path) -> None:
    replies = tmp_path / "replies.yaml"
    replies.write_text("story: upon a time\n")
    code = f"from sglspec.server import serve; serve(port=0, backend={f'scripted:{replies}'!r})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("sglspec: listening on http://127.0.0.1:"), line
        request = urllib.request.Request(
            line.split()[-1] + "/v1/runs", GEN.encode(), {"Content-Type": "application/yaml"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert b'"story":"upon a time"' in answer.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) in (-signal.SIGTERM, 128 + signal.SIGTERM)
        assert process.stderr.read() == ""
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


async def test_stopping_cancels_what_does_not_end(make_app, stuck) -> None:
    import httpx

    backend = stuck()
    app = make_app(backend)
    with bind("127.0.0.1", 0) as listener:
        server = Server(app, drain_seconds=0.2)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=120) as client:
            request = asyncio.create_task(
                client.post("/v1/runs", json={"spec": GEN}, headers={"Accept": "text/event-stream"})
            )
            await asyncio.wait_for(backend.started.wait(), 10)
            server.should_exit = True
            text = (await asyncio.wait_for(request, 60)).text
        await asyncio.wait_for(task, 60)
    assert text.count("event: run.cancelled\n") == 1
    assert text.rstrip().split("\n")[-2] == "event: run.cancelled"

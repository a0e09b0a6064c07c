"""Server processes that end while they have something to do: killed, and told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from sglspec.server.access.keyfile import KeyFile
from sglspec.server.access.keys import new_key

ROOT = Path(__file__).parents[2]
TALE = "sglspec: v1\nname: tale\ninputs: {n: {type: integer, default: 0}}\nsteps:\n  - gen: story\n"
REPLY = "once upon a time"
ASYNC = {"Prefer": "respond-async"}


@dataclass
class Serving:
    process: subprocess.Popen[str]
    url: str


@contextmanager
def serving(folder: Path, mode: str, *arguments: str) -> Generator[Serving]:
    """A server with the program `tale`; killed at the end if it still runs."""
    (folder / "replies.yaml").write_text(f"story: {REPLY}\n")
    (folder / "tale.sglspec.yaml").write_text(TALE)
    given = [str(folder / "tale.sglspec.yaml"), "--port", "0", "--backend", f"scripted:{folder / 'replies.yaml'}"]
    command = [sys.executable, "-m", "tests.server.process", mode, *given, *arguments]
    env = {name: value for name, value in os.environ.items() if not name.startswith("SGLSPEC_")}
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert "listening on" in line, line + process.stderr.read()
        yield Serving(process, line.split()[-1])
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def until_ended(client: httpx.Client, batch: str) -> dict[str, Any]:
    while True:
        face = client.get(f"/v1/batches/{batch}").json()
        if face["status"] not in ("queued", "running"):
            return face
        time.sleep(0.05)  # nothing tells when a batch ends


def test_a_process_that_is_killed(tmp_path: Path, place: str) -> None:
    """Another one over the same store says of the run that had begun that it is lost, runs the one that waited, and goes
    on with the batch; as long as the first one lives, it touches nothing."""
    store = ("--store", place)
    with (
        serving(tmp_path, "stuck", *store, "--max-runs", "2") as first,
        serving(tmp_path, "quick", *store) as second,
        httpx.Client(base_url=first.url) as client,
        httpx.Client(base_url=second.url, timeout=60) as other,
    ):
        runs = "/v1/programs/tale/runs"
        begun = client.post(runs, headers=ASYNC | {"Idempotency-Key": "a"}).json()["id"]
        stream = client.send(
            client.build_request("GET", f"/v1/runs/{begun}/events", headers={"Accept": "text/event-stream"}),
            stream=True,
        )
        events = names(stream)
        assert [next(events), next(events)] == ["run.queued", "run.started"]
        batch = client.post("/v1/batches", json={"program": "tale", "rows": [{"n": n} for n in range(3)]}).json()["id"]
        while client.get(f"/v1/batches/{batch}").json()["status"] == "queued":
            time.sleep(0.05)  # nothing tells when a batch begins
        waiting = [client.post(runs, headers=ASYNC).json()["id"] for _ in range(3)]
        for run in waiting:
            while not other.get(f"/v1/runs/{run}/events?after=-1").json()["data"]:
                time.sleep(0.05)  # until the store has its first event
        states = [other.get(f"/v1/runs/{run}").json()["status"] for run in (begun, *waiting)]
        assert (states[0], states[-1]) == ("running", "queued")
        first.process.send_signal(signal.SIGKILL)
        assert first.process.wait() == -signal.SIGKILL
        faces = [other.get(f"/v1/runs/{run}", headers={"Prefer": "wait=50"}).json() for run in (begun, *waiting)]
        lost = [face["error"]["code"] for face in faces if face["status"] == "failed"]
        assert [faces[0]["status"], faces[-1]["status"]] == ["failed", "succeeded"]
        assert set(lost) == {"S719"}
        result = other.get(f"/v1/runs/{waiting[-1]}/result").json()
        log = other.get(f"/v1/runs/{waiting[-1]}/events?after=-1").json()["data"]
        done = until_ended(other, batch)
        rows = [json.loads(line) for line in other.get(f"/v1/batches/{batch}/output").text.splitlines()]
        again = other.post(runs, headers=ASYNC | {"Idempotency-Key": "a"})
    assert result["outputs"] == {"story": REPLY}
    assert [event["seq"] for event in log] == list(range(len(log)))
    assert [event["type"] for event in log].count("run.succeeded") == 1
    assert (done["status"], done["counts"]) == ("succeeded", {"succeeded": 3})
    assert [(row["row"], row["outputs"]) for row in rows] == [(n, {"story": REPLY}) for n in (1, 2, 3)]
    assert (again.json()["id"], again.headers["Idempotency-Replayed"]) == (begun, "true")


def test_a_process_that_is_told_to_stop_leaves_what_waits(tmp_path: Path, place: str) -> None:
    """The next one over the same store runs it."""
    arguments = ("--store", place, "--max-runs", "1", "--drain-timeout", "0")
    runs = "/v1/programs/tale/runs"
    with serving(tmp_path, "stuck", *arguments) as first, httpx.Client(base_url=first.url) as client:
        begun, waits = (client.post(runs, headers=ASYNC).json()["id"] for _ in range(2))
        assert client.get(f"/v1/runs/{waits}/events?after=-1").json()["status"] == "queued"
        first.process.send_signal(signal.SIGTERM)
        first.process.wait(30)
    with serving(tmp_path, "quick", *arguments) as second, httpx.Client(base_url=second.url, timeout=60) as client:
        faces = [client.get(f"/v1/runs/{run}", headers={"Prefer": "wait=50"}).json() for run in (begun, waits)]
        log = client.get(f"/v1/runs/{waits}/events?after=-1").json()["data"]
    assert [face["status"] for face in faces] == ["cancelled", "succeeded"]
    assert [event["seq"] for event in log] == list(range(len(log)))
    assert [event["type"] for event in log][:2] == ["run.queued", "run.started"]


def names(answer: httpx.Response) -> Iterator[str]:
    """Types of the events of a stream."""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            yield line.removeprefix("event: ")


@pytest.mark.parametrize(
    ("mode", "drain", "end"), [("slow", "30", "run.succeeded"), ("stuck", "0", "run.cancelled")], ids=["drains", "ends"]
)
def test_a_stream_with_a_key_when_the_server_is_told_to_stop(tmp_path: Path, mode: str, drain: str, end: str) -> None:
    token, key = new_key("alice", ["runs:write", "runs:read"])
    KeyFile(tmp_path / "keys").add(key)
    arguments = ("--keys-file", str(tmp_path / "keys"), "--drain-timeout", drain)
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    with serving(tmp_path, mode, *arguments) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.post("/v1/programs/tale/runs").status_code == 401
        with client.stream("POST", "/v1/programs/tale/runs", headers=headers) as answer:
            events = names(answer)
            seen = [next(events), next(events)]
            server.process.send_signal(signal.SIGTERM)
            seen += events
        code = server.process.wait(30)
        assert server.process.stderr is not None
        said = server.process.stderr.read()
    assert (seen[:2], seen[-1]) == (["run.queued", "run.started"], end)
    assert [event for event in seen if event.startswith("run.")] == ["run.queued", "run.started", end]
    assert code in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert "Traceback" not in said and token not in said

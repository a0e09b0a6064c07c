"""Clients that leave, and cancels, in every phase of a run on the engine: it stops within a step and leaves nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from torch import Tensor

from sglspec.backends.local import LocalBackend, open_local
from sglspec.runtime.limits import Bounds
from sglspec.server.runs import LiveRun
from sglspec_engine.model.adapter import ModelRunner
from tests.engine import tiny
from tests.engine.drive import until_forwards

EVENTS = {"Accept": "text/event-stream"}
ASYNC = {"Prefer": "respond-async"}
LOOP = "sglspec: v1\nlimits: {branches: 100000, tokens: 1000000}\nsteps:\n  - for: i\n    in: range(600)\n    do:\n      - scratch:\n"
BOUNDS = Bounds(branches=100_000, tokens=1_000_000)
READ = "          - check: len(x) >= 0\n"  # a round waits for its generation
# each goes on for much longer than a test
PHASES = {
    "prefill": LOOP + f"          - '{{{{ i }}}} {'many words of a long prompt ' * 12}'\n          - gen: x\n            max_tokens: 1\n" + READ,
    "decode": LOOP + "          - 'Once {{ i }}'\n          - gen: x\n            max_tokens: 60\n            ignore_eos: true\n" + READ,
    "fork": LOOP + "          - 'Once {{ i }}'\n          - fork: 4\n            do:\n              - gen: x\n                max_tokens: 40\n"
    "                ignore_eos: true\n" + READ,
    "compile": LOOP + "          - 'Once'\n          - gen: x\n            regex: '{{ i }}([a-f]{1,60}(x|y{2,30})?){1,20}'\n" + READ,
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build(tmp_path_factory.mktemp("leaving"))


@pytest_asyncio.fixture
async def local(model: Path) -> AsyncIterator[LocalBackend]:
    yield await open_local(model, weights="fp32", step_tokens=16, debug=True)  # the application closes it


async def quiet(app, backend: LocalBackend) -> int:
    """Wait until no run is left, and nothing of it in the engine; how often the model ran then."""
    async with asyncio.timeout(30):
        while len(app.state.service.runs):  # noqa: ASYNC110 - the set of runs has no event to wait for
            await asyncio.sleep(0.002)
    await backend.engine.check()
    assert backend.engine.pool.live_bytes == 0
    return backend.engine.metrics.forwards


@pytest.mark.parametrize("way", ["stream", "plain", "cancel"])
@pytest.mark.parametrize("phase", list(PHASES))
async def test_it_stops_within_a_step(
    make_app, listening, local: LocalBackend, monkeypatch, phase: str, way: str
) -> None:
    asked: list[int] = []
    stop = LiveRun.stop

    def noted(live: LiveRun, *args: object) -> None:
        asked.append(local.engine.metrics.forwards)
        stop(live, *args)  # pyright: ignore[reportArgumentType]

    forward = ModelRunner.forward

    def unhurried(*args: Any) -> Tensor:
        time.sleep(0.05)  # as long as a step of a real model; the event loop passes the news on meanwhile
        return forward(*args)

    monkeypatch.setattr(LiveRun, "stop", noted)
    monkeypatch.setattr(ModelRunner, "forward", unhurried)
    app = make_app(local, bounds=BOUNDS)
    async with listening(app) as client:
        if way == "cancel":
            run = (await client.post("/v1/runs", json={"spec": PHASES[phase]}, headers=ASYNC)).json()["id"]
            await until_forwards(local.engine, 3)
            assert (await client.post(f"/v1/runs/{run}/cancel")).status_code == 202
        else:
            headers = EVENTS if way == "stream" else {}
            request = asyncio.create_task(client.post("/v1/runs", json={"spec": PHASES[phase]}, headers=headers))
            await until_forwards(local.engine, 3)
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        end = await quiet(app, local)
        # the step that was on its way, and one that began before the engine's thread looked again
        assert end - asked[0] <= 2
        assert (await client.get("/v1/runs")).json()["data"][0]["status"] == "cancelled"


@pytest.mark.parametrize("headers", [EVENTS, {}], ids=["stream", "plain"])
async def test_what_leaves_the_queue_is_never_computed(make_app, listening, local: LocalBackend, headers) -> None:
    app = make_app(local, runs=1, bounds=BOUNDS)
    async with listening(app) as client:
        first = (await client.post("/v1/runs", json={"spec": PHASES["decode"]}, headers=ASYNC)).json()["id"]
        await until_forwards(local.engine, 3)
        request = asyncio.create_task(client.post("/v1/runs", json={"spec": PHASES["fork"]}, headers=headers))
        async with asyncio.timeout(30):
            while len(app.state.service.runs) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        request.cancel()
        async with asyncio.timeout(30):
            while len(app.state.service.runs) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        await client.post(f"/v1/runs/{first}/cancel")
        await quiet(app, local)
        rows = (await client.get("/v1/runs")).json()["data"]
    assert [(row["status"], row["started_at"] is None) for row in rows] == [("cancelled", True), ("cancelled", False)]

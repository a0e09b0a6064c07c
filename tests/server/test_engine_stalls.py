"""A real engine that does nothing for a while, and prompts that are given up half way, over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from sglspec.backends.local import LocalBackend, open_local
from sglspec_engine.engine import Engine
from tests.engine import tiny
from tests.engine.drive import until_forwards
from tests.server.test_refusals import check_problem

GEN = "sglspec: v1\nsteps:\n  - Once\n  - gen: x\n    max_tokens: 2\n    ignore_eos: true\n"
LONG = "many words of a long prompt " * 50
NOTHING = {"max_new_tokens": 0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build(tmp_path_factory.mktemp("stalls"))


@pytest_asyncio.fixture
async def local(model: Path) -> AsyncIterator[LocalBackend]:
    yield await open_local(model, weights="fp32", step_tokens=16, debug=True)  # the application closes it


@contextmanager
def held(engine: Engine) -> Generator[Callable[[], None]]:
    """The engine does nothing until the function that this gives is called."""
    gate = threading.Event()

    def hold() -> None:
        gate.wait()

    holding = asyncio.ensure_future(engine.call(hold))
    try:
        yield gate.set
    finally:
        gate.set()
        holding.add_done_callback(lambda done: done.exception())


async def test_an_engine_that_stalls_makes_the_server_unready(make_app, listening, local: LocalBackend) -> None:
    async with listening(make_app(local, stall_seconds=0.1)) as client, asyncio.timeout(60):
        await client.post("/v1/runs", json={"spec": GEN})  # the model is open from here on
        assert (await client.get("/readyz")).json()["status"] == "ready"
        with held(local.engine) as release:
            run = asyncio.create_task(client.post("/v1/runs", json={"spec": GEN}))
            while (stalled := await client.get("/readyz")).status_code == 200:
                pass
            alive = await client.get("/livez")
            metrics = (await client.get("/metrics")).text
            release()
            assert (await run).json()["status"] == "succeeded"
        ready = await client.get("/readyz")
    check_problem(stalled, 503, "engine-stalled")
    assert "requests and did nothing for" in stalled.json()["detail"]
    assert (alive.status_code, ready.status_code) == (200, 200)
    assert "\nsglspec_ready 0.0\n" in metrics


@pytest.mark.parametrize(
    "body",
    [
        {"text": LONG},
        {"text": LONG, "sampling_params": {"max_new_tokens": 8, "n": 2}},
        {"text": LONG, "return_logprob": True, "logprob_start_len": 0},
        {"text": LONG, "return_logprob": True, "logprob_start_len": 0, "sampling_params": NOTHING},
        {"text": LONG, "sampling_params": NOTHING},
    ],
    ids=["generates", "twice", "reads", "only reads", "only computes"],
)
async def test_a_request_that_is_aborted_in_its_prompt(make_app, listening, local: LocalBackend, body) -> None:
    """The model runs at most twice more: the step that was on its way, and one that began before the engine's thread
    looked again."""
    async with listening(make_app(local)) as client, asyncio.timeout(60):
        request = asyncio.create_task(client.post("/generate", json=body | {"rid": "mine"}))
        await until_forwards(local.engine, 3)
        with held(local.engine) as release:
            assert (await client.post("/abort_request", json={"rid": "mine"})).status_code == 200
            during = local.engine.metrics.forwards
            release()
            answer = (await request).json()
        after = local.engine.metrics.forwards
        await local.engine.check()
        assert local.engine.pool.live_bytes == 0
    assert during < len(local.encode(LONG)) // 16
    assert after - during <= 2
    for one in answer if isinstance(answer, list) else [answer]:
        assert one["text"] == ""
        assert one["meta_info"]["finish_reason"]["type"] == "abort"

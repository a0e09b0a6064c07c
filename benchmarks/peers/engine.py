"""This engine, as one of the systems."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.base import System
from benchmarks.workloads.base import Answer, Case
from benchmarks.workloads.json_schema import Json
from benchmarks.workloads.select import Choosing
from sglspec_engine.engine import Engine


class Ours(System):
    """An engine with settings of its own."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.engine = Engine.load(path, **settings)
        shown = ", ".join(f"{key}={value}" for key, value in settings.items() if value is not None)
        self.name = f"sglspec, {shown}" if shown else "sglspec"
        self.exact = settings.get("weights") == "fp32"
        self._runner = asyncio.Runner()
        self._lengths: list[int] = []

    def prepare(self, case: Case) -> None:
        """See `System.prepare`."""
        if isinstance(case, Choosing) and case.warm:
            self._runner.run(case.read(self.engine))

    def run(self, case: Case) -> Answer:
        """See `System.run`. Facts: tokens computed, and the share of the time that was not spent in the model."""
        before, began = self.engine.metrics, time.perf_counter()
        answer = self._runner.run(case.ours(self.engine))
        seconds, after = time.perf_counter() - began, self.engine.metrics
        inside = after.seconds - before.seconds
        self._lengths = [len(ids) for ids in answer.outputs]
        facts = {"computed": after.embedded_tokens - before.embedded_tokens, "overhead": 1 - inside / seconds}
        return Answer(answer.outputs, {**facts, **answer.facts})

    def one_by_one(self, case: Choosing) -> Answer:
        """Answer a case choice by choice."""
        return self._runner.run(case.one_by_one(self.engine))

    def unconstrained(self, case: Json) -> Answer:
        """As many tokens as this case took last, without its constraint."""
        return self._runner.run(case.unconstrained(self.engine, self._lengths))

    def close(self) -> None:
        """End the engine."""
        self._runner.run(self.engine.close())
        self._runner.close()


class OneByOne(System):
    """The same engine, asked for the choices of one row one after the other."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self.name = f"{ours.name}, one by one"
        self.exact = ours.exact

    def prepare(self, case: Case) -> None:
        """See `System.prepare`."""
        self._ours.prepare(case)

    def run(self, case: Case) -> Answer | None:
        """See `System.run`."""
        return self._ours.one_by_one(case) if isinstance(case, Choosing) and len(case.contexts) == 1 else None


class Unconstrained(System):
    """The same engine, generating as many tokens as it took for JSON by schema, without a schema."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self.name = f"{ours.name}, no constraint"

    def run(self, case: Case) -> Answer | None:
        """See `System.run`."""
        return self._ours.unconstrained(case) if isinstance(case, Json) else None

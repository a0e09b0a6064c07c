"""guidance over llama.cpp: JSON by schema, one object after the other, as its programs run.

guidance 0.3.1 names exact versions of llguidance and llama-cpp-python, and runs with later ones too: install it with
`--no-deps`, so that it shares this process.
"""

# pyright: basic

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.base import System
from benchmarks.workloads.base import Answer, Case
from benchmarks.workloads.json_schema import SCHEMA, Json, valid


class Guidance(System):
    """A model in guidance."""

    def __init__(self, gguf: Path, threads: int | None) -> None:
        self._guidance: Any = importlib.import_module("guidance")
        self.name = f"guidance {self._guidance.__version__}, llama.cpp {gguf.stem.rsplit('.', 1)[-1]}"
        count = threads or os.cpu_count() or 1
        settings: dict[str, Any] = {"n_ctx": 4096, "n_threads": count, "n_threads_batch": count}
        settings |= {"echo": False, "verbose": False, "enable_monitoring": False}
        with warnings.catch_warnings(action="ignore"):  # of a chat template that it does not know; no chat here
            self._model = self._guidance.models.LlamaCpp(str(gguf), **settings)

    def run(self, case: Case) -> Answer | None:
        """See `System.run`."""
        if not isinstance(case, Json):
            return None
        rule = self._guidance.json("o", schema=SCHEMA, temperature=0.0, max_tokens=case.new)
        right = sum(valid(str((self._model + text + rule)["o"])) for text in case.texts)
        return Answer(tuple(() for _ in case.texts), {"valid": right})


def load(files: Sequence[Path], threads: int | None) -> list[System]:
    """The peer with each model file, if its packages are there."""
    if any(importlib.util.find_spec(name) is None for name in ("guidance", "llama_cpp")):
        return []
    return [Guidance(gguf, threads) for gguf in files]

"""OpenVINO GenAI: continuous batching over a GGUF file, JSON by schema through its structured output.

It reads its own tokenizer from the file, so texts are compared by validity and not token by token.
"""

# pyright: basic

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.base import System
from benchmarks.workloads.base import Answer, Case
from benchmarks.workloads.json_schema import SCHEMA, Json, valid


class OpenVino(System):
    """All requests of a case at once. The prefix cache is off, so nothing is left from before."""

    def __init__(self, gguf: Path, threads: int | None) -> None:
        self._g: Any = importlib.import_module("openvino_genai")
        self.name = f"openvino-genai {self._g.__version__.split('-')[0]}, {gguf.stem.rsplit('.', 1)[-1]}"
        scheduler = self._g.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs, scheduler.max_num_batched_tokens = 2, 64, 2048
        scheduler.enable_prefix_caching, scheduler.dynamic_split_fuse = False, True
        settings = {"INFERENCE_NUM_THREADS": threads or os.cpu_count() or 1, "PERFORMANCE_HINT": "LATENCY"}
        self._pipe = self._g.ContinuousBatchingPipeline(str(gguf), scheduler, "CPU", settings)

    def run(self, case: Case) -> Answer | None:
        """See `System.run`."""
        if not isinstance(case, Json):
            return None
        found = self._pipe.generate(list(case.texts), [self._config(case.new) for _ in case.texts])
        right = sum(valid(str(one.m_generation_ids[0])) for one in found)
        return Answer(tuple(() for _ in found), {"valid": right})

    def _config(self, new: int) -> Any:
        config = self._g.GenerationConfig()
        config.max_new_tokens, config.do_sample, config.apply_chat_template = new, False, False
        output = self._g.StructuredOutputConfig()
        output.json_schema = json.dumps(SCHEMA)
        config.structured_output_config = output
        return config


def load(files: Sequence[Path], threads: int | None) -> list[System]:
    """The peer with each model file, if its package is there."""
    if importlib.util.find_spec("openvino_genai") is None:
        return []
    return [OpenVino(gguf, threads) for gguf in files]

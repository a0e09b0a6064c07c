"""llama.cpp through llama-cpp-python's bindings of its C API: many sequences in one batch, prefixes copied by sequence.

The package's own class and server run one sequence at a time and would be no fair peer.
"""

# pyright: basic

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.base import System
from benchmarks.workloads.base import Answer, Case, Generation, Ids
from benchmarks.workloads.select import Choosing

_BATCH = 2048
_SEQUENCES = 64

Item = tuple[int, int, int, bool]
"""token, position, sequence, whether its logits are wanted"""


class LlamaCpp(System):
    """A GGUF file, all sequences over one cache."""

    def __init__(self, gguf: Path, threads: int | None) -> None:
        self._c: Any = importlib.import_module("llama_cpp")
        self.name = f"llama.cpp {self._c.__version__}, {gguf.stem.rsplit('.', 1)[-1]}"
        self._silence = self._c.llama_log_callback(lambda level, text, data: None)  # kept as long as it may be called
        self._c.llama_log_set(self._silence, None)
        self._c.llama_backend_init()
        self._model = self._c.llama_model_load_from_file(str(gguf).encode(), self._c.llama_model_default_params())
        options = self._c.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = 8192, _BATCH, 512
        options.n_seq_max, options.kv_unified, options.no_perf = _SEQUENCES, True, True
        options.n_threads = options.n_threads_batch = threads or os.cpu_count() or 1
        self._context = self._c.llama_init_from_model(self._model, options)
        self._memory = self._c.llama_get_memory(self._context)
        self._width = self._c.llama_vocab_n_tokens(self._c.llama_model_get_vocab(self._model))
        self._batch = self._c.llama_batch_init(_BATCH, 0, 1)

    def run(self, case: Case) -> Answer | None:
        """See `System.run`."""
        self._c.llama_memory_clear(self._memory, True)
        if isinstance(case, Choosing):
            return None if case.warm else self._choose(case)
        return self._generate(case) if isinstance(case, Generation) else None

    def one_by_one(self, case: Choosing) -> Answer:
        """Each choice as a request of its own that finds its context computed, up to the last token."""
        self._c.llama_memory_clear(self._memory, True)
        (context,), (choices,) = case.contexts, case.choice_ids
        self._share(context[:-1], 1)
        means: list[float] = []
        for choice in choices:
            self._c.llama_memory_seq_rm(self._memory, 0, len(context) - 1, -1)
            ids = (context[-1], *choice[:-1])
            rows = self._decode([(token, len(context) - 1 + k, 0, True) for k, token in enumerate(ids)])
            means.append(float(np.mean([_logprob(row, token) for row, token in zip(rows, choice, strict=True)])))
        return Answer(((int(np.argmax(means)),),))

    def close(self) -> None:
        """See `System.close`."""
        self._c.llama_batch_free(self._batch)
        self._c.llama_free(self._context)
        self._c.llama_model_free(self._model)

    def _generate(self, case: Generation) -> Answer:
        self._share(case.prompts[0][: case.shared], len(case.prompts))
        items = [item for s, p in enumerate(case.prompts) for item in _items(p[case.shared :], case.shared, s)]
        found = [[int(row.argmax())] for row in self._decode(items)]
        for step in range(case.new - 1):
            last = [(ids[-1], len(case.prompts[s]) + step, s, True) for s, ids in enumerate(found)]
            for ids, row in zip(found, self._decode(last), strict=True):
                ids.append(int(row.argmax()))
        return Answer(tuple(map(tuple, found)))

    def _choose(self, case: Choosing) -> Answer:
        """Row by row: its context once on sequence 0, the choices as sequences that continue it."""
        self._share(case.contexts[0][: case.shared], 1)
        picks: list[Ids] = []
        for context, choices in zip(case.contexts, case.choice_ids, strict=True):
            for sequence in range(len(choices) + 1):
                start = case.shared if sequence == 0 else 0
                self._c.llama_memory_seq_rm(self._memory, sequence, start, -1)
            (first,) = self._decode(_items(context[case.shared :], case.shared, 0))
            items: list[Item] = []
            for i, choice in enumerate(choices):
                self._c.llama_memory_seq_cp(self._memory, 0, i + 1, -1, -1)
                items += [(token, len(context) + k, i + 1, True) for k, token in enumerate(choice[:-1])]
            rest = iter(self._decode(items))
            means = [np.mean([_logprob(first if k == 0 else next(rest), t) for k, t in enumerate(c)]) for c in choices]
            picks.append((int(np.argmax(means)),))
        return Answer(tuple(picks))

    def _share(self, prefix: Ids, sequences: int) -> None:
        """Compute a prefix on sequence 0 and let the others have it."""
        if prefix:
            self._decode(_items(prefix, 0, 0))
            for sequence in range(1, sequences):
                self._c.llama_memory_seq_cp(self._memory, 0, sequence, -1, -1)

    def _decode(self, items: Sequence[Item]) -> list[np.ndarray]:
        """Run tokens, in as many batches as they need; the logits that are wanted, in order."""
        found: list[np.ndarray] = []
        for start in range(0, len(items), _BATCH):
            part = items[start : start + _BATCH]
            batch = self._batch
            batch.n_tokens = len(part)
            for i, (token, position, sequence, wanted) in enumerate(part):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
                batch.seq_id[i][0] = sequence
            code = self._c.llama_decode(self._context, batch)
            if code:
                raise RuntimeError(f"llama_decode returned {code}")
            for i, item in enumerate(part):
                if item[3]:
                    row = self._c.llama_get_logits_ith(self._context, i)
                    found.append(np.ctypeslib.as_array(row, shape=(self._width,)).copy())
        return found


class OneByOne(System):
    """The same model, asked for the choices of one row one after the other."""

    def __init__(self, whole: LlamaCpp) -> None:
        self._whole = whole
        self.name = f"{whole.name}, one by one"

    def run(self, case: Case) -> Answer | None:
        """See `System.run`."""
        if not isinstance(case, Choosing) or case.warm or len(case.contexts) > 1:
            return None
        return self._whole.one_by_one(case)


def load(files: Sequence[Path], threads: int | None) -> list[System]:
    """The peers with each model file, if the package is there."""
    if importlib.util.find_spec("llama_cpp") is None:
        return []
    return [system for whole in (LlamaCpp(gguf, threads) for gguf in files) for system in (whole, OneByOne(whole))]


def _items(ids: Sequence[int], start: int, sequence: int) -> list[Item]:
    """The tokens of one sequence from position `start`; the last one's logits are wanted."""
    return [(token, start + k, sequence, k == len(ids) - 1) for k, token in enumerate(ids)]


def _logprob(logits: np.ndarray, token: int) -> float:
    row = logits.astype(np.float64)
    top = row.max()
    return float(row[token] - top - np.log(np.exp(row - top).sum()))

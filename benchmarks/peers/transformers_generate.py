"""transformers' `generate` in float32: one by one, as a batch, and with the shared prefix copied by hand."""

# pyright: basic

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.peers.base import System
from benchmarks.workloads.base import Answer, Case, Generation, Ids
from benchmarks.workloads.select import Choosing

Mode = Literal["one by one", "batched", "prefix copied"]


class Transformers(System):
    """One way to use a model that several of these may share."""

    exact = True

    def __init__(self, model: Any, mode: Mode) -> None:
        self._model = model
        self._mode = mode
        self.name = f"transformers, {mode}"

    @torch.inference_mode()
    def run(self, case: Case) -> Answer | None:
        """See `System.run`."""
        if isinstance(case, Choosing) and case.warm:
            return None
        if isinstance(case, Choosing):
            return self._choose(case)
        if not isinstance(case, Generation):
            return None
        alone, alike = len(case.prompts) == 1, len({len(prompt) for prompt in case.prompts}) == 1
        if self._mode == "one by one":
            found = [self._generate([prompt], case.new)[0] for prompt in case.prompts]
        elif alone or not alike:
            return None
        elif self._mode == "batched":
            found = self._generate(list(case.prompts), case.new)
        elif not case.shared:
            return None
        else:
            cache = _read(self._model, case.prompts[0][: case.shared])
            cache.batch_repeat_interleave(len(case.prompts))
            found = self._generate(list(case.prompts), case.new, past_key_values=cache)
        return Answer(tuple(found))

    def _choose(self, case: Choosing) -> Answer | None:
        if self._mode == "prefix copied":
            return _choose_batched(self._model, case)
        alone = self._mode == "one by one" and len(case.contexts) == 1
        return _choose_one_by_one(self._model, case) if alone else None

    def _generate(self, prompts: list[Ids], new: int, **more: Any) -> list[Ids]:
        ids = torch.tensor(prompts)
        out = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            **more,
        )
        return [tuple(row) for row in out[:, ids.shape[1] :].tolist()]


def load(path: Path) -> list[System]:
    """The three ways, over one model."""
    import transformers

    warnings.filterwarnings("ignore", message=".*past_key_values.*", category=FutureWarning)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa")
    model.eval()
    model.generation_config.eos_token_id = None
    return [Transformers(model, "one by one"), Transformers(model, "batched"), Transformers(model, "prefix copied")]


def _read(model: Any, ids: Ids) -> Any:
    """A cache that holds `ids`."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    model(torch.tensor([ids]), past_key_values=cache, use_cache=True, logits_to_keep=1)
    return cache


def _choose_one_by_one(model: Any, case: Choosing) -> Answer:
    """Each choice with its whole context."""
    picks: list[Ids] = []
    for context, choices in zip(case.contexts, case.choice_ids, strict=True):
        means: list[float] = []
        for choice in choices:
            out = model(torch.tensor([context + choice]), use_cache=False, logits_to_keep=len(choice) + 1)
            table = out.logits[0, :-1].float().log_softmax(-1)
            means.append(float(table[range(len(choice)), list(choice)].mean()))
        picks.append((means.index(max(means)),))
    return Answer(tuple(picks))


def _choose_batched(model: Any, case: Choosing) -> Answer:
    """The prefix once, then for each row all choices as one batch, each with the row's own context."""
    prefix = _read(model, case.contexts[0][: case.shared])
    picks: list[Ids] = []
    for context, choices in zip(case.contexts, case.choice_ids, strict=True):
        cache = copy.deepcopy(prefix)
        cache.batch_repeat_interleave(len(choices))
        longest = max(map(len, choices))
        rows = [context[case.shared :] + choice + (0,) * (longest - len(choice)) for choice in choices]
        out = model(torch.tensor(rows), past_key_values=cache, use_cache=True, logits_to_keep=longest + 1)
        table = out.logits[:, :-1].float().log_softmax(-1)
        means = [float(table[i, range(len(c)), list(c)].mean()) for i, c in enumerate(choices)]
        picks.append((means.index(max(means)),))
    return Answer(tuple(picks))

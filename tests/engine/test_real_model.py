"""The default model: token for token what transformers generates from its chat template, in fp32."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch

from sglspec_engine.types import RoleOpen, Sampling, TextSegment
from tests.engine.drive import Oracle, collect, ids_of, running, turn

pytestmark = pytest.mark.model

PROMPTS = [
    "What is the capital of France?",
    " Leading space. What colour is the sky?",
    "   three spaces and a tail   ",
    "\nA newline first.",
    "Two\n\nparagraphs\n\n",
    "\tTabs\tand \r\n carriage returns",
    "List three fruits, one per line.",
    "Translate to French: good morning",
    "你好,请介绍一下北京。",
    "日本の首都はどこですか?",
    "🙂🙃 what do these mean?",
    "👩‍👩‍👧‍👦 family emoji",
    "naïve café — “quotes” … ellipsis",
    "def add(a, b):\n    return a + b\n\nExplain.",
    '{"name": "Ann", "age": 3}',
    "1 + 1 = ? 12345678901234567890",
    "Ünïcödé ñ ß ø",
    "Привет, как дела?",
    "مرحبا",
    "A" * 80,
]
NEW = 16


async def test_twenty_prompts_in_one_batch_equal_generate(default_model: Path) -> None:
    oracle = Oracle(default_model)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(default_model)
    async with running(default_model) as engine:
        sessions = [engine.open() for _ in PROMPTS]
        for session, text in zip(sessions, PROMPTS, strict=True):
            await session.extend([*turn(text), RoleOpen("assistant")])
        prompts = [ids_of(session) for session in sessions]
        done = await asyncio.gather(*(collect(s, max_tokens=NEW) for s in sessions))
        assert engine.metrics.largest_batch >= len(PROMPTS) // 2
    close_calls = 0
    for text, prompt, (finish, tokens) in zip(PROMPTS, prompts, done, strict=True):
        expected_prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        assert prompt == expected_prompt, text
        found = [t.id for t in tokens]
        out = oracle.loaded.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=NEW,
            do_sample=False,
            eos_token_id=sorted(oracle.loaded.eos_ids),
            pad_token_id=0,
        )[0, len(prompt) :].tolist()
        if out != found:
            close_calls += 1
            oracle.assert_greedy(prompt, found)
        oracle.assert_logprobs(prompt, tokens)
        assert finish.reason == ("end" if found[-1] in oracle.loaded.eos_ids else "length")
    assert close_calls <= 1, f"{close_calls} of {len(PROMPTS)} differ, each within 1e-4 of the likeliest"


async def test_select_json_and_branches(default_model: Path) -> None:
    oracle = Oracle(default_model)
    async with running(default_model) as engine:
        session = engine.open()
        await session.extend([*turn("Is Paris in France? Answer yes or no."), RoleOpen("assistant")])
        context = ids_of(session)
        choices = ["Yes", "No", "Yes, it is the capital"]
        scores = await session.score(choices, "sum")
        for i, choice in enumerate(choices):
            ids = oracle.vocabulary.encode_content(choice, after="text")
            assert [t for t, _ in scores.tokens[i]][-1] == ids[-1]
            own = [p for _, p in scores.tokens[i]]
            full = oracle.logprobs([*context[: len(context)], *ids])[-len(own) :]
            assert own == pytest.approx(full, abs=1e-3)
        branches = await session.fork(4)
        grammar = 'start: "{\\"city\\": \\"" /[A-Z][a-z]{2,12}/ "\\", \\"capital\\": " ("true" | "false") "}"'
        done = await asyncio.gather(
            *(
                collect(b, grammar=grammar, max_tokens=40, noise_key=i, sampling=Sampling(temperature=0.7 if i else 0))
                for i, b in enumerate(branches)
            )
        )
        for finish, _ in done:
            assert set(json.loads(finish.text)) == {"city", "capital"}
            assert finish.usage.forced_tokens > 0


async def test_text_after_a_stop_goes_on_exactly(default_model: Path) -> None:
    oracle = Oracle(default_model)
    async with running(default_model) as engine:
        session = engine.open()
        await session.extend([TextSegment("1, 2, 3, 4, 5, 6,")])
        prompt = ids_of(session)
        finish, _ = await collect(session, max_tokens=30, stop=("9",))
        assert finish.reason == "stop"
        held = ids_of(session)
        assert engine.vocabulary.decode_bytes(held[len(prompt) :]).decode() == finish.text
        await session.extend([TextSegment("nine and")])
        goes_on = ids_of(session)
        _, tokens = await collect(session, max_tokens=8)
        oracle.assert_greedy(goes_on, [t.id for t in tokens])

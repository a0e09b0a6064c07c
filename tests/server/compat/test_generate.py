"""`/generate` beyond what the language's client uses."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import httpx
import pytest

PROMPT = "The quick brown fox jumps over"


def generate(http: httpx.Client, text: Any = PROMPT, **body: Any) -> Any:
    params = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True} | body.pop("sampling_params", {})
    prompt = {} if text is None else {"text": text}
    answer = http.post("/generate", json=prompt | {"sampling_params": params} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    with http.stream("POST", "/generate", json=body | {"stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) for line in lines[:-1]]


def test_batches_and_samples_are_in_order(http: httpx.Client):
    words = ["a dog", "a fox", "a dog"]
    alone = [generate(http, word)["text"] for word in words]
    assert [one["text"] for one in generate(http, words)] == alone
    several = generate(http, words, sampling_params={"n": 2})
    assert [one["text"] for one in several] == [text for text in alone for _ in range(2)]
    assert isinstance(generate(http, words[:1]), list)
    assert len(generate(http, words[0], sampling_params={"n": 3})) == 3
    options = [{"max_new_tokens": count, "temperature": 0, "ignore_eos": True} for count in (1, 2, 3)]
    answer = http.post("/generate", json={"text": words, "sampling_params": options})
    assert [one["meta_info"]["completion_tokens"] for one in answer.json()] == [1, 2, 3]


def test_ids_go_in_and_come_out(http: httpx.Client):
    read = generate(http, return_logprob=True, logprob_start_len=0)
    ids = [entry[1] for entry in read["meta_info"]["input_token_logprobs"]]
    again = generate(http, None, input_ids=ids)
    assert again["text"] == read["text"] and again["output_ids"] == read["output_ids"]
    longer = generate(http, None, input_ids=ids + read["output_ids"][:2], sampling_params={"max_new_tokens": 4})
    assert read["output_ids"][2:] == longer["output_ids"]


def test_seeds(http: httpx.Client):
    def text(seed: int) -> str:
        return generate(http, sampling_params={"temperature": 2.0, "sampling_seed": seed, "max_new_tokens": 12})["text"]

    assert text(1) == text(1) != text(2)


def test_streams_are_cumulative(http: httpx.Client):
    params = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
    whole = generate(http, sampling_params={"max_new_tokens": 8})
    found = events(http, text=PROMPT, sampling_params=params, return_logprob=True)
    texts = [one["text"] for one in found]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert texts[-1] == whole["text"]
    assert [one["meta_info"]["finish_reason"] for one in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 8}
    assert len(found[-1]["meta_info"]["output_token_logprobs"]) == 8
    assert "index" not in found[-1]
    many = events(http, text=[PROMPT, "a dog"], sampling_params={**params, "n": 2})
    last = {one["index"]: one["text"] for one in many}
    assert sorted(last) == [0, 1, 2, 3]
    assert last[0] == last[1] == whole["text"]


def test_the_layouts_of_prompt_log_probabilities(http: httpx.Client):
    def entries(**body: Any) -> list[Any]:
        return generate(http, return_logprob=True, sampling_params={"max_new_tokens": 0}, **body)["meta_info"][
            "input_token_logprobs"
        ]

    whole = entries(logprob_start_len=0)
    assert whole[0][0] is None and all(value < 0 for value, _, _ in whole[1:])
    part = entries(logprob_start_len=2)
    assert part[0] == [None, whole[2][1], None]
    assert [entry[1] for entry in part[1:]] == [entry[1] for entry in whole[3:]]
    assert [entry[0] for entry in part[1:]] == pytest.approx([entry[0] for entry in whole[3:]], abs=1e-4)
    assert entries(logprob_start_len=2, select_layout=True) == part[1:]
    assert entries() == []
    assert entries(logprob_start_len=len(whole) - 1) == [[None, whole[-1][1], None]]
    assert entries(logprob_start_len=len(whole)) == []


def test_named_tokens_have_log_probabilities(http: httpx.Client):
    """As SGLang's scoring does: nothing is generated, and the next token's probabilities are read."""
    found = generate(
        http, return_logprob=True, token_ids_logprob=[40, 41], top_logprobs_num=3, sampling_params={"max_new_tokens": 0}
    )["meta_info"]
    assert [entry[1] for entry in found["output_token_ids_logprobs"][0]] == [40, 41]
    assert found["output_token_logprobs"][0] == found["output_top_logprobs"][0][0]
    assert found["completion_tokens"] == 0
    more = generate(http, return_logprob=True, token_ids_logprob=[40, 41], logprob_start_len=0)["meta_info"]
    both = (more["output_token_ids_logprobs"][0], found["output_token_ids_logprobs"][0])
    assert [entry[0] for entry in both[0]] == pytest.approx([entry[0] for entry in both[1]], abs=1e-4)
    assert more["input_token_ids_logprobs"][0] is None
    assert len(more["output_token_ids_logprobs"]) == 6


def test_stops(http: httpx.Client):
    free = generate(http, sampling_params={"max_new_tokens": 12})
    text = free["text"]
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    cut = text[: text.index(stop)]
    long = {"max_new_tokens": 12}

    def end(**params: Any) -> tuple[str, Any]:
        found = generate(http, sampling_params=long | params)
        return found["text"], found["meta_info"]["finish_reason"].get("matched")

    assert end(stop=stop) == (cut, stop)
    assert end(stop=[stop], no_stop_trim=True) == (cut + stop, stop)
    pattern = "".join(f"[{char}]" if char.isalnum() or char == " " else f"\\{char}" for char in stop)
    assert end(stop_regex=pattern) == (cut + stop, stop), "what a pattern matches stays"
    assert end(stop_regex=["zzzz"], stop=[stop]) == (cut, stop), "and a text beside it does not"
    token = free["output_ids"][3]
    found = generate(http, sampling_params=long | {"stop_token_ids": [token]})
    first = free["output_ids"].index(token)
    assert found["output_ids"] == free["output_ids"][: first + 1]
    assert found["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}


def test_a_grammar(http: httpx.Client):
    ebnf = 'root ::= animal " " [0-9]+\nanimal ::= "cat" | "dog"'
    found = generate(http, sampling_params={"ebnf": ebnf, "max_new_tokens": 12})["text"]
    assert found[:4] in ("cat ", "dog ")
    value = generate(http, sampling_params={"json_schema": "$$ANY$$", "max_new_tokens": 30})["text"]
    assert value.startswith("{")


def test_nothing_to_go_on_from(http: httpx.Client):
    """What a fork before any text sends."""
    found = generate(http, "", sampling_params={"max_new_tokens": 0})
    assert found["text"] == "" and found["meta_info"]["completion_tokens"] == 0


def test_nulls_are_defaults(http: httpx.Client):
    body = dict.fromkeys(
        ["return_logprob", "logprob_start_len", "top_logprobs_num", "lora_path", "session_params", "rid"]
    )
    assert generate(http, **body)["text"] == generate(http)["text"]
    assert http.post("/generate", json={"text": "a", "sampling_params": None, "stream": None}).status_code == 200


async def test_a_request_can_be_aborted(address: str):
    """The text so far comes back, and says that it was aborted."""
    params = {"temperature": 0, "max_new_tokens": 90_000, "ignore_eos": True}
    async with httpx.AsyncClient(base_url=address, timeout=120.0) as client:
        body = {"text": PROMPT, "sampling_params": params, "rid": "mine", "stream": True}
        async with client.stream("POST", "/generate", json=body) as answer:
            lines = answer.aiter_lines()
            assert (await anext(lines)).startswith("data: ")
            assert (await client.post("/abort_request", json={"rid": "mine"})).status_code == 200
            rest = [line async for line in lines if line]
    last = json.loads(rest[-2][6:])
    assert last["meta_info"]["finish_reason"]["type"] in ("abort", "length")
    assert last["meta_info"]["id"] == "mine"


async def test_who_leaves_is_forgotten(address: str):
    """Places and memory are free again when clients leave, in streams and out of them."""
    params = {"temperature": 0, "max_new_tokens": 90_000, "ignore_eos": True}
    async with httpx.AsyncClient(base_url=address, timeout=120.0) as client:
        body = {"text": PROMPT, "sampling_params": params}
        async with client.stream("POST", "/generate", json=body | {"stream": True}) as answer:
            await anext(answer.aiter_lines())
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/generate", json=body, timeout=0.3)
        for _ in range(200):
            if (await client.post("/flush_cache")).status_code == 200:
                return
            await asyncio.sleep(0.05)
    pytest.fail("something is still being generated")

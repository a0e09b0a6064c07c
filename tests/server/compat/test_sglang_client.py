"""The `sglang` package itself, as its users have it, against a server process."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import httpx
import numpy as np
import pytest

sgl: Any = importlib.import_module("sglang")  # its types say None where it gives values
PROMPT = "The quick brown fox jumps over"
CHOICES = [" the dog", " a lazy fox", " the", " nothing at all"]
METHODS = [sgl.token_length_normalized, sgl.greedy_token_selection, sgl.unconditional_likelihood_normalized]


@pytest.fixture(autouse=True)
def backend(address: str) -> Any:
    endpoint = sgl.RuntimeEndpoint(address)
    sgl.set_default_backend(endpoint)
    return endpoint


@sgl.function
def going_on(s: Any, prompt: str = PROMPT, **options: Any):
    s += prompt + sgl.gen("x", **options)


def test_a_text_and_its_stream_are_the_same():
    whole = going_on.run(max_tokens=12, temperature=0, ignore_eos=True)
    pieces = list(going_on.run(max_tokens=12, temperature=0, ignore_eos=True, stream=True).text_iter("x"))
    assert whole["x"] == "".join(pieces)
    assert len(pieces) > 1
    meta = whole.get_meta_info("x")
    assert meta["completion_tokens"] == 12
    assert meta["finish_reason"] == {"type": "length", "length": 12}
    assert meta["prompt_tokens"] > 0
    assert meta["id"] and meta["e2e_latency"] > 0
    assert going_on.run(max_tokens=12, temperature=0).get_meta_info("x")["cached_tokens"] > 0


def test_many_rows():
    @sgl.function
    def row(s: Any, word: str):
        s += word + sgl.gen("x", max_tokens=4, temperature=0)

    words = [f"{word} and" for word in ("dog", "fox", "lazy", "quick", "brown") for _ in range(8)]
    found = row.run_batch([{"word": word} for word in words], progress_bar=False, num_threads=16)
    alone = {word: row.run(word=word)["x"] for word in set(words)}
    assert [state["x"] for state in found] == [alone[word] for word in words]


def test_stops_and_options():
    free = going_on.run(max_tokens=12, temperature=0)["x"]
    stop = free[len(free) // 2 : len(free) // 2 + 2]
    state = going_on.run(max_tokens=12, temperature=0, stop=stop)
    assert state["x"] == free[: free.index(stop)]
    assert state.get_meta_info("x")["finish_reason"] == {"type": "stop", "matched": stop}
    state = going_on.run(
        max_tokens=6, min_tokens=6, temperature=0.7, top_p=0.9, top_k=20, min_p=0.01, frequency_penalty=0.5,
        presence_penalty=0.5, ignore_eos=True, stop_token_ids=[3],
    )  # fmt: skip
    assert state.get_meta_info("x")["completion_tokens"] == 6


@pytest.mark.parametrize(
    "dtype, pattern",
    [(int, r"[-+]?[0-9]+"), (float, r"[-+]?[0-9]*\.?[0-9]+"), (bool, "True|False"), (str, r'"[\w\s]*"')],
)
def test_types(dtype: type, pattern: str):
    @sgl.function
    def typed(s: Any):
        s += "It is " + sgl.gen("x", dtype=dtype, max_tokens=24, temperature=0)

    state = typed.run()
    if state.get_meta_info("x")["finish_reason"]["type"] == "stop":
        assert re.fullmatch(pattern, state["x"])
    else:
        assert re.match(r'[-+0-9."]', state["x"])


def test_patterns_and_schemas():
    ip = r"(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])){3}"
    assert re.fullmatch(ip, _constrained(regex=ip))
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["fox", "dog"]}, "old": {"type": "boolean"}},
        "required": ["name", "old"],
        "additionalProperties": False,
    }
    value = json.loads(_constrained(json_schema=json.dumps(schema)))
    assert value["name"] in ("fox", "dog") and isinstance(value["old"], bool)


def _constrained(**constraint: Any) -> str:
    @sgl.function
    def program(s: Any):
        s += "Here: " + sgl.gen("x", max_tokens=96, **constraint)

    return program.run()["x"]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("prompt", [PROMPT, "a", "Is it ", "naïve 日本"])
def test_select_is_what_the_model_says(method: Any, prompt: str, http: httpx.Client):
    @sgl.function
    def choose(s: Any):
        s += prompt + sgl.select("x", CHOICES, choices_method=method)

    state = choose.run()
    meta = state.get_meta_info("x")
    own = [scored(http, prompt, choice) for choice in CHOICES]
    for got, (ids, logprobs) in zip(meta["input_token_logprobs"], own, strict=True):
        assert [entry[1] for entry in got] == ids
        assert [entry[0] for entry in got] == pytest.approx(logprobs, abs=1e-3)
    scores = [float(np.mean(logprobs)) for _, logprobs in own]
    assert meta["normalized_prompt_logprobs"] == pytest.approx(scores, abs=1e-3)
    if method is sgl.token_length_normalized:
        assert state["x"] == CHOICES[int(np.argmax(scores))]
    if method is sgl.unconditional_likelihood_normalized:
        bare = [[0.0, *read(http, input_ids=ids)[1:]] for ids, _ in own]
        gains = [float(np.mean(np.subtract(logprobs, b))) for (_, logprobs), b in zip(own, bare, strict=True)]
        assert state["x"] == CHOICES[int(np.argmax(gains))]
        assert meta["normalized_unconditional_prompt_logprobs"] == pytest.approx(gains, abs=1e-3)
    assert state.text() == prompt + state["x"]


def entries(http: httpx.Client, **prompt: Any) -> list[Any]:
    body = {**prompt, "sampling_params": {"max_new_tokens": 0}, "return_logprob": True, "logprob_start_len": 0}
    answer = http.post("/generate", json=body)
    assert answer.status_code == 200
    return answer.json()["meta_info"]["input_token_logprobs"]


def read(http: httpx.Client, **prompt: Any) -> list[float]:
    return [entry[0] for entry in entries(http, **prompt)]


def scored(http: httpx.Client, prompt: str, choice: str) -> tuple[list[int], list[float]]:
    """The tokens that are the choice's own, and their log-probabilities, by the other layout."""
    before = [entry[1] for entry in entries(http, text=prompt)]
    whole = entries(http, text=prompt + choice)
    shared = next(i for i, entry in enumerate(whole) if i >= len(before) or entry[1] != before[i])
    return [entry[1] for entry in whole[shared:]], [entry[0] for entry in whole[shared:]]


@pytest.mark.parametrize("mode", ["gather_variable", "concate_and_append"])
def test_forks(mode: str):
    @sgl.function
    def program(s: Any):
        s += "Two words:"
        branches = s.fork(2)
        for i, branch in enumerate(branches):
            branch += f" {i + 1}." + sgl.gen("w", max_tokens=3, temperature=0)
        branches.join(mode)
        s += " End:" + sgl.gen("end", max_tokens=3, temperature=0)

    state = program.run()
    text = state.text()
    assert text.endswith(" End:" + state["end"])
    assert ("1." in text) == (mode == "concate_and_append")
    if mode == "gather_variable":
        assert len(state["w"]) == 2


def test_logprobs_reach_the_program():
    state = going_on.run(
        max_tokens=4, temperature=0, return_logprob=True, logprob_start_len=0, top_logprobs_num=2,
        return_text_in_logprobs=True, ignore_eos=True,
    )  # fmt: skip
    meta = state.get_meta_info("x")
    assert meta["input_token_logprobs"][0][0] is None
    assert "".join(entry[2] for entry in meta["input_token_logprobs"]).endswith(PROMPT)
    broken = r"\\x[0-9a-f]{2}"  # bytes of half a character, which the text does not show
    assert re.sub(broken, "", "".join(entry[2] for entry in meta["output_token_logprobs"])) == state["x"]
    assert [row[0][:2] for row in meta["output_top_logprobs"]] == [e[:2] for e in meta["output_token_logprobs"]]
    assert len(meta["input_top_logprobs"]) == len(meta["input_token_logprobs"])
    # as chain-of-thought decoding asks for the first token alone
    first = going_on.run(max_tokens=0, return_logprob=True, top_logprobs_num=5, return_text_in_logprobs=True)
    rows = first.get_meta_info("x")["output_top_logprobs"]
    assert len(rows) == 1 and len(rows[0]) == 5
    assert rows[0][0][:2] == pytest.approx(meta["output_token_logprobs"][0][:2], abs=1e-3)


def test_messages_need_control_tokens(http: httpx.Client):
    """The client writes the chat template itself. Without `control_tokens` its marks are text."""
    chatml = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    body = {"text": chatml, "sampling_params": {"max_new_tokens": 0}}
    data = http.post("/generate", json=body).json()["meta_info"]["prompt_tokens"]
    control = http.post("/generate", json=body | {"control_tokens": True}).json()["meta_info"]["prompt_tokens"]
    assert control < data


def test_the_rest(backend: Any):
    assert backend.get_model_name()
    assert sgl.get_server_info(backend)["status"] == "ready"
    assert going_on.run(max_tokens=1)["x"] is not None  # `run` itself does not wait
    sgl.flush_cache(backend)
    assert going_on.run(max_tokens=1).get_meta_info("x")["cached_tokens"] == 0


def test_what_is_refused_is_told():
    with pytest.raises(RuntimeError, match=r"sampling_params\.regex"):
        sgl_generate("(")


def sgl_generate(pattern: str) -> None:
    """One request past the interpreter, which keeps errors to itself."""
    from sglang.lang.ir import SglSamplingParams

    class State:
        text_ = "x"
        images_: tuple[Any, ...] = ()

    params = SglSamplingParams(
        regex=pattern, return_logprob=None, logprob_start_len=None, top_logprobs_num=None, return_text_in_logprobs=None
    )
    sgl.global_config.default_backend.generate(State(), params)

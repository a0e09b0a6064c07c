"""Whatever is posted, the answer is an error of the protocol, and never a fault of the server's."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

GENERATE, CHAT, LEGACY = "/generate", "/v1/chat/completions", "/v1/completions"
GOOD: dict[str, dict[str, Any]] = {
    GENERATE: {"text": "a", "sampling_params": {"max_new_tokens": 1}},
    CHAT: {"model": "default", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    LEGACY: {"model": "default", "prompt": "a", "max_tokens": 1},
}
RAW = [
    b"", b"{", b"[]", b"3", b"null", b'"a"', b"{'a': 1}", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}',
    b'{"text": "a", "text": "b"}', b'{"text": "\\ud800"}', b'{"prompt": "\\ud800", "model": "default"}', b"\xff\xfe",
    b'{"a": ' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"a":' * 50_000,
]  # fmt: skip
HUGE = 10**400
WRONG_PARAMS: list[dict[str, Any]] = [
    {"max_new_tokens": -1}, {"max_new_tokens": 1.5}, {"max_new_tokens": "3"}, {"max_new_tokens": True},
    {"max_new_tokens": 10**9}, {"min_new_tokens": 5, "max_new_tokens": 2}, {"n": 0}, {"n": 10**6}, {"n": -1}, {"n": "2"},
    {"temperature": -1}, {"temperature": "hot"}, {"top_p": 0}, {"top_p": 1.1}, {"top_k": 0}, {"top_k": -2},
    {"min_p": 2}, {"frequency_penalty": 3}, {"presence_penalty": -3}, {"repetition_penalty": 0}, {"stop": [""]},
    {"stop": ""}, {"stop": [1]}, {"stop": ["a"] * 100}, {"stop": "a" * 10_000}, {"stop_token_ids": [-1]},
    {"stop_token_ids": [10**9]}, {"stop_token_ids": "a"}, {"stop_regex": ["("]}, {"stop_regex": ["(a{100}){100}"]},
    {"regex": "("}, {"regex": "(?=a)b"}, {"regex": 3}, {"regex": "a", "json_schema": "{}"}, {"json_schema": "{"},
    {"json_schema": "[]"}, {"json_schema": '{"type": "thing"}'}, {"json_schema": {"type": "object"}},
    {"json_schema": '{"$ref": "http://example.com/x"}'}, {"ebnf": "nothing"}, {"ebnf": ""},
    {"structural_tag": "x"}, {"custom_params": {"a": 1}}, {"logit_bias": {"a": 1}}, {"logit_bias": {"1": 1000}},
    {"logit_bias": {"99999999": 1}}, {"logit_bias": [1]}, {"unknown": 1}, {"ignore_eos": "yes"}, {"beam_width": 4},
    {"sampling_seed": "x"}, {"skip_special_tokens": 1},
]  # fmt: skip
WRONG_GENERATE: list[dict[str, Any]] = [
    {"text": None}, {"text": 3}, {"text": []}, {"text": [1]}, {"text": {"a": 1}}, {"text": ["a", None]},
    {"text": None, "input_ids": []}, {"text": None, "input_ids": [[]]}, {"text": None, "input_ids": [1, [2]]},
    {"text": None, "input_ids": [-1]}, {"text": None, "input_ids": [10**9]}, {"text": None, "input_ids": "abc"},
    {"text": None, "input_ids": [1.5]}, {"text": None, "input_ids": [True]}, {"input_ids": [1]},
    {"text": ["a"] * 10_000}, {"text": "word " * 200_000}, {"sampling_params": []}, {"sampling_params": "x"},
    {"sampling_params": [{}, {}]}, {"sampling_params": [1]}, {"return_logprob": "yes"}, {"return_logprob": 1},
    {"logprob_start_len": -2}, {"logprob_start_len": 50, "return_logprob": True}, {"logprob_start_len": "x"},
    {"top_logprobs_num": -1}, {"top_logprobs_num": 10**6}, {"token_ids_logprob": [-1]}, {"token_ids_logprob": "x"},
    {"token_ids_logprob": [[1], [2]]}, {"rid": 3}, {"rid": ""}, {"rid": ["a", "b"]}, {"stream": "yes"},
    {"image_data": "abc"}, {"lora_path": "x"}, {"input_embeds": [[0.5]]}, {"unknown": 1}, {"session_params": {"id": "a"}},
    {"text": ["a", "b"], "sampling_params": [{"n": 1}, {"n": 2}]}, {"control_tokens": "yes"},
]  # fmt: skip
WRONG_SHARED: list[dict[str, Any]] = [
    {"model": None}, {"model": 3}, {"model": "nobody"}, {"model": "../etc"}, {"model": "a" * 10_000}, {"n": 0},
    {"n": 10**9}, {"n": -1}, {"max_tokens": -1}, {"max_tokens": HUGE}, {"max_tokens": 10**8}, {"temperature": 2.5},
    {"temperature": None, "top_p": -1}, {"stop": ["x"] * 50}, {"stop": ""}, {"stop": [None]}, {"seed": "x"},
    {"seed": 2**70}, {"logit_bias": {"x": 1}}, {"logit_bias": {"1": 101}}, {"logit_bias": {"-1": 1}}, {"stream": 1},
    {"stream_options": {"include_usage": True}}, {"stream": True, "stream_options": {"what": 1}},
    {"frequency_penalty": 9}, {"presence_penalty": "x"}, {"nonsense": True}, {"service_tier": "flex"},
    {"min_tokens": 9}, {"response_format": "json"}, {"response_format": {"type": "yaml"}}, {"guided_choice": []},
    {"response_format": {"type": "json_schema"}}, {"guided_json": "x"}, {"guided_regex": ["a"]},
]  # fmt: skip
WRONG_CHAT: list[dict[str, Any]] = [
    {"messages": None}, {"messages": []}, {"messages": "hi"}, {"messages": ["hi"]}, {"messages": [{}]},
    {"messages": [{"role": "user"}]}, {"messages": [{"role": "wizard", "content": "a"}]},
    {"messages": [{"role": "user", "content": 3}]}, {"messages": [{"role": "user", "content": []}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, {"messages": [{"role": "tool", "content": "a"}]},
    {"messages": [{"role": "user", "content": "a", "name": "b"}]}, {"messages": [{"role": "user", "content": "a"}] * 5000},
    {"messages": [{"role": "user", "content": "word " * 200_000}]}, {"logprobs": 3}, {"top_logprobs": 5},
    {"logprobs": True, "top_logprobs": 21}, {"tools": [{}]}, {"max_tokens": 0}, {"max_completion_tokens": 1},
]  # fmt: skip
WRONG_LEGACY: list[dict[str, Any]] = [
    {"prompt": None}, {"prompt": []}, {"prompt": [[]]}, {"prompt": 3}, {"prompt": ["a", 1]}, {"prompt": [[1], "a"]},
    {"prompt": [-1]}, {"prompt": [10**9]}, {"prompt": "word " * 200_000}, {"prompt": ["a"] * 10_000}, {"suffix": "x"},
    {"best_of": 3}, {"logprobs": -1}, {"logprobs": 21}, {"logprobs": True}, {"echo": "yes"}, {"messages": []},
]  # fmt: skip
CASES = [
    *((GENERATE, {"sampling_params": wrong}) for wrong in WRONG_PARAMS),
    *((GENERATE, wrong) for wrong in WRONG_GENERATE),
    *((path, wrong) for wrong in WRONG_SHARED for path in (CHAT, LEGACY)),
    *((CHAT, wrong) for wrong in WRONG_CHAT),
    *((LEGACY, wrong) for wrong in WRONG_LEGACY),
]


def assert_refused(path: str, answer: httpx.Response) -> None:
    assert 400 <= answer.status_code < 500, answer.text[:300]
    assert len(answer.content) < 4000, "the answer repeats what came"
    error = answer.json()["error"]
    assert error["message"]
    if path != GENERATE:
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] in ("invalid_request_error", "not_found_error")


@pytest.mark.parametrize("path", [GENERATE, CHAT, LEGACY])
def test_bodies_that_are_no_requests(http: httpx.Client, path: str):
    for body in RAW:
        answer = http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert_refused(path, answer)
    for kind in ("text/plain", "application/yaml", "application/json; charset=latin-1"):
        assert_refused(path, http.post(path, content=b"{}", headers={"Content-Type": kind}))
    assert_refused(path, http.post(path, content=b" " * 9_000_000, headers={"Content-Type": "application/json"}))


def test_values_that_are_wrong(http: httpx.Client):
    answers = [(path, wrong, http.post(path, json=GOOD[path] | wrong)) for path, wrong in CASES]
    fine = [
        (path, str(wrong)[:200], got.text[:200]) for path, wrong, got in answers if not 400 <= got.status_code < 500
    ]
    assert fine == []
    for path, _, answer in answers:
        assert_refused(path, answer)
    for path, good in GOOD.items():
        assert http.post(path, json=good).status_code == 200, "the server goes on"


def test_an_error_is_no_stream(http: httpx.Client):
    for path, wrong in (
        (GENERATE, {"logprob_start_len": 50, "return_logprob": True}),
        (LEGACY, {"prompt": "a " * 5000}),
    ):
        answer = http.post(path, json=GOOD[path] | wrong | {"stream": True})
        assert_refused(path, answer)


def test_other_requests(http: httpx.Client):
    assert_refused(GENERATE, http.post("/abort_request", json={}))
    assert_refused(GENERATE, http.post("/abort_request", json={"rid": 3}))
    assert http.post("/abort_request", json={"rid": "nobody"}).status_code == 200
    assert_refused(
        GENERATE, http.post("/concate_and_append_request", content=b"{", headers={"Content-Type": "application/json"})
    )
    assert http.post("/concate_and_append_request", json={"src_rids": ["a"], "dst_rid": "b"}).status_code == 200
    for path in ("/get_model_info", "/model_info", "/get_server_info", "/server_info", "/get_server_args"):
        assert http.get(path).json()["model_path"]
    for path in ("/health", "/health_generate"):
        assert http.get(path).status_code == 200
    assert http.get("/v1/models/nobody").status_code == 404
    assert http.get("/generate").status_code == 405


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PARAMS = st.sampled_from(sorted({key for wrong in WRONG_PARAMS for key in wrong} | {"top_k", "max_new_tokens"}))
KEYS = {
    GENERATE: st.sampled_from(sorted({key for wrong in WRONG_GENERATE for key in wrong})),
    CHAT: st.sampled_from(sorted({key for wrong in [*WRONG_SHARED, *WRONG_CHAT] for key in wrong})),
    LEGACY: st.sampled_from(sorted({key for wrong in [*WRONG_SHARED, *WRONG_LEGACY] for key in wrong})),
}


@pytest.mark.parametrize("path", [GENERATE, CHAT, LEGACY])
def test_anything_at_all(http: httpx.Client, path: str):
    @settings(max_examples=60)
    @given(st.dictionaries(KEYS[path], VALUES, max_size=3), st.dictionaries(PARAMS, VALUES, max_size=2))
    def post(changes: dict[str, Any], params: dict[str, Any]) -> None:
        body = GOOD[path] | changes
        if path == GENERATE and "sampling_params" not in changes:
            body["sampling_params"] = {"max_new_tokens": 1, **params}
        if path != GENERATE and body.get("max_tokens") != 1:
            body["max_tokens"] = body.get("max_tokens") if not isinstance(body.get("max_tokens"), int) else 1
        answer = http.post(path, content=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        assert answer.status_code < 500, (body, answer.text)
        if answer.status_code >= 400:
            assert_refused(path, answer)

    post()

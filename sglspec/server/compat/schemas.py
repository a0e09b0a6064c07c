"""JSON Schemas of what clients of other protocols send, for the server's description.

The readers in `*_requests` decide, and a test keeps the two together. A key with null is the same as no key.
"""

from __future__ import annotations

from typing import Any

from sglspec.server.compat import openai_requests as openai
from sglspec.server.compat import sglang_requests as sglang

Schema = dict[str, Any]

_FLAG: Schema = {"type": ["boolean", "null"]}
_TEXT: Schema = {"type": ["string", "null"]}
_OBJECT: Schema = {"type": ["object", "null"]}
_ID: Schema = {"type": "integer", "minimum": 0}
_SEED_LOW, _SEED_HIGH = -(2**63), 2**64 - 1


def _whole(low: int, high: int, description: str = "") -> Schema:
    schema: Schema = {"type": ["integer", "null"], "minimum": low, "maximum": high}
    return schema | ({"description": description} if description else {})


def _number(low: float, high: float, *, above: bool = False) -> Schema:
    return {"type": ["number", "null"], "exclusiveMinimum" if above else "minimum": low, "maximum": high}


def _texts(most: int, longest: int) -> Schema:
    """A text, or a list of them."""
    one: Schema = {"type": "string", "minLength": 1, "maxLength": longest}
    return {"anyOf": [one, {"type": "array", "items": one, "maxItems": most}, {"type": "null"}]}


def _list(item: Schema, most: int, least: int = 0) -> Schema:
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}


def _any_of(*schemas: Schema) -> Schema:
    return {"anyOf": [*schemas, {"type": "null"}]}


def _each(schema: Schema) -> Schema:
    """One value for all prompts, or a list of one for each."""
    return {"anyOf": [schema, {"type": "array", "items": schema}]}


def _object(properties: Schema, *required: str) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": list(required)} if required else {})


_SAMPLING: Schema = {
    "top_p": _number(0, 1, above=True),
    "min_p": _number(0, 1),
    "frequency_penalty": _number(-2, 2),
    "presence_penalty": _number(-2, 2),
    "repetition_penalty": _number(0, 2, above=True),
    "logit_bias": {
        "type": ["object", "null"],
        "description": "Numbers by token id",
        "patternProperties": {"^[0-9]{1,9}$": {"type": "number", "minimum": -100, "maximum": 100}},
        "additionalProperties": False,
        "maxProperties": 1024,
    },
    "stop_token_ids": _any_of(_list(_ID, 256)),
    "ignore_eos": _FLAG,
    "n": _whole(1, 2**31),
}

_SHARED: Schema = _SAMPLING | {
    "model": {"type": "string", "description": "As `GET /v1/models` lists it"},
    "temperature": _number(0, 2),
    "top_k": _whole(-1, 2**31),
    "min_tokens": _whole(0, openai.MAX_TOKENS),
    "stop": _texts(openai.MAX_STOPS, 1024),
    "seed": _whole(_SEED_LOW, _SEED_HIGH),
    "regex": _TEXT,
    "guided_regex": _TEXT,
    "guided_json": {"description": "A JSON Schema, or its text"},
    "guided_choice": _texts(256, 1024),
    "response_format": _any_of(
        _object({"type": {"enum": ["text", "json_object"]}}, "type"),
        _object(
            {
                "type": {"const": "json_schema"},
                "json_schema": _object(
                    {"name": _TEXT, "description": _TEXT, "strict": _FLAG, "schema": {"type": ["object", "null"]}}
                ),
            },
            "type",
            "json_schema",
        ),
    ),
    "stream": _FLAG,
    "stream_options": _any_of(_object({"include_usage": _FLAG, "include_obfuscation": _FLAG})),
    **{name: {"description": "Without effect"} for name in openai.TIES},
}

CHAT: Schema = _object(
    _SHARED
    | {
        "messages": _list(
            _object(
                {
                    "role": {"enum": list(openai.ROLES)},
                    "content": {
                        "anyOf": [
                            {"type": "string"},
                            _list(
                                _object({"type": {"const": "text"}, "text": {"type": "string"}}, "type", "text"),
                                openai.MAX_MESSAGES,
                                1,
                            ),
                        ]
                    },
                },
                "role",
                "content",
            ),
            openai.MAX_MESSAGES,
            1,
        ),
        "max_tokens": _whole(1, openai.MAX_TOKENS),
        "max_completion_tokens": _whole(1, openai.MAX_TOKENS),
        "logprobs": _FLAG,
        "top_logprobs": _whole(0, openai.MAX_TOP, "With `logprobs`"),
        "parallel_tool_calls": {"description": "Without effect"},
        "inputs": _OBJECT | {"description": "Where `model` is a stored program: its other inputs"},
    },
    "model",
    "messages",
)

COMPLETION: Schema = _object(
    _SHARED
    | {
        "prompt": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                _list(_ID, openai.MAX_TOKENS, 1),
                {"type": "array", "items": _list(_ID, openai.MAX_TOKENS, 1), "minItems": 1},
            ]
        },
        "max_tokens": _whole(0, openai.MAX_TOKENS),
        "logprobs": _whole(0, openai.MAX_TOP),
        "echo": _FLAG,
        "control_tokens": _FLAG,
    },
    "model",
    "prompt",
)

_PARAMS: Schema = _object(
    _SAMPLING
    | {
        "max_new_tokens": _whole(0, sglang.MAX_TOKENS),
        "min_new_tokens": _whole(0, sglang.MAX_TOKENS),
        "temperature": _number(0, 100),
        "top_k": _whole(-1, 2**31, "-1 for none; not 0") | {"not": {"const": 0}},
        "stop": _texts(sglang.MAX_STOPS, 1024),
        "stop_regex": _texts(sglang.MAX_STOPS, 256),
        "no_stop_trim": _FLAG,
        "skip_special_tokens": _FLAG,
        "spaces_between_special_tokens": _FLAG,
        "stream_interval": _whole(1, sglang.MAX_TOKENS),
        "sampling_seed": _whole(_SEED_LOW, _SEED_HIGH),
        "regex": _TEXT,
        "json_schema": _TEXT,
        "ebnf": _TEXT,
    }
)

GENERATE: Schema = _object(
    {
        "text": _any_of({"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}),
        "input_ids": _any_of(
            _list(_ID, sglang.MAX_IDS, 1), {"type": "array", "items": _list(_ID, sglang.MAX_IDS, 1), "minItems": 1}
        ),
        "sampling_params": _each(_any_of(_PARAMS)),
        "return_logprob": _each(_FLAG),
        "logprob_start_len": _each(_whole(-1, sglang.MAX_IDS)),
        "top_logprobs_num": _each(_whole(0, sglang.MAX_TOP)),
        "token_ids_logprob": _any_of(
            _list(_ID, sglang.MAX_TOP * 4), {"type": "array", "items": _any_of(_list(_ID, sglang.MAX_TOP * 4))}
        ),
        "return_text_in_logprobs": _FLAG,
        "select_layout": _FLAG,
        "stream": _FLAG,
        "control_tokens": _FLAG,
        "rid": _any_of(_each({"type": "string", "minLength": 1, "maxLength": 256})),
        **{name: {"description": "Without effect"} for name in sglang.TIES},
    }
) | {
    "oneOf": [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}, "not": {"required": [other]}}
        for name, other in (("text", "input_ids"), ("input_ids", "text"))
    ]
}

ABORT: Schema = _object(
    {
        "rid": _TEXT,
        "abort_all": _FLAG,
        "finished_reason": {"description": "Without effect"},
        "abort_message": {"description": "Without effect"},
    }
)

__all__ = ["ABORT", "CHAT", "COMPLETION", "GENERATE", "Schema"]

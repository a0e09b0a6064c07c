"""What OpenAI's clients send: the parts that both addresses share, and each one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from sglspec.backends.base import Backend, GenRequest, Role, Sampling, TokenBackend
from sglspec.runtime.limits import Bounds
from sglspec.server.compat.fields import Fields, Refused
from sglspec.server.compat.grammars import Grammars, choice_pattern, write_schema
from sglspec.server.compat.sglang_requests import check_bounds
from sglspec.server.compat.work import Order, Prompt, size_of

MAX_TOP = 20
MAX_STOPS = 16
MAX_MESSAGES = 1024
MAX_TOKENS = 1_000_000
LEGACY_TOKENS = 16
_UNLIMITED = 4096
"""Tokens of an answer whose request names no number, where the model's context is not known."""
ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
TIES = ("user", "safety_identifier", "metadata", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options")
"""Keys that are for the operator of a server and change no answer."""
_REFUSED_CHAT = (
    "tools", "tool_choice", "functions", "function_call", "audio", "prediction", "reasoning_effort", "verbosity",
    "web_search_options", "moderation", "store", "guided_grammar", "structured_outputs",
)  # fmt: skip
_REFUSED_LEGACY = ("suffix", "guided_grammar", "structured_outputs")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the answer tells. logprobs: of how many tokens at each place, None for none at all; echo: whether the prompt
    stands before the text; stream, usage: whether as events, with token counts at the end."""

    logprobs: int | None = None
    echo: bool = False
    stream: bool = False
    usage: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    orders: tuple[Order, ...]
    wanted: Wanted
    seed: int | None


async def read_chat(fields: Fields, backend: Backend, grammars: Grammars, bounds: Bounds) -> Asked:
    """A request for `/v1/chat/completions` whose `model` is read. Raises Refused."""
    _pass_over(fields)
    fields.refuse(("tool_choice",), lambda value: value in ("none", "auto"))
    fields.refuse(("function_call",), lambda value: value in ("none", "auto"))
    fields.refuse(("reasoning_effort",), lambda value: value == "none")
    fields.refuse(("modalities",), lambda value: value == ["text"])
    fields.ignore("parallel_tool_calls")  # where there are no tools
    fields.refuse(name for name in _REFUSED_CHAT if name not in ("tool_choice", "function_call", "reasoning_effort"))
    messages = read_messages(fields)
    wants = fields.flag("logprobs")
    top = fields.integer("top_logprobs", 0, 0, MAX_TOP)
    if top and not wants:
        fields.wrong("top_logprobs", "absent where `logprobs` is not true")
    if wants and not isinstance(backend, TokenBackend):
        raise Refused("This model tells no log-probabilities.", "logprobs", code="unsupported_parameter")
    if fields.has("max_tokens") and fields.has("max_completion_tokens"):
        raise Refused("Give one of `max_tokens` and `max_completion_tokens`.", "max_tokens")
    asked = fields.integer("max_tokens", None, 1, MAX_TOKENS)
    asked = fields.integer("max_completion_tokens", asked, 1, MAX_TOKENS)
    count = fields.integer("n", 1, 1, 2**31)
    limit = asked if asked is not None else _room(backend, bounds, count)
    request = await _request(fields, backend, grammars, limit, "chat")
    request = replace(request, alternatives=top)
    wanted = _wanted(fields, top if wants else None)
    fields.done()
    order = Order(Prompt(messages=messages, param="messages"), request, count)
    check_bounds([order], bounds, "n")
    return Asked((order,), wanted, _seed(fields))


async def read_completion(fields: Fields, backend: Backend, grammars: Grammars, bounds: Bounds, control: bool) -> Asked:
    """A request for `/v1/completions` whose `model` is read. control: as for `/generate`. Raises Refused."""
    _pass_over(fields)
    fields.refuse(_REFUSED_LEGACY)
    prompts = _prompts(fields, backend, bounds, fields.flag("control_tokens", control))
    count = fields.integer("n", 1, 1, 2**31)
    fields.refuse(("best_of",), lambda value: value == count)
    top = fields.integer("logprobs", None, 0, MAX_TOP)
    echo = fields.flag("echo")
    if top is not None and not isinstance(backend, TokenBackend):
        raise Refused("This model tells no log-probabilities.", "logprobs", code="unsupported_parameter")
    limit = fields.integer("max_tokens", LEGACY_TOKENS, 0, MAX_TOKENS)
    request = await _request(fields, backend, grammars, limit, "completion")
    request = replace(request, alternatives=top or 0)
    read = 0 if echo and top is not None else None
    wanted = replace(_wanted(fields, top), echo=echo)
    fields.done()
    orders = tuple(Order(prompt, request, count, read) for prompt in prompts)
    check_bounds(orders, bounds, "n")
    return Asked(orders, wanted, _seed(fields))


def read_messages(fields: Fields) -> tuple[tuple[Role, str], ...]:
    """`messages`, as text."""
    value = fields.get("messages")
    if value is None:
        raise Refused("`messages` is missing.", "messages")
    found: list[tuple[Role, str]] = []
    for place, item in enumerate(fields.items("messages", value, MAX_MESSAGES)):
        if not isinstance(item, dict):
            fields.wrong("messages", "a list of objects with `role` and `content`")
        message = Fields(cast("dict[str, Any]", item), f"messages[{place}]")
        role = message.text("role")
        if role not in ROLES:
            message.wrong("role", "one of system, developer, user, assistant")
        message.refuse(("name", "tool_calls", "tool_call_id", "function_call", "audio", "refusal", "reasoning_content"))
        found.append((ROLES[role], _content(message)))
        message.done()
    return tuple(found)


def _content(message: Fields) -> str:
    value = message.get("content")
    if isinstance(value, str):
        return value
    if value is None:
        message.wrong("content", "a text, or a list of text parts")
    found: list[str] = []
    for place, item in enumerate(message.items("content", value, MAX_MESSAGES)):
        if not isinstance(item, dict):
            message.wrong("content", "a text, or a list of text parts")
        part = Fields(cast("dict[str, Any]", item), f"{message.path('content')}[{place}]")
        if (kind := part.text("type")) != "text":
            name = part.path("type")
            raise Refused(
                f"`{name}` must be `text`: {kind} parts are not supported here.", name, code="unsupported_parameter"
            )
        text = part.text("text")
        if text is None:
            part.wrong("text", "a text")
        part.done()
        found.append(text)
    return "".join(found)


def _prompts(fields: Fields, backend: Backend, bounds: Bounds, control: bool) -> list[Prompt]:
    """A text, a list of texts, a list of ids, or a list of such lists."""
    value = fields.get("prompt")
    if value is None:
        raise Refused("`prompt` is missing.", "prompt")
    if isinstance(value, str):
        return [Prompt(text=value, control=control, param="prompt")]
    wanted = "a text, a list of texts, a list of token ids, or a list of such lists"
    if not isinstance(value, list) or not value:
        fields.wrong("prompt", wanted)
    items = cast("list[Any]", value)
    if all(isinstance(item, str) for item in items):
        texts = fields.items("prompt", items, bounds.branches)
        return [Prompt(text=item, control=control, param="prompt") for item in texts]
    size = size_of(backend)
    if all(isinstance(item, list) for item in items):
        rows = [
            fields.as_ids("prompt", row, MAX_TOKENS, size) for row in fields.items("prompt", items, bounds.branches)
        ]
    else:
        rows = [fields.as_ids("prompt", items, MAX_TOKENS, size)]
    if not all(rows):
        fields.wrong("prompt", wanted)
    return [Prompt(ids=row, param="prompt") for row in rows]


async def _request(fields: Fields, backend: Backend, grammars: Grammars, limit: int, label: str) -> GenRequest:
    size = size_of(backend)
    least = fields.integer("min_tokens", 0, 0, MAX_TOKENS)
    if least > limit:
        fields.wrong("min_tokens", f"at most the number of tokens of the answer, which is {limit}")
    top_p = fields.number("top_p", 1.0, 0.0, 1.0, above=True)
    top_k = fields.integer("top_k", -1, -1, 2**31)
    min_p = fields.number("min_p", 0.0, 0.0, 1.0)
    if fields.get("stop") == "":
        fields.wrong("stop", "no empty text")
    return GenRequest(
        max_tokens=limit,
        min_tokens=least,
        stop=fields.texts("stop", MAX_STOPS, 1024),
        stop_token_ids=fields.ids("stop_token_ids", 256, size),
        ignore_eos=fields.flag("ignore_eos"),
        grammar=await _grammar(fields, backend, grammars),
        sampling=Sampling(
            temperature=fields.number("temperature", 1.0, 0.0, 2.0),
            top_p=None if top_p == 1.0 else top_p,
            top_k=None if top_k < 1 else top_k,
            min_p=min_p or None,
            frequency_penalty=fields.number("frequency_penalty", 0.0, -2.0, 2.0),
            presence_penalty=fields.number("presence_penalty", 0.0, -2.0, 2.0),
            repetition_penalty=fields.number("repetition_penalty", 1.0, 0.0, 2.0, above=True),
            logit_bias=fields.biases("logit_bias", size),
        ),
        label=label,
    )


async def _grammar(fields: Fields, backend: Backend, grammars: Grammars) -> str | None:
    """The constraint, of which there is one at most."""
    found: list[tuple[str, Any]] = []
    schema = _response_format(fields)
    if schema is not None:
        found.append(("response_format", ("schema", schema)))
    for name in ("regex", "guided_regex"):
        if (pattern := fields.text(name)) is not None:
            found.append((name, ("regex", pattern)))
    if (guided := fields.get("guided_json")) is not None:
        found.append(("guided_json", ("schema", write_schema(guided, "guided_json"))))
    if fields.has("guided_choice"):
        choices = fields.texts("guided_choice", 256, 1024)
        if not choices:
            fields.wrong("guided_choice", "a list of texts, not empty")
        found.append(("guided_choice", ("regex", choice_pattern(choices))))
    if not found:
        return None
    if len(found) > 1:
        raise Refused(f"`{found[0][0]}` and `{found[1][0]}` cannot be used together.", found[1][0])
    param, (kind, source) = found[0]
    if not backend.capabilities.grammar:
        raise Refused(f"`{param}` is not supported by this model.", param, code="unsupported_parameter")
    return await grammars.grammar(kind, source, param)


def _response_format(fields: Fields) -> str | None:
    """The JSON Schema of an answer, as a text; None for free text."""
    value = fields.object("response_format")
    if value is None:
        return None
    given = Fields(value, "response_format")
    kind = given.text("type")
    if kind not in ("text", "json_object", "json_schema"):
        given.wrong("type", "text, json_object or json_schema")
    if kind != "json_schema":
        given.done()
        return None if kind == "text" else '{"type": "object"}'
    wrapped = given.object("json_schema")
    if wrapped is None:
        given.wrong("json_schema", "an object with `name` and `schema`")
    given.done()
    inner = Fields(wrapped, "response_format.json_schema")
    inner.text("name")
    inner.text("description")
    inner.flag("strict")  # a schema is kept to the letter in any case
    schema = inner.get("schema")
    inner.done()
    return write_schema({} if schema is None else schema, "response_format.json_schema.schema")


def _wanted(fields: Fields, logprobs: int | None) -> Wanted:
    stream = fields.flag("stream")
    options = fields.object("stream_options")
    usage = False
    if options is not None:
        if not stream:
            fields.wrong("stream_options", "absent where `stream` is not true")
        given = Fields(options, "stream_options")
        usage = given.flag("include_usage")
        given.flag("include_obfuscation")
        given.done()
    return Wanted(logprobs, stream=stream, usage=usage)


def _pass_over(fields: Fields) -> None:
    fields.ignore("seed", *TIES)
    fields.refuse(("service_tier",), lambda value: value in ("auto", "default"))


def _seed(fields: Fields) -> int | None:
    return fields.integer("seed", None, -(2**63), 2**64 - 1)


def _room(backend: Backend, bounds: Bounds, count: int) -> int:
    """Tokens of an answer whose request names no number: the whole context."""
    most = backend.max_context() if isinstance(backend, TokenBackend) else _UNLIMITED
    return max(1, min(most, bounds.tokens // min(count, bounds.tokens)))


def seen(orders: Sequence[Order]) -> int:
    """How many texts are asked for."""
    return sum(order.count for order in orders)


__all__ = [
    "MAX_MESSAGES",
    "MAX_STOPS",
    "MAX_TOKENS",
    "MAX_TOP",
    "ROLES",
    "TIES",
    "Asked",
    "Wanted",
    "read_chat",
    "read_completion",
    "read_messages",
    "seen",
]

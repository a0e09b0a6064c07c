"""What SGLang's clients send to `/generate`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from sglspec.backends.base import Backend, GenRequest, Sampling
from sglspec.runtime.limits import Bounds
from sglspec.server.compat.fields import Fields, Refused
from sglspec.server.compat.grammars import Grammars, read_schema, stop_patterns
from sglspec.server.compat.work import Order, Prompt, size_of

MAX_TOP = 64
MAX_TOKENS = 1_000_000
MAX_STOPS = 32
DEFAULT_TOKENS = 128
_GREEDY = 1e-6
MAX_IDS = 1_000_000
_ANY = "$$ANY$$"
"""What SGLang takes for "any JSON object"."""
TIES = ("log_metrics", "label", "conversation_id", "priority")
"""Keys that are for the operator of a server, or for others than this one."""
_REFUSED = (
    "input_embeds", "image_data", "video_data", "audio_data", "modalities", "lora_path", "lora_id", "session_params",
    "session_id", "custom_logit_processor", "return_hidden_states", "bootstrap_host", "bootstrap_port",
    "bootstrap_room", "bootstrap_pair_key", "data_parallel_rank", "background", "return_bytes", "extra_key",
    "cache_salt",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the answer to one prompt tells. start: of log-probabilities in the prompt, None for none; lead: whether the
    token at `start` is told as well, without one; texts: whether tokens come with theirs; special: whether the text
    shows special tokens."""

    logprobs: bool = False
    start: int | None = None
    lead: bool = True
    top: int = 0
    watched: tuple[int, ...] = ()
    texts: bool = False
    special: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A whole request. wanted: one for each order; batch: whether the answer is a list; seed: None for a random one."""

    orders: tuple[Order, ...]
    wanted: tuple[Wanted, ...]
    batch: bool
    stream: bool
    seed: int | None


async def read_generate(
    data: dict[str, Any], backend: Backend, grammars: Grammars, bounds: Bounds, control: bool
) -> Asked:
    """Raises Refused. control: whether texts may spell control tokens where the request does not say."""
    fields = Fields(data)
    fields.ignore(*TIES)
    fields.refuse(_REFUSED)
    prompts, batch = _prompts(fields, backend, bounds, fields.flag("control_tokens", control))
    count = len(prompts)
    params = _each(fields, "sampling_params", count, {})
    logprobs = _each(fields, "return_logprob", count, False)
    starts = _each(fields, "logprob_start_len", count, None)
    tops = _each(fields, "top_logprobs_num", count, 0)
    watched = _watched(fields, count, size_of(backend))
    texts = fields.flag("return_text_in_logprobs")
    select = fields.get("select_layout")
    if select is not None and not isinstance(select, bool):
        fields.wrong("select_layout", "true or false")
    names = _names(fields, count)
    stream = fields.flag("stream")
    fields.done()
    orders: list[Order] = []
    wanted: list[Wanted] = []
    seed: int | None = None
    samples: set[int] = set()
    for i, prompt in enumerate(prompts):
        if not isinstance(params[i], dict):
            fields.wrong("sampling_params", "an object, or a list of one for each prompt")
        own = cast("dict[str, Any]", params[i])
        if not isinstance(logprobs[i], bool):
            fields.wrong("return_logprob", "true or false, or a list of one for each prompt")
        top = fields.as_integer("top_logprobs_num", tops[i], 0, MAX_TOP)
        layout = (
            _is_select(batch, own, logprobs[i], starts[i], texts, prompt.ids is not None) if select is None else select
        )
        start = _start(fields, starts[i], logprobs[i], layout and prompt.ids is not None)
        read = Fields(own, "sampling_params")
        request, number, trim, own_seed = await _request(read, backend, grammars)
        special = not read.flag("skip_special_tokens", True)
        read.done()
        if i == 0:
            seed = own_seed
        samples.add(number)
        if logprobs[i]:
            most = max(top, int(request.max_tokens == 0))  # what would follow is told also where nothing does
            request = replace(request, alternatives=most, watched=watched[i])
        orders.append(Order(prompt, request, number, start if logprobs[i] else None, trim, names[i]))
        lead = not (layout and prompt.ids is None)
        wanted.append(Wanted(logprobs[i], start, lead, top, watched[i], texts, special))
    if len(samples) > 1:
        raise Refused("`n` must be the same for all prompts.", "sampling_params.n")
    check_bounds(orders, bounds, "sampling_params.n")
    return Asked(tuple(orders), tuple(wanted), batch or samples != {1}, stream, seed)


def check_bounds(orders: Sequence[Order], bounds: Bounds, param: str) -> None:
    """Refuse more texts than the host allows."""
    total = sum(order.count for order in orders)
    if total > bounds.branches:
        raise Refused(f"This asks for {total} texts, and this server makes {bounds.branches} at most.", param)
    tokens = sum(order.count * order.request.max_tokens for order in orders)
    if tokens > bounds.tokens:
        message = f"This asks for up to {tokens} tokens, and this server generates {bounds.tokens} at most."
        raise Refused(message, param)


def _prompts(fields: Fields, backend: Backend, bounds: Bounds, control: bool) -> tuple[list[Prompt], bool]:
    """The prompts, and whether they came in a list."""
    text, ids = fields.get("text"), fields.get("input_ids")
    if (text is None) == (ids is None):
        raise Refused("Give one of `text` and `input_ids`.", "text")
    if text is not None:
        batch = isinstance(text, list)
        found = fields.items("text", text, bounds.branches) if batch else [text]
        if not all(isinstance(item, str) for item in found):
            fields.wrong("text", "a text or a list of texts")
        return [Prompt(text=item, control=control, param="text") for item in found], batch
    size = size_of(backend)
    batch = isinstance(ids, list) and any(isinstance(item, list) for item in cast("list[Any]", ids))
    rows: list[Any] = fields.items("input_ids", ids, bounds.branches) if batch else [ids]
    found = [fields.as_ids("input_ids", row, MAX_IDS, size) for row in rows]
    if not all(found):
        raise Refused("`input_ids` must not be empty.", "input_ids")
    return [Prompt(ids=row, param="input_ids") for row in found], batch


def _each(fields: Fields, name: str, count: int, default: Any) -> list[Any]:
    """A value for each prompt: the same one, or one of a list."""
    value = fields.get(name)
    if not isinstance(value, list):
        return [default if value is None else value] * count
    items = cast("list[Any]", value)
    if len(items) != count:
        fields.wrong(name, f"one value, or a list of {count}: one for each prompt")
    return [default if item is None else item for item in items]


def _watched(fields: Fields, count: int, size: int | None) -> list[tuple[int, ...]]:
    value = fields.get("token_ids_logprob")
    rows: list[Any]
    if value is None:
        return [()] * count
    if isinstance(value, list) and any(isinstance(row, list) for row in cast("list[Any]", value)):
        rows = list(cast("list[Any]", value))
        if len(rows) != count:
            fields.wrong("token_ids_logprob", f"a list of token ids, or {count} such lists: one for each prompt")
    else:
        rows = [value] * count
    return [() if row is None else fields.as_ids("token_ids_logprob", row, MAX_TOP * 4, size) for row in rows]


def _names(fields: Fields, count: int) -> tuple[str, ...]:
    """Request ids."""
    value = fields.get("rid")
    names = [secrets.token_hex(16) for _ in range(count)] if value is None else [value] if count == 1 else value
    if isinstance(value, str) and count > 1:
        names = [f"{value}_{i}" for i in range(count)]
    if isinstance(value, list) and count == 1:
        names = cast("list[Any]", value)
    if not isinstance(names, list) or len(cast("list[Any]", names)) != count:
        fields.wrong("rid", f"a text, or a list of {count}: one for each prompt")
    found = cast("list[Any]", names)
    if not all(isinstance(name, str) and 0 < len(name) <= 256 for name in found):
        fields.wrong("rid", "a text of 1 to 256 characters, or a list of them")
    return tuple(found)


def _is_select(batch: bool, params: dict[str, Any], logprobs: bool, start: Any, texts: bool, ids: bool) -> bool:
    """Whether this is one of the two requests by which the language's `select` scores choices, and nobody else's.

    It reads their log-probabilities in a layout that SGLang's servers had until 2025-03: without an entry for the first
    token; and for ids, of all tokens.
    """
    if not batch or not logprobs:
        return False
    if ids:
        return params == {"max_new_tokens": 0} and start is None and not texts
    return params == {"max_new_tokens": 0, "temperature": 0} and start is not None and texts


def _start(fields: Fields, value: Any, logprobs: bool, all: bool) -> int | None:
    """The first prompt token that log-probabilities are wanted of."""
    start = -1 if value is None else fields.as_integer("logprob_start_len", value, -1, MAX_IDS)
    if start == -1 and all:
        return 0
    return start if logprobs and start >= 0 else None


async def _request(fields: Fields, backend: Backend, grammars: Grammars) -> tuple[GenRequest, int, bool, int | None]:
    """One `sampling_params`: the request, `n`, whether stops are to be trimmed where patterns stay, and the seed."""
    size = size_of(backend)
    most = fields.integer("max_new_tokens", DEFAULT_TOKENS, 0, MAX_TOKENS)
    least = fields.integer("min_new_tokens", 0, 0, MAX_TOKENS)
    if least > most:
        fields.wrong("min_new_tokens", f"at most `max_new_tokens`, which is {most}")
    fields.flag("spaces_between_special_tokens", True)
    fields.integer("stream_interval", 1, 1, MAX_TOKENS)
    fields.refuse(("custom_params", "structural_tag", "beam_width"))
    stops = fields.texts("stop", MAX_STOPS, 1024) if fields.get("stop") != "" else fields.wrong("stop", "no empty text")
    patterns = stop_patterns(fields.texts("stop_regex", MAX_STOPS, 256), fields.path("stop_regex"))
    keep = fields.flag("no_stop_trim")
    temperature = fields.number("temperature", 1.0, 0.0, 100.0)
    top_k = fields.integer("top_k", -1, -1, 2**31)
    if top_k == 0:
        fields.wrong("top_k", "-1 for none, or at least 1")
    top_p = fields.number("top_p", 1.0, 0.0, 1.0, above=True)
    min_p = fields.number("min_p", 0.0, 0.0, 1.0)
    request = GenRequest(
        max_tokens=most,
        min_tokens=least,
        stop=stops,
        stop_token_ids=fields.ids("stop_token_ids", 256, size),
        stop_patterns=patterns,
        # what a stop pattern matches stays in the text, as with SGLang's servers
        keep_stop=keep or bool(patterns),
        ignore_eos=fields.flag("ignore_eos"),
        grammar=await _grammar(fields, backend, grammars),
        sampling=Sampling(
            temperature=0.0 if temperature < _GREEDY else temperature,
            top_p=None if top_p == 1.0 else top_p,
            top_k=None if top_k == -1 else top_k,
            min_p=min_p or None,
            frequency_penalty=fields.number("frequency_penalty", 0.0, -2.0, 2.0),
            presence_penalty=fields.number("presence_penalty", 0.0, -2.0, 2.0),
            repetition_penalty=fields.number("repetition_penalty", 1.0, 0.0, 2.0, above=True),
            logit_bias=fields.biases("logit_bias", size),
        ),
        label="generate",
    )
    count = fields.integer("n", 1, 1, 2**31)
    seed = fields.integer("sampling_seed", None, -(2**63), 2**64 - 1)
    return request, count, bool(patterns) and not keep, seed


async def _grammar(fields: Fields, backend: Backend, grammars: Grammars) -> str | None:
    """The constraint, of which there is one at most."""
    given = [name for name in ("regex", "json_schema", "ebnf") if fields.text(name) is not None]
    if len(given) > 1:
        both = " and ".join(f"`{name}`" for name in given)
        raise Refused(f"{both} cannot be used together: give one constraint.", fields.path(given[1]))
    if not given:
        return None
    name = given[0]
    param, source = fields.path(name), cast("str", fields.text(name))
    if not backend.capabilities.grammar:
        raise Refused(f"`{param}` is not supported by this model.", param, code="unsupported_parameter")
    if name == "regex":
        return await grammars.grammar("regex", source, param)
    if name == "json_schema":
        schema = '{"type": "object"}' if source == _ANY else read_schema(source, param)
        return await grammars.grammar("schema", schema, param)
    return await grammars.grammar("lark", _as_lark(source, param), param)


def _as_lark(source: str, param: str) -> str:
    """A grammar with `root ::= …` in the notation that the engine reads."""
    if len(source) > 65_536:
        raise Refused(f"`{param}` is longer than 65,536 characters.", param)
    from llguidance.gbnf_to_lark import any_to_lark

    convert: Callable[[str], str] = any_to_lark
    try:
        found = convert(source)
    except Exception as error:  # whatever the converter trips over, the text is to blame
        raise Refused(f"`{param}` cannot be read: {error}", param, code="invalid_constraint") from None
    return found.replace("%llguidance {}", "")


__all__ = ["MAX_IDS", "MAX_STOPS", "MAX_TOKENS", "MAX_TOP", "TIES", "Asked", "Wanted", "check_bounds", "read_generate"]

"""What OpenAI's clients get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglspec.backends.base import Alternative, Backend, Place, Token, TokenBackend
from sglspec.server.compat.fields import Refused
from sglspec.server.compat.openai_requests import Wanted
from sglspec.server.compat.work import Sample, finish_word, token_data, token_text
from sglspec.server.problems import to_json

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def fail(error: Refused) -> bytes:
    """An error as OpenAI's clients read it."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return to_json({"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}})


def usage(samples: Sequence[Sample]) -> dict[str, Any]:
    """Token counts; a prompt counts once, however many texts follow it."""
    prompt = sum(sample.prompt_tokens for sample in samples if sample.number == 0)
    cached = sum(sample.cached for sample in samples if sample.number == 0)
    completion = sum(sample.generated for sample in samples)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": min(cached, prompt)},
    }


def chat_choice(sample: Sample, wanted: Wanted, backend: Backend) -> dict[str, Any]:
    message = {"role": "assistant", "content": sample.text, "refusal": None}
    return {
        "index": sample.index,
        "message": message,
        "logprobs": chat_logprobs(sample.tokens, wanted, backend),
        "finish_reason": _word(sample),
    }


def chat_delta(sample: Sample, text: str, tokens: Sequence[Token], wanted: Wanted, backend: Backend) -> dict[str, Any]:
    return {
        "index": sample.index,
        "delta": {"content": text} if text or not sample.ended else {},
        "logprobs": chat_logprobs(tokens, wanted, backend),
        "finish_reason": _word(sample),
    }


def chat_logprobs(tokens: Sequence[Token], wanted: Wanted, backend: Backend) -> dict[str, Any] | None:
    """One entry for each token of the text; the one that ends it is none."""
    if wanted.logprobs is None:
        return None
    found: list[dict[str, Any]] = []
    for token in tokens:
        if token.end:
            continue
        entry = _bytes(token.id, token_text(backend, token), token.logprob, backend)
        entry["top_logprobs"] = [_bytes(one.id, one.text, one.logprob, backend) for one in token.top]
        found.append(entry)
    return {"content": found, "refusal": None}


def completion_choice(sample: Sample, wanted: Wanted, backend: Backend) -> dict[str, Any]:
    before = prompt_text(sample, backend) if wanted.echo else ""
    return {
        "index": sample.index,
        "text": before + sample.text,
        "logprobs": legacy_logprobs(sample, sample.tokens, wanted, backend, 0, head=wanted.echo),
        "finish_reason": _word(sample),
    }


def completion_delta(
    sample: Sample, text: str, tokens: Sequence[Token], wanted: Wanted, backend: Backend, sent: int
) -> dict[str, Any]:
    """sent: characters that were sent before. The prompt, where it is wanted, comes with the first."""
    head = wanted.echo and sent == 0
    return {
        "index": sample.index,
        "text": (prompt_text(sample, backend) if head else "") + text,
        "logprobs": legacy_logprobs(sample, tokens, wanted, backend, sent, head=head),
        "finish_reason": _word(sample),
    }


def prompt_text(sample: Sample, backend: Backend) -> str:
    """The prompt as it came; ids as the text that they spell."""
    prompt = sample.order.prompt
    if prompt.ids is None or not isinstance(backend, TokenBackend):
        return prompt.text
    return b"".join(backend.token_bytes(id) for id in prompt.ids).decode("utf-8", "replace")


def legacy_logprobs(
    sample: Sample, tokens: Sequence[Token], wanted: Wanted, backend: Backend, offset: int, *, head: bool
) -> dict[str, Any] | None:
    """Four lists side by side. head: the prompt's tokens stand before those of the text."""
    if wanted.logprobs is None:
        return None
    rows: list[tuple[str, float | None, dict[str, float] | None]] = []
    if head and sample.ids:
        inside = [place for place in sample.places if place.token is not None]
        first = sample.ids[: len(sample.ids) - len(inside)]
        rows += [(token_text(backend, Token(id, "", 0.0)), None, None) for id in first]
        rows += [_place(place, wanted) for place in inside]
    for token in tokens:
        if not token.end:
            rows.append((token_text(backend, token), token.logprob, _top(token.top, wanted)))
    offsets: list[int] = []
    for text, _, _ in rows:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": [text for text, _, _ in rows],
        "token_logprobs": [logprob for _, logprob, _ in rows],
        "top_logprobs": [top for _, _, top in rows] if wanted.logprobs else None,
        "text_offset": offsets,
    }


def _place(place: Place, wanted: Wanted) -> tuple[str, float | None, dict[str, float] | None]:
    assert place.token is not None
    return place.token.text, place.token.logprob, _top(place.top, wanted)


def _top(found: Sequence[Alternative], wanted: Wanted) -> dict[str, float] | None:
    return {one.text: one.logprob for one in reversed(found)} if wanted.logprobs else None


def _bytes(id: int, text: str, logprob: float, backend: Backend) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(token_data(backend, id, text))}


def _word(sample: Sample) -> str | None:
    return None if sample.finish is None else finish_word(sample.finish)


__all__ = [
    "chat_choice", "chat_delta", "completion_choice", "completion_delta", "fail", "usage",
]  # fmt: skip

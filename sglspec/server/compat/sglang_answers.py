"""What SGLang's clients get from `/generate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglspec.backends.base import Alternative, Backend, Place, Token, TokenBackend
from sglspec.server.compat.fields import Refused
from sglspec.server.compat.sglang_requests import Wanted
from sglspec.server.compat.work import Sample, token_data, token_text
from sglspec.server.problems import to_json

Entry = tuple[float | None, int, str | None]


def fail(error: Refused) -> bytes:
    """An error as SGLang's servers write it."""
    return to_json({"error": {"message": error.message, "param": error.param, "code": error.code}})


def answer(sample: Sample, wanted: Wanted, backend: Backend, name: str) -> dict[str, Any]:
    """A sample as it is now."""
    meta: dict[str, Any] = {
        "id": name,
        "finish_reason": _finish(sample),
        "prompt_tokens": sample.prompt_tokens,
        "weight_version": "default",
    }
    if wanted.logprobs:
        meta |= _logprobs(sample, wanted, backend)
    meta |= {"completion_tokens": sample.generated, "cached_tokens": sample.cached}
    if sample.ended:
        meta["e2e_latency"] = round(sample.seconds, 6)
    text = _with_special(sample, backend) if wanted.special else sample.text
    return {"text": text, "output_ids": [token.id for token in sample.tokens], "meta_info": meta}


def _finish(sample: Sample) -> dict[str, Any] | None:
    if sample.aborted and sample.finish is None:
        return {"type": "abort", "message": "Aborted by `/abort_request`.", "status_code": None, "err_type": None}
    finish = sample.finish
    if finish is None:
        return None
    if finish.reason == "length":
        return {"type": "length", "length": sample.generated}
    ending = sample.tokens[-1].id if finish.reason == "end" and sample.tokens else None
    return {"type": "stop", "matched": finish.matched if finish.reason == "stop" else ending}


def _with_special(sample: Sample, backend: Backend) -> str:
    """The text with the names of special tokens that are inside it."""

    def shown(token: Token) -> str:
        return token.text or (token_text(backend, token) if not token.end and _is_special(backend, token.id) else "")

    return "".join(map(shown, sample.tokens))


def _is_special(backend: Backend, id: int) -> bool:
    return isinstance(backend, TokenBackend) and not backend.token_bytes(id)


def _logprobs(sample: Sample, wanted: Wanted, backend: Backend) -> dict[str, Any]:
    """Log-probabilities of the prompt's tokens from `wanted.start` on, and of what was generated."""
    found: dict[str, Any] = {}
    last = sample.places[-1] if sample.places else None
    inside: Sequence[Place | None] = ()
    first: list[Entry] = []
    if wanted.start is not None and sample.ids is not None and wanted.start < len(sample.ids):
        inside = [place for place in sample.places if place.token is not None]
        if wanted.lead:
            inside = [None, *inside]
            id = sample.ids[wanted.start]
            first = [(None, id, token_text(backend, Token(id, "", 0.0)) if wanted.texts else None)]
    tokens = [_entry(place.token, wanted) for place in inside if place is not None and place.token is not None]
    if tokens and not wanted.lead and wanted.texts and sample.ids is not None:
        # `select` finds out by this text whether the token is the end of its context
        logprob, id, _ = tokens[0]
        tokens[0] = (logprob, id, _written(backend, sample.ids, len(sample.ids) - len(tokens)))
    found["input_token_logprobs"] = [*first, *tokens]
    ahead = last if not sample.tokens and sample.order.request.max_tokens == 0 else None
    found["output_token_logprobs"] = [_token_entry(token, wanted, backend) for token in sample.tokens]
    if ahead is not None and ahead.top:
        found["output_token_logprobs"] = [_entry(ahead.top[0], wanted)]
    found["output_token_logprobs_length"] = len(found["output_token_logprobs"])
    if wanted.top:
        found["input_top_logprobs"] = [_row(place and place.top[: wanted.top], wanted) for place in inside]
        found["output_top_logprobs"] = [_row(token.top[: wanted.top], wanted) for token in sample.tokens]
        if ahead is not None:
            found["output_top_logprobs"] = [_row(ahead.top[: wanted.top], wanted)]
    if wanted.watched:
        found["input_token_ids_logprobs"] = [_row(place and place.watched, wanted) for place in inside]
        found["output_token_ids_logprobs"] = [_row(token.watched, wanted) for token in sample.tokens]
        if ahead is not None:
            found["output_token_ids_logprobs"] = [_row(ahead.watched, wanted)]
    return found


def _written(backend: Backend, ids: Sequence[int], at: int) -> str:
    """What a token adds to the text: a character that it completes, it adds as a whole."""
    if _is_special(backend, ids[at]):
        return token_text(backend, Token(ids[at], "", 0.0))
    before, after = (b"".join(token_data(backend, id, "") for id in ids[:end]) for end in (at, at + 1))
    return after.decode("utf-8", "ignore")[len(before.decode("utf-8", "ignore")) :]


def _entry(one: Alternative, wanted: Wanted) -> Entry:
    return (one.logprob, one.id, one.text if wanted.texts else None)


def _token_entry(token: Token, wanted: Wanted, backend: Backend) -> Entry:
    return (token.logprob, token.id, token_text(backend, token) if wanted.texts else None)


def _row(found: tuple[Alternative, ...] | None, wanted: Wanted) -> list[Entry] | None:
    return [_entry(one, wanted) for one in found] if found else None


__all__ = ["answer", "fail"]

"""Stored programs as models: messages go into an input, the outputs come back as the reply.

An input of the type `messages`, or one of the name `messages` that takes an array, gets all of them as objects of
`role` and `content`. Otherwise the text of the last user message goes into the one input that takes a text and has no
value. Other values come in `inputs`.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any, cast

from starlette.requests import Request

from sglspec.analysis.inputs import bind_inputs
from sglspec.document.model import Decl, Spec
from sglspec.server.access.gate import grant_of
from sglspec.server.asked import principal
from sglspec.server.compat.fields import Fields, Refused
from sglspec.server.compat.openai_requests import TIES, read_messages
from sglspec.server.problems import Problem
from sglspec.server.programs import Checked
from sglspec.server.runs.live import LiveRun
from sglspec.server.runs.live import Order as RunOrder
from sglspec.server.service import Service

_DECIDED = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty",
    "logit_bias", "max_tokens", "max_completion_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos",
    "response_format", "regex", "guided_regex", "guided_json", "guided_choice", "logprobs", "top_logprobs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProgramAsked:
    """inputs: checked; stream, usage: whether as events, with token counts at the end."""

    inputs: dict[str, Any]
    seed: int
    stream: bool
    usage: bool


def read_program(fields: Fields, spec: Spec) -> ProgramAsked:
    """A chat request whose model is a program. Raises Refused."""
    fields.ignore(*TIES)
    for name in _DECIDED:
        if fields.get(name) is not None:
            raise Refused(f"`{name}` cannot be given here: the program decides it.", name, code="unsupported_parameter")
    fields.refuse(("n",), lambda value: value == 1)
    messages = read_messages(fields)
    given = dict(fields.object("inputs") or {})
    seed = fields.integer("seed", None, 0, 2**64 - 1)
    stream = fields.flag("stream")
    options = Fields(fields.object("stream_options") or {}, "stream_options")
    usage = options.flag("include_usage")
    options.flag("include_obfuscation")
    options.done()
    fields.done()
    target = _target(spec, given)
    if _takes_all(target, spec.inputs[target]):
        given[target] = [{"role": role, "content": text} for role, text in messages]
    else:
        texts = [text for role, text in messages if role == "user"]
        if not texts:
            raise Refused("There is no user message, and the program needs one.", "messages")
        given[target] = texts[-1]
    inputs, problems = bind_inputs(spec, given)
    if errors := [problem for problem in problems if problem.severity == "error"]:
        raise Refused(errors[0].message, "inputs", code=errors[0].code)
    return ProgramAsked(inputs, secrets.randbits(53) if seed is None else seed, stream, usage)


def _target(spec: Spec, given: dict[str, Any]) -> str:
    """The input that the messages go into."""
    free = {name: decl for name, decl in spec.inputs.items() if name not in given}
    for name, decl in free.items():
        if _takes_all(name, decl):
            return name
    texts = [name for name, decl in free.items() if decl.type in ("string", None) and decl.default is None]
    needed = [name for name in texts if not free[name].optional]
    found = needed if len(needed) == 1 else texts
    if len(found) != 1:
        message = "This program takes no messages, and has not exactly one open text input that messages could go into."
        raise Refused(message + " Give the others in `inputs`.", "messages")
    return found[0]


def _takes_all(name: str, decl: Decl) -> bool:
    return decl.type == "messages" or (name == "messages" and decl.type in ("array", "any"))


async def start_program(service: Service, request: Request, checked: Checked, asked: ProgramAsked) -> LiveRun:
    """Put the run into the queue."""
    await service.backend.get()
    order = RunOrder(checked, asked.inputs, asked.seed, principal=principal(request))
    with service.running.place(grant_of(request)) as place:
        run, _ = await service.runs.create(order)
        live = service.runs.find(run)
        assert live is not None
        place.keep(live.task)
    return live


async def reply_of(live: LiveRun) -> tuple[str, dict[str, Any]]:
    """The reply and the token counts. Raises Refused for a run that did not succeed, Problem for a fault of ours."""
    with live.watched():
        outcome = await live.finished()
    if outcome.fault is not None:
        raise Problem(500, "internal")
    result = cast("dict[str, Any]", json.loads(outcome.result))
    if outcome.state != "succeeded":
        error: dict[str, Any] = result["error"] or {}
        status = 422 if outcome.state == "failed" else 503
        raise Refused(str(error.get("message", "The run did not succeed.")), status=status, code=error.get("code"))
    counts = result["usage"]
    prompt, completion = counts["prompt_tokens"], counts["generated_tokens"]
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    usage["prompt_tokens_details"] = {"cached_tokens": min(counts["reused_tokens"], prompt)}
    return _text(result["outputs"]), usage


def _text(outputs: dict[str, Any]) -> str:
    """One output that is a text is the reply as it is. All else is JSON: the value of one output, or all by name."""
    value = next(iter(outputs.values())) if len(outputs) == 1 else outputs
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


__all__ = ["ProgramAsked", "read_program", "reply_of", "start_program"]

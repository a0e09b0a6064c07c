"""OpenAI's addresses: `openai.OpenAI(base_url=…/v1)`, and whoever speaks to such a server, works against this one."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sglspec.backends.base import Backend
from sglspec.server.access.gate import grant_of
from sglspec.server.access.keys import Grant, Scope
from sglspec.server.compat import schemas
from sglspec.server.compat.answers import (
    DataStream,
    Places,
    changes,
    described,
    event,
    finished,
    json_response,
    room,
)
from sglspec.server.compat.fields import Fields, Refused, read_object
from sglspec.server.compat.grammars import Grammars
from sglspec.server.compat.openai_answers import (
    chat_choice,
    chat_delta,
    completion_choice,
    completion_delta,
    fail,
    usage,
)
from sglspec.server.compat.openai_programs import ProgramAsked, read_program, reply_of, start_program
from sglspec.server.compat.openai_requests import Asked, read_chat, read_completion, seen
from sglspec.server.compat.work import Sample, Show, Worker, nobody
from sglspec.server.endpoints import Endpoint
from sglspec.server.problems import Problem, to_json
from sglspec.server.programs import Checked
from sglspec.server.runs.live import LiveRun
from sglspec.server.service import Service
from sglspec.server.storage import programs as table

DEFAULT = "default"
"""A model name that always means this server's model."""
_LISTED = 1000


class OpenAIRoutes:
    """control: whether raw prompts may spell control tokens where a request does not say."""

    def __init__(self, service: Service, places: Places, grammars: Grammars, *, control: bool) -> None:
        self._service = service
        self._places = places
        self._grammars = grammars
        self._control = control
        self._created = int(time.time())

    def endpoints(self) -> list[Endpoint]:
        return described(
            fail,
            {"/v1/chat/completions": schemas.CHAT, "/v1/completions": schemas.COMPLETION},
            ("POST", "/v1/chat/completions", self.chat, "models", "Reply to messages, as OpenAI's servers do"),
            ("POST", "/v1/completions", self.completion, "run:adhoc", "Go on with a text, as OpenAI's servers did"),
            ("GET", "/v1/models", self.models, "models", "The model, and the stored programs"),
            ("GET", "/v1/models/{model}", self.model, "models", "One of them"),
        )

    async def chat(self, request: Request) -> Response:
        fields = Fields(await read_object(request))
        checked = await self._model(fields)
        grant = grant_of(request)
        _require(grant, "run:adhoc" if checked is None else "runs:write")
        if checked is not None:
            return await self._program(request, fields, checked)
        backend = await self._service.backend.get()
        bounds = self._service.limits.bounds
        asked = await read_chat(fields, backend, self._grammars, bounds)
        head = self._head("chatcmpl", "chat.completion")
        if asked.wanted.stream:
            return self._stream(self._chat_pieces(asked, backend, grant, head | {"object": "chat.completion.chunk"}))
        samples = await self._finished(request, asked, backend)
        choices = [chat_choice(sample, asked.wanted, backend) for sample in samples]
        return json_response(head | {"choices": choices, "usage": usage(samples)})

    async def completion(self, request: Request) -> Response:
        fields = Fields(await read_object(request))
        if await self._model(fields) is not None:
            raise Refused("A program takes messages: post to `/v1/chat/completions`.", "model")
        backend = await self._service.backend.get()
        bounds = self._service.limits.bounds
        asked = await read_completion(fields, backend, self._grammars, bounds, self._control)
        head = self._head("cmpl", "text_completion")
        if asked.wanted.stream:
            return self._stream(self._completion_pieces(asked, backend, grant_of(request), head))
        samples = await self._finished(request, asked, backend)
        choices = [completion_choice(sample, asked.wanted, backend) for sample in samples]
        return json_response(head | {"choices": choices, "usage": usage(samples)})

    async def _finished(self, request: Request, asked: Asked, backend: Backend) -> list[Sample]:
        with room(self._service, self._places, grant_of(request), seen(asked.orders)):
            task = self._places.start(Worker(backend, asked.seed, nobody).run(asked.orders))
            return await finished(request, task, self._service.limits.bounds.seconds)

    # -- streams -------------------------------------------------------------------------------------------------

    async def _chat_pieces(
        self, asked: Asked, backend: Backend, grant: Grant, head: dict[str, Any]
    ) -> AsyncGenerator[bytes, None]:
        begun: set[int] = set()

        def face(sample: Sample, text: str, tokens: Any) -> list[dict[str, Any]]:
            role = {"index": sample.index, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
            first = [] if sample.index in begun else [role | {"finish_reason": None}]
            begun.add(sample.index)
            return [*first, chat_delta(sample, text, tokens, asked.wanted, backend)]

        async with aclosing(self._pieces(asked, backend, grant, head, face)) as pieces:
            async for piece in pieces:
                yield piece

    async def _completion_pieces(
        self, asked: Asked, backend: Backend, grant: Grant, head: dict[str, Any]
    ) -> AsyncGenerator[bytes, None]:
        sent: dict[int, int] = {}

        def face(sample: Sample, text: str, tokens: Any) -> list[dict[str, Any]]:
            found = completion_delta(sample, text, tokens, asked.wanted, backend, sent.get(sample.index, 0))
            sent[sample.index] = sent.get(sample.index, 0) + len(found["text"])
            return [found]

        async with aclosing(self._pieces(asked, backend, grant, head, face)) as pieces:
            async for piece in pieces:
                yield piece

    async def _pieces(
        self,
        asked: Asked,
        backend: Backend,
        grant: Grant,
        head: dict[str, Any],
        face: Callable[[Sample, str, Any], list[dict[str, Any]]],
    ) -> AsyncGenerator[bytes, None]:
        """What is new of each sample; what is there together is one piece."""
        if asked.wanted.usage:
            head = head | {"usage": None}
        samples: dict[int, Sample] = {}

        def begin(show: Show) -> Coroutine[Any, Any, Any]:
            return Worker(backend, asked.seed, show).run(asked.orders)

        with room(self._service, self._places, grant, seen(asked.orders)):
            async with aclosing(changes(self._places, begin, self._service.limits.bounds.seconds)) as found:
                async for news in found:
                    parts: dict[int, tuple[str, tuple[Any, ...]]] = {}
                    for sample, text, tokens in news:
                        samples[sample.index] = sample
                        before, old = parts.get(sample.index, ("", ()))
                        parts[sample.index] = before + text, (*old, *tokens)
                    faces = [
                        one for index, (text, tokens) in parts.items() for one in face(samples[index], text, tokens)
                    ]
                    yield b"".join(event(to_json(head | {"choices": [one]})) for one in faces)
        if asked.wanted.usage:
            counts = usage([sample for _, sample in sorted(samples.items())])
            yield event(to_json(head | {"choices": [], "usage": counts}))

    # -- programs ------------------------------------------------------------------------------------------------

    async def _program(self, request: Request, fields: Fields, checked: Checked) -> Response:
        asked = read_program(fields, checked.program.spec)
        with self._service.slots.entry():
            live = await start_program(self._service, request, checked, asked)
        head = self._head("chatcmpl", "chat.completion") | {"model": checked.name}
        if asked.stream:
            return self._stream(_program_pieces(live, asked, head | {"object": "chat.completion.chunk"}))
        task = self._places.start(reply_of(live))
        text, counts = await finished(request, task, self._service.limits.bounds.seconds + 60.0)
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return json_response(head | {"choices": [choice], "usage": counts})

    async def _model(self, fields: Fields) -> Checked | None:
        """The stored program that `model` names; None for this server's model. Raises Refused (404)."""
        name = fields.text("model")
        if name is None:
            raise Refused("`model` is missing: `GET /v1/models` lists the names.", "model")
        if name in (DEFAULT, self._service.backend.name):
            return None
        try:
            return await self._service.programs.load(name)
        except Problem as problem:
            if problem.status == 404:
                raise _no_model(name) from None
            raise

    # -- models --------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:
        """The model of this server first, then the stored programs by name, for who may see them."""
        if not grant_of(request).may("programs:read"):
            return json_response({"object": "list", "data": [self._own()]})
        job = partial(table.latest, after="", limit=_LISTED)
        versions = await self._service.database.read(job)
        programs = [_model_face(version.name, int(version.created), "program") for version in versions]
        return json_response({"object": "list", "data": [self._own(), *programs]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        if name in (DEFAULT, self._service.backend.name):
            return json_response(self._own())
        if not grant_of(request).may("programs:read"):
            raise _no_model(name)
        try:
            version = await self._service.programs.resolve(name)
        except Problem:
            raise _no_model(name) from None
        return json_response(_model_face(version.name, int(version.created), "program"))

    def _own(self) -> dict[str, Any]:
        backend = self._service.backend
        return _model_face(backend.name, self._created, "sglspec") | {"ready": backend.ready is not None}

    # -- common --------------------------------------------------------------------------------------------------

    def _head(self, prefix: str, kind: str) -> dict[str, Any]:
        name = self._service.backend.name
        return {"id": f"{prefix}-{secrets.token_hex(14)}", "object": kind, "created": int(time.time()), "model": name}

    def _stream(self, pieces: AsyncGenerator[bytes, None]) -> Response:
        return DataStream(pieces, self._service.limits.ping_seconds, fail)


async def _program_pieces(live: LiveRun, asked: ProgramAsked, head: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    """The reply in one piece, when it is there."""
    text, counts = await reply_of(live)
    if asked.usage:
        head = head | {"usage": None}
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": text}, None), ({}, "stop")]
    for delta, word in deltas:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": word}
        yield event(to_json(head | {"choices": [choice]}))
    if asked.usage:
        yield event(to_json(head | {"choices": [], "usage": counts}))


def _model_face(name: str, created: int, owner: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": owner}


def _require(grant: Grant, scope: Scope) -> None:
    if not grant.may(scope):
        raise Problem(403, "forbidden", f"This needs a key with the scope `{scope}`.")


def _no_model(name: str) -> Refused:
    return Refused(f"There is no model `{name[:100]}`.", "model", status=404, code="model_not_found")


__all__ = ["OpenAIRoutes"]

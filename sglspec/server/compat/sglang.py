"""SGLang's addresses: `sglang.RuntimeEndpoint`, and whoever speaks to a server of SGLang, works against this one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sglspec.backends.base import Backend, GenRequest, TokenBackend
from sglspec.server.access.gate import grant_of
from sglspec.server.access.keys import Grant
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
from sglspec.server.compat.sglang_answers import answer, fail
from sglspec.server.compat.sglang_requests import Asked, read_generate
from sglspec.server.compat.work import Order, Prompt, Sample, Show, Worker, nobody
from sglspec.server.endpoints import Endpoint
from sglspec.server.problems import to_json
from sglspec.server.service import Service

PROBE_SECONDS = 20.0


class SGLangRoutes:
    """control: whether raw texts may spell control tokens where a request does not say."""

    def __init__(self, service: Service, places: Places, grammars: Grammars, *, control: bool) -> None:
        self._service = service
        self._places = places
        self._grammars = grammars
        self._control = control
        self._workers: dict[Worker, str] = {}
        # _workers: what is being generated, and for whom.

    def endpoints(self) -> list[Endpoint]:
        return described(
            fail,
            {
                "/generate": schemas.GENERATE,
                "/abort_request": schemas.ABORT,
                "/concate_and_append_request": {"type": "object"},
            },
            ("POST", "/generate", self.generate, "run:adhoc", "Generate behind raw text, as SGLang's servers do"),
            ("PUT", "/generate", self.generate, "run:adhoc", "The same"),
            ("POST", "/abort_request", self.abort_request, "run:adhoc", "End requests by their `rid`"),
            ("POST", "/concate_and_append_request", self.concatenate, "run:adhoc", "Nothing to do"),
            ("GET", "/get_model_info", self.model_info, "models", "The model, as SGLang's clients ask"),
            ("GET", "/model_info", self.model_info, "models", "The same"),
            ("GET", "/get_server_info", self.server_info, "models", "The server, as SGLang's clients ask"),
            ("GET", "/server_info", self.server_info, "models", "The same"),
            ("GET", "/get_server_args", self.server_info, "models", "The same"),
            ("POST", "/flush_cache", self.flush_cache, "admin", "Forget cached prefixes"),
            ("GET", "/flush_cache", self.flush_cache, "admin", "The same, as old clients ask"),
            ("GET", "/health", self.health, "public", "200 when the model is loaded"),
            ("GET", "/health_generate", self.health_generate, "run:adhoc", "200 when it generates"),
        )

    # -- generating ----------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> Response:
        data = await read_object(request)
        backend = await self._service.backend.get()
        bounds = self._service.limits.bounds
        grant = grant_of(request)
        asked = await read_generate(data, backend, self._grammars, bounds, self._control)
        if asked.stream:
            return DataStream(self._pieces(asked, backend, grant), self._service.limits.ping_seconds, fail)
        with room(self._service, self._places, grant, _count(asked)):
            task = self._places.start(self._work(asked, backend, grant, nobody))
            samples = await finished(request, task, bounds.seconds)
        found = [self._answer(sample, asked, backend) for sample in samples]
        return json_response(found if asked.batch else found[0])

    async def _work(self, asked: Asked, backend: Backend, grant: Grant, show: Show) -> list[Sample]:
        worker = Worker(backend, asked.seed, show)
        self._workers[worker] = grant.owner
        try:
            return await worker.run(asked.orders)
        finally:
            del self._workers[worker]

    async def _pieces(self, asked: Asked, backend: Backend, grant: Grant) -> AsyncGenerator[bytes, None]:
        """The text so far of each sample that has grown; with the place of the sample where there are several."""

        def begin(show: Show) -> Coroutine[Any, Any, Any]:
            return self._work(asked, backend, grant, show)

        seconds = self._service.limits.bounds.seconds
        with room(self._service, self._places, grant, _count(asked)):
            async with aclosing(changes(self._places, begin, seconds)) as found:
                async for news in found:
                    latest = {sample.index: sample for sample, _, _ in news}
                    for index, sample in sorted(latest.items()):
                        face = self._answer(sample, asked, backend)
                        yield event(to_json(face | {"index": index} if asked.batch else face))

    def _answer(self, sample: Sample, asked: Asked, backend: Backend) -> dict[str, Any]:
        name = sample.order.name if sample.order.count == 1 else f"{sample.order.name}_{sample.number}"
        return answer(sample, asked.wanted[sample.place], backend, name)

    async def abort_request(self, request: Request) -> Response:
        fields = Fields(await read_object(request))
        name, everything = fields.text("rid"), fields.flag("abort_all")
        fields.ignore("finished_reason", "abort_message")
        fields.done()
        if name is None and not everything:
            raise Refused("Give `rid`, or `abort_all`.", "rid")
        grant = grant_of(request)
        for worker in [worker for worker, owner in self._workers.items() if grant.sees(owner)]:
            for sample in list(worker.samples):
                if everything or sample.order.name == name:
                    sample.abort()
        return Response(status_code=200)

    # -- about the server ----------------------------------------------------------------------------------------

    async def model_info(self, request: Request) -> Response:
        name = self._service.backend.name
        return json_response(
            {
                "model_path": name,
                "tokenizer_path": name,
                "served_model_name": name,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "has_image_understanding": False,
                "has_audio_understanding": False,
            }
        )

    async def server_info(self, request: Request) -> Response:
        from sglspec import __version__

        backend = self._service.backend.ready
        context = backend.max_context() if isinstance(backend, TokenBackend) else None
        name = self._service.backend.name
        face = {"model_path": name, "tokenizer_path": name, "served_model_name": name, "context_length": context}
        face |= {"status": "ready" if backend is not None else "loading", "max_running_requests": self._places.most}
        return json_response(face | {"version": f"sglspec {__version__}", "internal_states": []})

    async def flush_cache(self, request: Request) -> Response:
        backend = await self._service.backend.get()
        done = not isinstance(backend, TokenBackend) or await backend.flush()
        text = "Cache flushed.\n" if done else "Requests are running: what they use stays.\n"
        return Response(text, 200 if done else 400, media_type="text/plain")

    async def health(self, request: Request) -> Response:
        self._service.backend.require_ready()
        return Response(status_code=200)

    async def health_generate(self, request: Request) -> Response:
        """One token is generated, so it is known that the model still does."""
        backend = self._service.backend.require_ready()
        if isinstance(backend, TokenBackend):
            order = Order(Prompt(text="health"), GenRequest(max_tokens=1))
            with self._places.hold(1):
                worker = Worker(backend, 0, nobody)
                await finished(request, self._places.start(worker.run([order])), PROBE_SECONDS)
        return Response(status_code=200)

    async def concatenate(self, request: Request) -> Response:
        """The language's clients tell the server to join contexts that they have joined themselves; what they send next
        is the whole text."""
        await read_object(request)
        return json_response({})


def _count(asked: Asked) -> int:
    return sum(order.count for order in asked.orders)


__all__ = ["SGLangRoutes"]

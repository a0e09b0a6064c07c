"""Answering: work that ends when its client leaves, and streams whose errors come before the first byte if they can."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sglspec.backends.base import Token
from sglspec.server.access.keys import Grant, Need
from sglspec.server.compat.fields import Refused
from sglspec.server.compat.schemas import Schema
from sglspec.server.compat.work import Sample, Show
from sglspec.server.endpoints import Endpoint, Handler, Method
from sglspec.server.problems import Problem, to_json
from sglspec.server.service import Service
from sglspec.server.sse import HEADERS, STALL_SECONDS, client_gone

MAX_SAMPLES = 1024
"""Texts that are being generated, or wait for that, at once."""
DONE = b"data: [DONE]\n\n"
_PING = b": ping\n\n"

T = TypeVar("T")
Fail = Callable[[Refused], bytes]
"""An error as the body of an answer."""

log = logging.getLogger("sglspec.server")


class Places:
    """How many texts may be in the making at once. What is in the making ends with `cancel_all`."""

    def __init__(self, most: int = MAX_SAMPLES) -> None:
        self.most = most
        self.taken = 0
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def hold(self, count: int) -> Generator[None, None, None]:
        """Raises Refused (503) when there is no room, and when the server stops."""
        if self._closed:
            raise Refused("The server is stopping.", status=503, code="stopping", headers={"Retry-After": "5"})
        if self.taken + count > self.most:
            message = f"This server makes {self.most} texts at once. Try again later."
            raise Refused(message, status=503, code="busy", headers={"Retry-After": "1"})
        self.taken += count
        try:
            yield
        finally:
            self.taken -= count

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        """From now on nothing new is made."""
        self._closed = True

    def cancel_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()


@contextmanager
def room(service: Service, places: Places, grant: Grant, count: int) -> Generator[None, None, None]:
    """A request's part of what its owner, and what all may have at once. Raises Problem (429), Refused (503)."""
    with service.running.place(grant), places.hold(count):
        yield


def as_refused(error: BaseException) -> Refused:
    """Any error as an answer. One of ours goes to the log, not to the client."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Problem):
        message = error.detail or str(error)
        return Refused(message, status=error.status, code=error.code, headers=error.headers)
    if isinstance(error, asyncio.CancelledError):
        return Refused("The server is stopping.", status=503, code="stopping")
    if isinstance(error, TimeoutError):
        return Refused("This takes longer than the server allows.", status=504, code="timeout")
    log.error("a request broke", exc_info=error)
    return Refused("A fault in sglspec. The server's log says more.", status=500, code="internal")


async def finished(request: Request, task: asyncio.Task[T], seconds: float) -> T:
    """The result of work, which ends when the client leaves or the time is over. Raises what it raises, Refused for the
    end of the server, ClientDisconnect."""
    gone = asyncio.create_task(client_gone(request.receive))
    try:
        await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            if gone.done():
                raise ClientDisconnect
            raise TimeoutError
        if task.cancelled():
            raise as_refused(asyncio.CancelledError())
        return task.result()
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.wait({task})


Change = tuple[Sample, str, tuple[Token, ...]]


async def changes(
    places: Places, begin: Callable[[Show], Coroutine[Any, Any, Any]], seconds: float
) -> AsyncGenerator[list[Change], None]:
    """What happens to samples, as it happens; what is there together comes together. Closing it ends the work. begin:
    makes the work, which tells what happens."""
    queue: asyncio.Queue[Change | None] = asyncio.Queue()
    task = places.start(begin(lambda sample, text, tokens: queue.put_nowait((sample, text, tokens))))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    late = False

    def expire() -> None:
        nonlocal late
        late = True
        task.cancel()

    # no timeout around it all: pieces of a generator may be asked for by different tasks
    alarm = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        ended = False
        while not ended:
            batch = [await queue.get()]
            while not queue.empty():
                batch.append(queue.get_nowait())
            ended = batch[-1] is None
            if found := [change for change in batch if change is not None]:
                yield found
        if task.cancelled():
            raise TimeoutError if late else as_refused(asyncio.CancelledError())
        task.result()
    finally:
        alarm.cancel()
        task.cancel()
        await asyncio.wait({task})


class DataStream(Response):
    """Server-sent events that are `data:` lines alone. An error before the first of them is an answer of its own."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], ping_seconds: float, fail: Fail) -> None:
        super().__init__()
        self._pieces = pieces
        self._ping_seconds = ping_seconds
        self._fail = fail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = asyncio.create_task(self._send(scope, receive, send))
        gone = asyncio.create_task(client_gone(receive))
        try:
            await asyncio.wait({sender, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            sender.cancel()
            await asyncio.wait({sender, gone})
        if not sender.cancelled():
            with suppress(TimeoutError):  # a reader that takes nothing any more
                sender.result()

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def body(data: bytes, *, more: bool = True) -> None:
            async with asyncio.timeout(STALL_SECONDS):
                await send({"type": "http.response.body", "body": data, "more_body": more})

        async with aclosing(self._pieces):
            begun = False
            pending: asyncio.Future[bytes] | None = None
            try:
                while True:
                    # a timeout around `anext` would end the iterator, so the wait goes on beside the pings
                    pending = pending or asyncio.ensure_future(anext(self._pieces))
                    await asyncio.wait({pending}, timeout=self._ping_seconds)
                    done, pending = pending, None if pending.done() else pending
                    if done.done() and not begun and (error := done.exception()) is not None:
                        await error_response(as_refused(error), self._fail)(scope, receive, send)
                        return
                    if not begun:
                        begun = True
                        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                    if pending is not None:
                        await body(_PING)
                        continue
                    error = done.exception()
                    if error is None:
                        await body(done.result())
                        continue
                    if not isinstance(error, StopAsyncIteration):
                        await body(event(self._fail(as_refused(error))))
                    break
            finally:
                if pending is not None:
                    pending.cancel()
                    await asyncio.wait({pending})
        await body(DONE)
        await body(b"", more=False)


def guarded(handler: Handler, fail: Fail) -> Handler:
    """A handler whose errors are answered in a protocol's form."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientDisconnect:
            raise
        except Exception as error:
            return error_response(as_refused(error), fail)

    return answer


Row = tuple[Method, str, Handler, Need, str]
"""Method, path, handler, scope and summary of an address."""


def described(fail: Fail, bodies: Mapping[str, Schema], *rows: Row) -> list[Endpoint]:
    """Addresses that give JSON of a shape that is described elsewhere, errors too. bodies: what they take, by path."""

    def refuse(problem: Problem) -> Response:
        return error_response(as_refused(problem), fail)

    kind = {"application/json": {"schema": {"type": "object"}}}
    responses = {"200": {"description": "The answer"}, "default": {"description": "What is wrong", "content": kind}}
    bare: dict[str, Any] = {"responses": responses}
    found: list[Endpoint] = []
    for method, path, handler, scope, summary in rows:
        body = bodies.get(path)
        operation = bare
        if body is not None:
            content = {"application/json": {"schema": body}}
            operation = bare | {"requestBody": {"required": True, "content": content}}
        own = None if path == "/v1/models" else refuse  # that one is not only for these clients
        found.append(Endpoint(method, path, guarded(handler, fail), scope, summary, operation, own))
    return found


def event(data: bytes) -> bytes:
    """One event. JSON has no raw line breaks, so one line holds it."""
    return b"data: %s\n\n" % data


def error_response(error: Refused, fail: Fail) -> Response:
    headers = {"Cache-Control": "no-store", **error.headers}
    return Response(fail(error), error.status, headers, media_type="application/json")


def json_response(value: Any) -> Response:
    return Response(to_json(value), headers={"Cache-Control": "no-store"}, media_type="application/json")


__all__ = [
    "DONE", "Change", "DataStream", "Fail", "Places", "as_refused", "changes", "described", "error_response", "event",
    "finished", "json_response", "room",
]  # fmt: skip

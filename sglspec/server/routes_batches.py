"""Batches: many rows of inputs in one request, and their results later."""

from __future__ import annotations

import io
import re
from collections.abc import AsyncGenerator, Iterable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sglspec.batches import RawRow
from sglspec.batches.rows import json_lines
from sglspec.diagnostics import SpecError
from sglspec.server import openapi
from sglspec.server.access.gate import grant_of
from sglspec.server.asked import principal
from sglspec.server.batches import make_id, read_rows
from sglspec.server.body import (
    JSON_TYPES,
    JSONL_TYPES,
    MAX_BODY,
    BatchSettings,
    read_batch,
    read_batch_query,
    receive_body,
)
from sglspec.server.endpoints import Endpoint, reply
from sglspec.server.faces import batch_face, batch_row_face
from sglspec.server.problems import Problem, to_json
from sglspec.server.queries import cursor
from sglspec.server.routes_runs import random_seed
from sglspec.server.service import Service
from sglspec.server.storage import batches as table
from sglspec.server.storage.batches import Batch

MAX_LINES = 32 * MAX_BODY
"""Bytes of a body with one row a line."""
_ID = re.compile(r"batch_[0-9a-f]{28}")
_LAST = "batch_~"
_PAGE = 500
_LINES = {"responses": openapi.answers("200", "One JSON object a line", "application/jsonl")}
_POST = {
    "parameters": [openapi.query("program", {"type": "string"}), openapi.query("seed", {"type": "string"})],
    "requestBody": {
        "required": True,
        "content": openapi.content("application/json", schema=openapi.ref("Rows"))
        | openapi.content("application/jsonl", schema={"type": "string"}),
    },
    "responses": openapi.answers("201", "The batch, which waits for its turn", "application/json"),
}


class BatchRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._batches = service.batches
        self._database = service.database

    def endpoints(self) -> list[Endpoint]:
        one = "/v1/batches/{batch}"
        page, cancel = (
            {"parameters": list(openapi.PAGE)},
            {"responses": openapi.answers("202", "The batch", *JSON_TYPES)},
        )
        return [
            Endpoint("POST", "/v1/batches", self.post_batch, "runs:write", "Run a stored program on many rows", _POST),
            Endpoint("GET", "/v1/batches", self.get_page, "runs:read", "Batches, newest first", page),
            Endpoint("GET", one, self.get_batch, "runs:read", "The state of a batch"),
            Endpoint("GET", one + "/output", self.get_output, "runs:read", "The rows that succeeded so far", _LINES),
            Endpoint("GET", one + "/errors", self.get_errors, "runs:read", "The rows that did not succeed", _LINES),
            Endpoint("POST", one + "/cancel", self.post_cancel, "runs:write", "Ask a batch to end", cancel),
        ]

    async def post_batch(self, request: Request) -> Response:
        raw = await receive_body(request, (*JSON_TYPES, *JSONL_TYPES), MAX_LINES)
        programs = self._service.programs
        with self._service.slots.entry():
            if raw.kind in JSON_TYPES:
                settings = await programs.beside(partial(read_batch, raw))
            else:
                settings = read_batch_query(raw)
            checked = await programs.load(settings.program)
            backend = await self._service.backend.get()
            seed = random_seed() if settings.seed is None else settings.seed
            batch = make_id()
            job = partial(read_rows, batch, checked, _raw_rows(settings, raw.data), backend.model_name, seed)
            try:
                rows = await programs.beside(job)
            except SpecError as error:
                raise Problem(400, "invalid-request", errors=error.diagnostics) from None
            if not rows:
                raise Problem(400, "invalid-request", "A batch has at least one row.")
            await self._batches.create(checked, rows, batch, seed, principal(request))
        return reply(batch_face(*await self._batches.get(batch)), 201, {"Location": f"/v1/batches/{batch}"})

    async def get_page(self, request: Request) -> Response:
        limit, below = cursor(request, _LAST, _ID)
        grant = grant_of(request)
        mine = None if grant.may("admin") else grant.owner
        rows = await self._database.read(partial(table.page, below=below, limit=limit + 1, principal=mine))
        next = rows[limit - 1].id if len(rows) > limit else None
        return reply({"data": [batch_face(row) for row in rows[:limit]], "next": next})

    async def get_batch(self, request: Request) -> Response:
        return reply(batch_face(*await self._seen(request)))

    async def get_output(self, request: Request) -> Response:
        return await self._lines(request, succeeded=True)

    async def get_errors(self, request: Request) -> Response:
        return await self._lines(request, succeeded=False)

    async def post_cancel(self, request: Request) -> Response:
        await receive_body(request, JSON_TYPES, optional=True)
        batch, _ = await self._seen(request)
        await self._batches.cancel(batch.id)
        return reply(batch_face(*await self._batches.get(batch.id)), 202)

    async def _seen(self, request: Request) -> tuple[Batch, dict[str, int]]:
        """The batch of the address. Raises Problem (404), also for a batch of somebody else."""
        batch, counts = await self._batches.get(_id(request))
        if not grant_of(request).sees(batch.principal):
            raise Problem(404, "not-found", "There is no such batch.")
        return batch, counts

    async def _lines(self, request: Request, *, succeeded: bool) -> Response:
        batch, _ = await self._seen(request)
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(self._results(batch.id, succeeded), headers=headers, media_type="application/jsonl")

    async def _results(self, batch: str, succeeded: bool) -> AsyncGenerator[bytes, None]:
        """One page at a time: a batch of any size takes little memory."""
        last = 0
        while True:
            job = partial(table.results, batch=batch, after=last, limit=_PAGE, succeeded=succeeded)
            rows = await self._database.read(job)
            if not rows:
                return
            yield b"".join(to_json(batch_row_face(row)) + b"\n" for row in rows)
            last = rows[-1].row


def _raw_rows(settings: BatchSettings, data: bytes) -> Iterable[RawRow]:
    if settings.rows is not None:
        return map(RawRow, settings.rows)
    return json_lines(io.BytesIO(data), "rows")


def _id(request: Request) -> str:
    batch = request.path_params["batch"]
    if not _ID.fullmatch(batch):
        raise Problem(404, "not-found", "There is no such batch.")
    return batch


__all__ = ["BatchRoutes"]

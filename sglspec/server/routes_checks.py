"""Checking a program without running it."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from sglspec.diagnostics import SpecError
from sglspec.diagnostics.record import MAX_REPORTED
from sglspec.server import openapi
from sglspec.server.body import read_posted, receive_body
from sglspec.server.endpoints import Endpoint, reply
from sglspec.server.problems import Problem, faces
from sglspec.server.service import Service
from sglspec.server.storage.programs import Document

CHECK_BYTES = 65_536

_CHECK = {
    "requestBody": {
        "required": True,
        "content": openapi.content("application/json", schema=openapi.ref("Posted"))
        | openapi.content("application/yaml", schema={"type": "string"}),
    }
}


class CheckRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "POST", "/v1/check", self.post_check, "run:adhoc", "All diagnostics of a program; nothing runs", _CHECK
            ),
        ]

    async def post_check(self, request: Request) -> Response:
        """All diagnostics of a program, warnings too. Nothing runs."""
        raw = await receive_body(request)
        programs = self._service.programs
        with self._service.slots.entry():
            try:
                posted = await programs.beside(partial(read_posted, raw))
            except SpecError as error:
                raise Problem(422, "invalid-program", errors=error.diagnostics) from None
            text = posted.source.text.encode("utf-8", "surrogatepass")
            document = Document.of(text, posted.source.format, posted.files)
            program, diagnostics = await programs.check(posted.source, document)
        shown, omitted = faces(diagnostics, MAX_REPORTED, CHECK_BYTES)
        return reply({"ok": program is not None, "diagnostics": shown, "omitted": omitted})


__all__ = ["CHECK_BYTES", "CheckRoutes"]

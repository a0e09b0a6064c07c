"""Runs: posting them, and the four views of one: waiting for it, following its events, asking later, in a batch."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from sglspec.analysis.inputs import bind_inputs
from sglspec.diagnostics import Diagnostic, SpecError
from sglspec.server import openapi
from sglspec.server.access.gate import grant_of
from sglspec.server.asked import Asked, asked, principal, waits
from sglspec.server.body import Settings, read_posted, read_settings, receive_body
from sglspec.server.endpoints import Endpoint, reply, reply_text
from sglspec.server.faces import run_face
from sglspec.server.problems import Problem, to_json
from sglspec.server.programs import Checked
from sglspec.server.queries import cursor, whole
from sglspec.server.runs import LiveRun, Order
from sglspec.server.runs.follow import follow, stored
from sglspec.server.service import Service
from sglspec.server.sse import EventStream, client_gone
from sglspec.server.storage import runs as table
from sglspec.server.storage.programs import NAME
from sglspec.server.storage.runs import RUN_ID, STATES, OtherRequest, RunRow, State

_INLINE = openapi.run_operation(
    openapi.content("application/json", schema=openapi.ref("Posted"))
    | openapi.content("application/yaml", schema={"type": "string"}),
    required=True,
)
_STORED = openapi.run_operation(openapi.content("application/json", schema=openapi.ref("Settings")), required=False)
_PAGE = {
    "parameters": [
        openapi.query("status", {"type": "array", "items": {"enum": list(STATES)}}),
        openapi.query("program", {"type": "string", "pattern": f"^{NAME.pattern}$"}),
        *openapi.PAGE,
    ]
}
_EVENTS = {
    "parameters": [openapi.query("after", {"type": "integer", "minimum": -1, "maximum": 2**53})],
    "responses": openapi.answers("200", "Events", "text/event-stream", "application/json"),
}
_CANCEL = {"responses": openapi.answers("202", "The run, which ends soon", "application/json")}
_LAST = "run_~"  # above every id
_POLL_SECONDS = 0.25
_MISSING = "Give it in `inputs`, in the body."
_MISSING_BESIDE_SPEC = "Give it in `inputs`: beside `spec` in a JSON body, in the query with a YAML body."


class RunRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._runs = service.runs
        self._database = service.database

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", "/v1/runs", self.post_inline, "run:adhoc", "Check a program and run it", _INLINE),
            Endpoint(
                "POST", "/v1/programs/{reference}/runs", self.post_stored, "runs:write", "Run a stored program", _STORED
            ),
            Endpoint("GET", "/v1/runs", self.get_page, "runs:read", "Runs, newest first", _PAGE),
            Endpoint("GET", "/v1/runs/{run}", self.get_run, "runs:read", "The state of a run"),
            Endpoint(
                "GET", "/v1/runs/{run}/result", self.get_result, "runs:read", "The result of a run that has ended"
            ),
            Endpoint("GET", "/v1/runs/{run}/trace", self.get_trace, "runs:read", "The tokens of a run"),
            Endpoint("GET", "/v1/runs/{run}/events", self.get_events, "runs:read", "The events of a run", _EVENTS),
            Endpoint("POST", "/v1/runs/{run}/cancel", self.post_cancel, "runs:write", "Ask a run to end", _CANCEL),
        ]

    # -- starting ------------------------------------------------------------------------------------------------

    async def post_inline(self, request: Request) -> Response:
        raw = await receive_body(request)
        ask = asked(request, raw)
        with self._service.slots.entry():
            try:
                posted = await self._service.programs.beside(partial(read_posted, raw))
            except SpecError as error:
                raise Problem(422, "invalid-program", errors=error.diagnostics) from None
            checked, diagnostics = await self._service.programs.posted(posted.source, posted.files)
            if checked is None:
                raise Problem(422, "invalid-program", errors=[d for d in diagnostics if d.severity == "error"])
            run, replayed = await self._create(request, ask, checked, posted.settings)
        return await self._answer(request, ask, run, replayed)

    async def post_stored(self, request: Request) -> Response:
        raw = await receive_body(request, ("application/json",), optional=True)
        ask = asked(request, raw)
        with self._service.slots.entry():
            settings = await self._service.programs.beside(partial(read_settings, raw))
            checked = await self._service.programs.load(request.path_params["reference"])
            run, replayed = await self._create(request, ask, checked, settings)
        return await self._answer(request, ask, run, replayed)

    async def _create(self, request: Request, ask: Asked, checked: Checked, settings: Settings) -> tuple[str, bool]:
        inputs, problems = bind_inputs(checked.program.spec, settings.inputs)
        help = _MISSING if "reference" in request.path_params else _MISSING_BESIDE_SPEC
        if errors := [_for_clients(problem, help) for problem in problems if problem.severity == "error"]:
            raise Problem(422, "invalid-inputs", errors=errors)
        await self._service.backend.get()
        seed = random_seed() if settings.seed is None else settings.seed
        # who sends a key means to ask again when the connection breaks
        detach = settings.detach if settings.detach is not None else ask.view == "async" or ask.once is not None
        order = Order(checked, inputs, seed, settings.trace, ask.view, detach, ask.deadline, principal(request))
        with self._service.running.place(grant_of(request)) as place:
            try:
                run, replayed = await self._runs.create(order, ask.once)
            except OtherRequest:
                raise Problem(422, "idempotency-mismatch") from None
            if not replayed and (live := self._runs.find(run)) is not None:
                place.keep(live.task)
        return run, replayed

    async def _answer(self, request: Request, ask: Asked, run: str, replayed: bool) -> Response:
        live = self._runs.find(run)
        headers = {"Location": f"/v1/runs/{run}"}
        if replayed:
            headers["Idempotency-Replayed"] = "true"
        if ask.view == "stream":
            events = follow(self._database, run, live, self._service.ending)
            return EventStream(events, live, self._service.limits.ping_seconds, headers)
        if ask.view == "async":
            await self._wait(request, run, live, ask.wait or 0.0)
            headers["Preference-Applied"] = "respond-async" if not ask.wait else f"wait={ask.wait:g}"
            row = await self._runs.row(run)
            if not ask.wait or not row.ended_already:
                return reply(run_face(row), 202, headers)
        elif live is not None:
            with live.watched():
                await self._wait(request, run, live, None)
        else:
            await self._wait(request, run, None, None)
        return await self._result(run, live, headers)

    async def _wait(self, request: Request, run: str, live: LiveRun | None, seconds: float | None) -> None:
        """Until the run has ended, the time is over or the client has left, whichever is first."""
        if seconds == 0.0:
            return
        ended = live.task if live is not None else asyncio.create_task(self._ended(run))
        gone = asyncio.create_task(client_gone(request.receive))
        leaving = asyncio.create_task(self._service.ending.wait())
        waiting = {ended, gone, leaving} if live is None or live.waits_for_nobody else {ended, gone}
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            leaving.cancel()
            if live is None:
                ended.cancel()

    async def _ended(self, run: str) -> None:
        """A run that lives in another process."""
        while not (await self._runs.row(run)).ended_already:  # noqa: ASYNC110 - no event comes from over there
            await asyncio.sleep(_POLL_SECONDS)

    async def _result(self, run: str, live: LiveRun | None, headers: dict[str, str] | None = None) -> Response:
        if live is not None and (outcome := live.outcome) is not None:
            if outcome.fault is not None:
                raise Problem(500, "internal")  # the log has it already
            return reply_text(outcome.result, headers=headers)
        result = await self._database.read(partial(table.result, run=run))
        if result is None:
            row = await self._runs.row(run)
            if not row.ended_already:
                raise Problem(409, "not-ended", "The run has not ended yet: ask again, or follow its events.")
            return reply({"run_id": run, "status": row.state, "outputs": {}, "error": run_face(row)["error"]})
        return reply_text(result, headers=headers)

    # -- asking --------------------------------------------------------------------------------------------------

    async def get_page(self, request: Request) -> Response:
        limit, below = cursor(request, _LAST, RUN_ID)
        states = cast(
            "list[State]", [state for text in request.query_params.getlist("status") for state in text.split(",")]
        )
        if any(state not in STATES for state in states):
            raise Problem(400, "invalid-request", f"`status` is one of {', '.join(STATES)}.")
        program = request.query_params.get("program")
        if program is not None and not NAME.fullmatch(program):
            raise Problem(400, "invalid-request", "`program` is the name of a stored program.")
        grant = grant_of(request)
        mine = None if grant.may("admin") else grant.owner
        job = partial(table.page, below=below, limit=limit + 1, states=states, program=program, principal=mine)
        rows = await self._database.read(job)
        return reply(
            {"data": [run_face(row) for row in rows[:limit]], "next": rows[limit - 1].id if len(rows) > limit else None}
        )

    async def get_run(self, request: Request) -> Response:
        row = await self._row(request)
        seen = request.headers.get("if-none-match")
        if not row.ended_already and (seconds := waits(request)):
            await self._wait(request, row.id, self._runs.find(row.id), seconds)
            row = await self._runs.row(row.id)
        headers = {"ETag": f'"{row.state}"'}
        if seen == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return reply(run_face(row), headers=headers)

    async def get_result(self, request: Request) -> Response:
        row = await self._row(request)
        if not row.ended_already and (seconds := waits(request)):
            await self._wait(request, row.id, self._runs.find(row.id), seconds)
        return await self._result(row.id, None)

    async def get_trace(self, request: Request) -> Response:
        row = await self._row(request)
        trace = await self._database.read(partial(table.trace, run=row.id))
        if trace is None:
            if not row.ended_already:
                raise Problem(409, "not-ended", "The run has not ended yet: ask again, or follow its events.")
            raise Problem(404, "no-trace", 'Tokens are kept of runs that were posted with "trace": true.')
        head = {"run_id": row.id, "program": row.program, "seed": run_face(row)["seed"], "status": row.state}
        return reply_text(_joined(head, trace))

    async def get_events(self, request: Request) -> Response:
        row = await self._row(request)
        live = self._runs.find(row.id)
        after = whole(request, "after", -1, 2**53)
        if "after" in request.query_params:
            frames = live.feed.after(after) if live is not None else None
            frames = await stored(self._database, row.id, after) if frames is None else frames
            events = b",".join(frame.data for frame in frames)
            last = frames[-1].seq if frames else after
            return reply_text(b'{"data":[%s],"next":%d,"status":"%s"}' % (events, last, row.state.encode()))
        seen = request.headers.get("last-event-id", "")
        if seen:
            if not (seen.isascii() and seen.isdigit() and len(seen) <= 15):
                raise Problem(400, "invalid-request", "`Last-Event-ID` is the number of an event.")
            after = int(seen)
        events = follow(self._database, row.id, live, self._service.ending, after)
        return EventStream(events, live, self._service.limits.ping_seconds)

    async def post_cancel(self, request: Request) -> Response:
        await receive_body(request, ("application/json",), optional=True)
        row = await self._row(request)
        if not row.ended_already:
            await self._runs.cancel(row.id)
            row = await self._runs.row(row.id)
        return reply(run_face(row), 202)

    async def _row(self, request: Request) -> RunRow:
        run = request.path_params["run"]
        if not RUN_ID.fullmatch(run):
            raise Problem(404, "not-found", "There is no such run.")
        row = await self._runs.row(run)
        if not grant_of(request).sees(row.principal):
            raise Problem(404, "not-found", "There is no such run.")
        return row


def random_seed() -> int:
    """A seed that every reader of JSON gives back exactly: what an answer reports can be posted again."""
    return secrets.randbits(53)


def _joined(head: dict[str, Any], rest: str) -> bytes:
    """Two JSON objects as one; the second is written already."""
    return to_json(head)[:-1] + b"," + rest.encode()[1:]


def _for_clients(item: Diagnostic, help: str) -> Diagnostic:
    """The help of a missing input speaks of the command line; here it is the request."""
    return replace(item, help=help) if item.code == "S402" else item


__all__ = ["RunRoutes", "random_seed"]

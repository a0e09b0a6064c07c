"""Programs: posting them, their versions and aliases."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from sglspec.diagnostics import SpecError
from sglspec.diagnostics.record import MAX_REPORTED
from sglspec.server import openapi
from sglspec.server.body import read_alias, read_program, receive_body
from sglspec.server.endpoints import Endpoint, reply
from sglspec.server.faces import alias_face, version_face
from sglspec.server.problems import Problem, faces
from sglspec.server.programs import Checked
from sglspec.server.queries import MOST, cursor, flag, whole
from sglspec.server.routes_checks import CHECK_BYTES
from sglspec.server.service import Service
from sglspec.server.storage import programs as table
from sglspec.server.storage.programs import NAME, Conflict

_PROGRAM = {"type": "object", "required": ["sglspec"]}
_POST = {
    "parameters": [openapi.query("name", {"type": "string"}), openapi.query("dry_run", {"type": "boolean"})],
    "requestBody": {
        "required": True,
        "content": openapi.content("application/yaml", schema={"type": "string"})
        | openapi.content("application/json", schema={"anyOf": [openapi.ref("Bundle"), _PROGRAM]}),
    },
    "responses": openapi.answers("200", "Its version, or what the check says", "application/json")
    | openapi.answers("201", "Its new version", "application/json"),
}
_PAGE = {"parameters": list(openapi.PAGE)}
_PROGRAMS = {"parameters": [openapi.query("archived", {"type": "boolean"}), *openapi.PAGE]}
_GONE = {"responses": openapi.answers("204", "Done")}
_SOURCE = {"responses": openapi.answers("200", "The text", "application/yaml", "application/json")}
_BUNDLE = {
    "responses": {
        "200": {
            "description": "A body for `POST /v1/programs`",
            "content": openapi.content("application/json", schema=openapi.ref("Bundle")),
        },
        "default": openapi.problem(),
    }
}
_PUT = {
    "requestBody": {
        "required": True,
        "content": openapi.content("application/json", schema=openapi.ref("AliasTarget")),
    }
}
_SOURCE_TYPES = {"yaml": "application/yaml; charset=utf-8", "json": "application/json"}


class ProgramRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._programs = service.programs
        self._database = service.database

    def endpoints(self) -> list[Endpoint]:
        one, alias = "/v1/programs/{reference}", "/v1/programs/{reference}/aliases/{alias}"
        return [
            Endpoint(
                "POST", "/v1/programs", self.post_program, "programs:write", "Store a program, or a new version", _POST
            ),
            Endpoint("GET", "/v1/programs", self.get_page, "programs:read", "Programs by name", _PROGRAMS),
            Endpoint(
                "GET", one, self.get_program, "programs:read", "A program: its version, and the names of its inputs"
            ),
            Endpoint(
                "DELETE", one, self.delete_program, "programs:write", "Archive a program: it takes no more runs", _GONE
            ),
            Endpoint(
                "GET",
                one + "/source",
                self.get_source,
                "programs:read",
                "The text of a version, byte for byte",
                _SOURCE,
            ),
            Endpoint(
                "GET",
                one + "/bundle",
                self.get_bundle,
                "programs:read",
                "The text of a version with the files that it uses",
                _BUNDLE,
            ),
            Endpoint("GET", one + "/openapi.json", self.get_openapi, "programs:read", "The API of one program"),
            Endpoint(
                "GET", one + "/input.schema.json", self.get_inputs, "programs:read", "A JSON Schema of its inputs"
            ),
            Endpoint(
                "GET", one + "/output.schema.json", self.get_outputs, "programs:read", "A JSON Schema of its outputs"
            ),
            Endpoint("GET", one + "/versions", self.get_versions, "programs:read", "The versions, newest first", _PAGE),
            Endpoint("GET", one + "/versions/{version}", self.get_version, "programs:read", "One version"),
            Endpoint("GET", one + "/aliases", self.get_aliases, "programs:read", "The aliases of a program"),
            Endpoint("GET", alias, self.get_alias, "programs:read", "An alias"),
            Endpoint("PUT", alias, self.put_alias, "programs:write", "Point an alias at a version", _PUT),
            Endpoint("DELETE", alias, self.delete_alias, "programs:write", "Remove an alias", _GONE),
        ]

    async def post_program(self, request: Request) -> Response:
        """201 for a new version, 200 for the text of an old one; with `dry_run=true` only the check."""
        raw = await receive_body(request)
        dry = flag(request, "dry_run")
        given = request.query_params.get("name")
        if given is not None and not NAME.fullmatch(given):
            raise Problem(400, "invalid-request", _NAME_RULE)
        with self._service.slots.entry():
            try:
                source, document = await self._programs.beside(partial(read_program, raw))
            except SpecError as error:
                raise Problem(422, "invalid-program", errors=error.diagnostics) from None
            checked, diagnostics = await self._programs.check(source, document)
        shown, omitted = faces(diagnostics, MAX_REPORTED, CHECK_BYTES)
        name = given or (None if checked is None else checked.program.spec.name)
        if dry:
            digest = (document if checked is None else checked.document).digest
            face = {"ok": checked is not None, "name": name, "digest": digest}
            return reply(face | {"diagnostics": shown, "omitted": omitted})
        if checked is None:
            raise Problem(422, "invalid-program", errors=[d for d in diagnostics if d.severity == "error"])
        if name is None:
            raise Problem(422, "no-name", "Write `name:` into the program, or add `?name=` to the address.")
        version, new = await self._database.write(partial(table.save, name=name, document=checked.document))
        here = f"/v1/programs/{name}/versions/{version.version}"
        face = version_face(version) | {"diagnostics": shown, "omitted": omitted}
        return reply(face, 201 if new else 200, {"Location": here})

    async def get_page(self, request: Request) -> Response:
        limit, after = cursor(request, "", NAME)
        archived = flag(request, "archived")
        job = partial(table.latest, after=after, limit=limit + 1, archived=archived)
        rows = await self._database.read(job)
        next = rows[limit - 1].name if len(rows) > limit else None
        return reply({"data": [version_face(row) for row in rows[:limit]], "next": next})

    async def get_program(self, request: Request) -> Response:
        version = await self._programs.resolve(request.path_params["reference"])
        checked = await self._programs.stored(version.digest, version.name, version.version)
        spec = checked.program.spec
        face = version_face(version) | {
            "description": None if spec.description is None else str(spec.description),
            "inputs": list(spec.inputs),
            "files": list(checked.document.files),
        }
        return reply(face, headers={"ETag": f'"{version.digest}"'})

    async def delete_program(self, request: Request) -> Response:
        name = _name(request)
        if not await self._database.write(partial(table.archive, name=name)):
            raise Problem(404, "not-found", "There is no such program.")
        return Response(status_code=204)

    async def get_source(self, request: Request) -> Response:
        version = await self._programs.resolve(request.path_params["reference"])
        document = await self._programs.document(version.digest)
        headers = {"ETag": f'"{version.digest}"', "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return Response(document.source, headers=headers, media_type=_SOURCE_TYPES[document.format])

    async def get_bundle(self, request: Request) -> Response:
        version = await self._programs.resolve(request.path_params["reference"])
        document = await self._programs.document(version.digest)
        bundle = {"spec": document.source.decode("utf-8", "surrogatepass"), "files": document.files}
        return reply(bundle, headers={"ETag": f'"{version.digest}"'})

    async def get_openapi(self, request: Request) -> Response:
        return reply(openapi.program_document(await self._checked(request)))

    async def get_inputs(self, request: Request) -> Response:
        return reply(openapi.schemas_of(await self._checked(request))[0])

    async def get_outputs(self, request: Request) -> Response:
        return reply(openapi.schemas_of(await self._checked(request))[1])

    async def _checked(self, request: Request) -> Checked:
        version = await self._programs.resolve(request.path_params["reference"])
        return await self._programs.stored(version.digest, version.name, version.version)

    async def get_versions(self, request: Request) -> Response:
        name = (await self._programs.resolve(_name(request))).name
        limit = whole(request, "limit", 1, MOST, 20)
        below = whole(request, "after", 0, 2**31 - 1, 2**31 - 1)
        job = partial(table.history, name=name, below=below, limit=limit + 1)
        rows = await self._database.read(job)
        next = str(rows[limit - 1].version) if len(rows) > limit else None
        return reply({"data": [version_face(row) for row in rows[:limit]], "next": next})

    async def get_version(self, request: Request) -> Response:
        version = await self._programs.resolve(f"{_name(request)}@{request.path_params['version']}")
        return reply(version_face(version), headers={"ETag": f'"{version.digest}"'})

    # -- aliases -------------------------------------------------------------------------------------------------

    async def get_aliases(self, request: Request) -> Response:
        name = (await self._programs.resolve(_name(request))).name
        found = await self._database.read(partial(table.aliases_of, name=name))
        return reply({"data": [alias_face(alias) for alias in found]})

    async def get_alias(self, request: Request) -> Response:
        name, alias = _name(request), _alias(request)
        found = await self._database.read(partial(table.alias, name=name, alias=alias))
        if found is None:
            raise Problem(404, "not-found", "There is no such alias.")
        return reply(alias_face(found), headers={"ETag": f'"{found.revision}"'})

    async def put_alias(self, request: Request) -> Response:
        """`If-Match` with the ETag that was seen, or `*`; `If-None-Match: *` for a new alias only."""
        raw = await receive_body(request, ("application/json",))
        alias = _alias(request)
        if alias == "latest":
            raise Problem(400, "invalid-request", "`latest` is no alias: a name alone means the latest version.")
        wanted = await self._programs.beside(partial(read_alias, raw))
        version = await self._programs.resolve(f"{_name(request)}@{wanted}")
        condition = _condition(request)
        job = partial(table.move_alias, name=version.name, alias=alias, version=version.version, condition=condition)
        try:
            moved = await self._database.write(job)
        except Conflict:
            raise Problem(412, "changed", "The alias is not what `If-Match` says: look at it again.") from None
        return reply(alias_face(moved), headers={"ETag": f'"{moved.revision}"'})

    async def delete_alias(self, request: Request) -> Response:
        name, alias = _name(request), _alias(request)
        if not await self._database.write(partial(table.drop_alias, name=name, alias=alias)):
            raise Problem(404, "not-found", "There is no such alias.")
        return Response(status_code=204)


_NAME_RULE = "A name has 1 to 63 characters: a-z, 0-9 and -, a letter first."


def _name(request: Request) -> str:
    """Where a version would mean nothing."""
    name = request.path_params["reference"]
    if not NAME.fullmatch(name):
        raise Problem(404, "not-found", "There is no such program.")
    return name


def _alias(request: Request) -> str:
    alias = request.path_params["alias"]
    if not NAME.fullmatch(alias):
        raise Problem(404, "not-found", f"There is no such alias. {_NAME_RULE}")
    return alias


def _condition(request: Request) -> table.Condition:
    if request.headers.get("if-none-match") == "*":
        return "new"
    header = request.headers.get("if-match")
    if header is None or header == "*":
        return None if header is None else "old"
    text = header.strip('"')
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Problem(412, "changed", "The alias is not what `If-Match` says: look at it again.")
    return int(text)


__all__ = ["ProgramRoutes"]

"""The page at `/`: files of the package, and nothing from anywhere else."""

from __future__ import annotations

from functools import partial
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from sglspec.server.endpoints import Endpoint

_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "form.js": "text/javascript; charset=utf-8",
    "view.js": "text/javascript; charset=utf-8",
}
_HEADERS = {
    # scripts and styles are ours or none; nothing is sent anywhere else; no other site shows the page in a frame
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class PageRoutes:
    """The page asks for a key itself and holds it in memory; its own files are no secret."""

    def endpoints(self) -> list[Endpoint]:
        page = Endpoint("GET", "/", partial(self.get, name="index.html"), "public", "A page to try programs", _HTML)
        parts = [name for name in _TYPES if name != "index.html"]
        return [
            page,
            *(Endpoint("GET", f"/page/{name}", partial(self.get, name=name), "public", name, _FILE) for name in parts),
        ]

    async def get(self, request: Request, name: str) -> Response:
        data = files("sglspec.server").joinpath("page", name).read_bytes()
        return Response(data, headers=_HEADERS | {"Content-Type": _TYPES[name]})


_HTML = {"responses": {"200": {"description": "The page", "content": {"text/html": {"schema": {"type": "string"}}}}}}
_FILE = {"responses": {"200": {"description": "A file of the page"}}}

__all__ = ["PageRoutes"]

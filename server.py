"""ASGI entry point of a checkout: `uvicorn server:app`. Installed, the same app is `sglspec.server:app`."""

from sglspec.server import app

__all__ = ["app"]

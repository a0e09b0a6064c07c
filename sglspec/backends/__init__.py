"""Where programs run. `open_backend` is the one place that picks an implementation, and it imports it lazily."""

from __future__ import annotations

from pathlib import Path

from sglspec.backends.base import Backend, EngineError
from sglspec.diagnostics import Diagnostic, SpecError

DEFAULT_MODEL = "smollm2-135m-instruct"


async def open_backend(reference: str | None = None, model: str | None = None) -> Backend:
    """Open a backend.

    reference: "local" (the default), or "scripted:FILE" with a YAML or JSON file of replies by variable or step id.
    model: for "local", a name that `sglspec models ls` shows or a Hugging Face folder. Raises SpecError (S601, S602,
    S605, S607, S608).
    """
    kind, _, rest = (reference or "local").partition(":")
    if kind == "local" and not rest:
        from sglspec.backends.local import open_local
        from sglspec.models import resolve

        try:
            return await open_local(resolve(model or DEFAULT_MODEL))
        except EngineError as problem:
            raise SpecError(Diagnostic("S605", str(problem))) from None
    if kind == "scripted":
        from sglspec.backends.scripted import ScriptedBackend, read_replies

        return ScriptedBackend(read_replies(Path(rest)) if rest else {})
    message = f"there is no backend `{reference}`"
    raise SpecError(Diagnostic("S601", message, help="Known: `local`, `scripted:FILE`."))


__all__ = ["DEFAULT_MODEL", "Backend", "open_backend"]

"""Where programs run. `open_backend` is the one place that picks an implementation, and it imports it lazily."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglspec.backends.base import Backend, EngineError
from sglspec.backends.switches import engine_settings
from sglspec.diagnostics import Diagnostic, SpecError, sentence

if TYPE_CHECKING:
    from sglspec.backends.markup import Markup
    from sglspec.backends.rendering import RenderingBackend

DEFAULT_MODEL = "smollm2-135m-instruct"


async def open_backend(
    reference: str | None = None, model: str | None = None, engine: Mapping[str, object] | None = None
) -> Backend:
    """Open a backend.

    reference: "local" (the default), or "scripted:FILE" with a YAML or JSON file of replies by variable or step id.
    model: for "local", a name that `sglspec models ls` shows or a Hugging Face folder.
    engine: for "local", settings of the engine by name, as `switches.engine_settings` takes them.

    Raises SpecError and nothing else that is not a fault of ours: S601, S602, S603, S604, S605, S607, S608, S610, and
    for the file of replies what reading a document says.
    """
    settings = check_engine(reference, engine or {})
    kind, _, rest = (reference or "local").partition(":")
    if kind == "local" and not rest:
        return await _open_local(model or DEFAULT_MODEL, settings)
    if kind == "scripted":
        from sglspec.backends.scripted import ScriptedBackend, read_replies

        return ScriptedBackend(read_replies(Path(rest)) if rest else {})
    message = f"There is no backend `{reference}`."
    raise SpecError(Diagnostic("S601", message, help="Known: `local`, `scripted:FILE`."))


def check_engine(reference: str | None, engine: Mapping[str, object]) -> dict[str, Any]:
    """The engine's settings, read. Raises SpecError (S610) for what the engine does not take, and for any setting
    where the backend has no engine."""
    settings = engine_settings(engine)
    kind = (reference or "local").partition(":")[0]
    if settings and kind != "local":
        message = f"The backend `{kind}` has no engine, so there is nothing to set in it."
        raise SpecError(
            Diagnostic("S610", message, help="Leave the engine's settings out, or take the backend `local`.")
        )
    return settings


async def report_engine(model: str | None, engine: Mapping[str, object]) -> tuple[str, ...]:
    """What the local engine makes of this machine, these settings, and a model if one is given: lines
    `name=value: reason`. Raises SpecError as `open_backend` does."""
    settings = engine_settings(engine)
    with _as_diagnostics(model):
        from sglspec.backends.local import report_local
        from sglspec.models import resolve

        return await report_local(None if model is None else resolve(model), **settings)


def open_rendering(replies: Path | None = None, model: str | None = None) -> RenderingBackend:
    """A backend that records what a model would see. model: whose chat template and tokenizer to take; weights are
    not read. Raises SpecError as `open_backend` does."""
    from sglspec.backends.rendering import RenderingBackend
    from sglspec.backends.scripted import read_replies

    known = read_replies(replies) if replies is not None else {}
    return RenderingBackend(known, None if model is None else open_markup(model))


def open_markup(model: str) -> Markup:
    """A model's chat template and tokenizer; weights are not read. Raises SpecError as `open_backend` does."""
    with _as_diagnostics(model):
        from sglspec.backends.local import ModelMarkup
        from sglspec.models import resolve

        return ModelMarkup.load(resolve(model))


async def _open_local(model: str, settings: dict[str, Any]) -> Backend:
    with _as_diagnostics(model):
        from sglspec.backends.local import open_local
        from sglspec.models import resolve

        return await open_local(resolve(model), **settings)


@contextmanager
def _as_diagnostics(model: str | None) -> Generator[None, None, None]:
    """What can go wrong with the local engine, as SpecError."""
    try:
        yield
    except EngineError as problem:
        code = {"template": "S603", "no_template": "S604"}.get(problem.kind, "S605")
        raise SpecError(Diagnostic(code, sentence(str(problem)))) from None
    except ImportError as problem:
        if problem.name is not None and problem.name.startswith("sglspec"):
            raise
        raise SpecError(_missing(problem)) from None
    except OSError as problem:
        message = f"The model `{model}` cannot be read: {problem.strerror or problem}"
        raise SpecError(Diagnostic("S608", sentence(message))) from None


def _missing(problem: ImportError) -> Diagnostic:
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        message = f"The local engine needs the package `{problem.name}`, which is not installed."
    else:
        message = sentence(f"A package that the local engine needs cannot be loaded: {problem}")
    return Diagnostic("S607", message, help="Run `pip install 'sglspec[local]'`.")


__all__ = ["DEFAULT_MODEL", "Backend", "check_engine", "open_backend", "open_markup", "open_rendering", "report_engine"]

"""Language-model programs as YAML or JSON documents. Importing the package itself does no work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglspec.api import Model, Piece, Program, Stream, SyncStream, arun, batch, check, load, run, stream
    from sglspec.batches import Measured, Metrics, RowResult
    from sglspec.diagnostics import Diagnostic, SpecError
    from sglspec.runtime.events import Event
    from sglspec.runtime.result import Result

    __version__: str

_HOMES = {
    "sglspec.api": (
        "Model", "Piece", "Program", "Stream", "SyncStream", "arun", "batch", "check", "load", "run", "stream",
    ),
    "sglspec.batches": ("Measured", "Metrics", "RowResult"),
    "sglspec.diagnostics": ("Diagnostic", "SpecError"),
    "sglspec.runtime.events": ("Event",),
    "sglspec.runtime.result": ("Result",),
}  # fmt: skip

__all__ = [
    "Diagnostic", "Event", "Measured", "Metrics", "Model", "Piece", "Program", "Result", "RowResult", "SpecError",
    "Stream", "SyncStream", "__version__", "arun", "batch", "check", "load", "run", "stream",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Names are looked up when they are asked for: the command line loads none of them, and reading the version from
    the package's metadata takes longer than the rest."""
    from importlib import import_module

    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sglspec")
    except PackageNotFoundError:  # a source tree on the path, not installed
        return "0+source"

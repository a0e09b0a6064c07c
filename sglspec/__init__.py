"""Language-model programs as YAML or JSON documents. Importing the package itself does no work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """`__version__` is looked up when it is asked for: reading package metadata takes longer than the rest."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sglspec")
    except PackageNotFoundError:  # a source tree on the path, not installed
        return "0+source"

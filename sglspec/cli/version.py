"""`sglspec version`."""

from __future__ import annotations

from typing import Annotated

import typer

from sglspec.cli.streams import put, to_json

_PARTS = ("torch", "transformers", "tokenizers", "llguidance")


def version(
    json: Annotated[
        bool, typer.Option("--json", help="As one JSON object, with the packages that runs depend on.")
    ] = False,
) -> None:
    """Print the version."""
    from sglspec import __version__

    if not json:
        put(f"sglspec {__version__}")
        return
    import platform

    from sglspec.document.model import LANGUAGE_VERSION

    put(
        to_json(
            {
                "sglspec": __version__,
                "language": LANGUAGE_VERSION,
                "python": platform.python_version(),
                "packages": packages(),
            }
        )
    )


def packages() -> dict[str, str | None]:
    """The packages that runs depend on, and which version is installed, None for none."""
    return {name: _installed(name) for name in _PARTS}


def _installed(name: str) -> str | None:
    """A package's version from its metadata; importing torch to ask it would take seconds."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None

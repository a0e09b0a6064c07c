"""`sglspec schema`."""

from __future__ import annotations

from sglspec.cli.streams import put


def schema() -> None:
    """Print the JSON Schema of documents, for editors."""
    from sglspec.document.schema import schema_text

    put(schema_text())

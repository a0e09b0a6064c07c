"""The long text behind a code: one page per code in `pages/`."""

from __future__ import annotations

from importlib.resources import files

from sglspec.diagnostics.codes import CODES


def explain(code: str) -> str | None:
    """The page of a code (`S201`, `s201`) or of its slug (`unknown-key`); None if there is no such code."""
    found = find_code(code)
    if found is None:
        return None
    return files("sglspec.diagnostics").joinpath("pages", f"{found}.md").read_text(encoding="utf-8")


def find_code(word: str) -> str | None:
    """The code that a code or a slug names, in any case."""
    wanted = word.strip()
    if wanted.upper() in CODES:
        return wanted.upper()
    return next((code for code, row in CODES.items() if row.slug == wanted.lower()), None)

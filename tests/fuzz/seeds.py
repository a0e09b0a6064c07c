"""Documents to start from: everything in the repository that is a document, or holds some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sglspec.diagnostics import Report
from sglspec.document.nodes import to_python
from sglspec.document.read import parse, read_source

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("examples", "specs", "tests/wrong", "tests/analysis")
HEAD = "sglspec: v1\nsteps:\n"


@dataclass(frozen=True, slots=True)
class Seed:
    """A document's text, and where it is from."""

    name: str
    text: str
    format: Literal["yaml", "json"] = "yaml"


@cache
def seeds() -> tuple[Seed, ...]:
    """All of them, the same order everywhere."""
    return (*_files(), *_tables())


def _files() -> Iterator[Seed]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".yaml", ".json"):
                name = path.relative_to(ROOT).as_posix()
                yield Seed(name, path.read_text("utf-8"), "json" if path.suffix == ".json" else "yaml")


def _tables() -> Iterator[Seed]:
    """The programs in the tables of tests."""
    for path in sorted((ROOT / "tests/rules").glob("*.yaml")):
        for number, case in enumerate(_table(path)):
            text = case["program"] if "program" in case else HEAD + case["steps"]
            yield Seed(f"{path.name}#{number}", text)
    for name in ("accepted", "faults"):
        path = ROOT / "tests/editor" / f"{name}.yaml"
        for number, case in enumerate(_table(path)):
            text = case["text"]
            yield Seed(f"{path.name}#{number}", text, "json" if text.lstrip().startswith("{") else "yaml")


def _table(path: Path) -> list[dict[str, Any]]:
    node = parse(read_source(path), Report())
    assert node is not None, path
    return to_python(node)

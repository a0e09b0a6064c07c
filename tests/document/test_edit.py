"""`fmt`: the layout of documents. What must hold for every document, and what it does to a few."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from sglspec.diagnostics import Report
from sglspec.document.edit import Edit, edited, format_source, same
from sglspec.document.nodes import Node, Source, to_python
from sglspec.document.read import parse, source_from_text

from .untidy import Untidy, tree

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("examples", "specs", "tests/rules", "tests/wrong", "tests/editor", "tests/corpus")
DOCUMENTS = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".yaml", ".yml", ".json") and "package" not in path.name
]


def fmt(text: str, name: str = "t.yaml") -> str:
    report = Report()
    formatted = format_source(source_from_text(text, name), report)
    assert formatted is not None, report.sorted()
    return formatted


def read(source: Source) -> Node:
    node = parse(source, Report())
    assert node is not None
    return node


def comments(text: str) -> Counter[str]:
    return Counter(match.rstrip() for match in re.findall(r"#[ !]?c\d+", text))


def test_there_are_documents():
    assert len(DOCUMENTS) > 90


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_our_documents(path: Path):
    source = source_from_text(path.read_bytes(), path.name)
    report = Report()
    text = format_source(source, report)
    if text is None:
        assert report.has_errors
        return
    assert not report.has_errors
    assert same(read(source), read(source_from_text(text, path.name)))
    assert fmt(text, path.name) == text


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if "examples" in path.parts], ids=lambda path: path.name)
def test_examples_are_formatted(path: Path):
    text = path.read_text("utf-8")
    assert fmt(text, path.name) == text


@pytest.mark.parametrize("block", range(10))
def test_untidy_documents(block: int):
    """Same values, same comments, and once is enough."""
    readable = 0
    for seed in range(100 * block, 100 * block + 100):
        random = Random(seed)
        source = source_from_text(Untidy(random).document(tree(random)), "t.yaml")
        if parse(source, Report()) is None:
            continue
        readable += 1
        once = fmt(source.text)
        assert same(read(source), read(source_from_text(once, "t.yaml"))), seed
        assert comments(once) == comments(source.text), seed
        assert fmt(once) == once, seed
        assert fmt(source.text.replace("\n", "\r\n")) == once.replace("\n", "\r\n"), seed
    assert readable > 90

"""`fmt` over what others wrote: schemas of the corpora, each as the `schema` of a program, in four layouts.

Skipped where the corpora are not there (SGLSPEC_CORPORA).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import yaml

from benchmarks.corpora import Case, corpora, maskbench, official
from sglspec.diagnostics import Report
from sglspec.document.edit import format_source
from sglspec.document.load import load_document
from sglspec.document.read import parse, source_from_text
from tests.document.test_edit import comments
from tests.document.untidy import Untidy
from tests.fuzz.pipeline import said


def written(case: Case) -> Iterator[tuple[str, str]]:
    """The program as texts, with names for them."""
    tree = {"sglspec": "v1", "steps": [{"gen": "x", "schema": case.schema}]}
    yield json.dumps(tree, ensure_ascii=False), "t.json"
    yield json.dumps(tree, indent=3), "t.json"
    yield yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=60), "t.yaml"
    yield Untidy(Random(case.name)).document(tree), "t.yaml"


@pytest.mark.parametrize(("read", "every"), [(maskbench, 80), (official, 50)])
def test_schemas_of_others(read: Callable[[Path, int], Iterator[Case]], every: int) -> None:
    folder = corpora()
    if folder is None:
        pytest.skip("SGLSPEC_CORPORA names no folder with the corpora")
    laid_out = 0
    for case in read(folder, every):
        for text, name in written(case):
            laid_out += check(text, name)
    assert laid_out >= 60


def check(text: str, name: str) -> bool:
    """Whether the document can be read. Raises AssertionError when `fmt` breaks a promise."""
    source = source_from_text(text, name)
    if parse(source, Report()) is None:
        return False
    once = format_source(source, Report())
    assert once is not None
    result = source_from_text(once, name)
    assert format_source(result, Report()) == once
    assert comments(once) == comments(text)
    before, after = load_document(source, Report()), load_document(result, Report())
    assert before is not None and after is not None
    assert said(before.spec) == said(after.spec)
    return True

"""A share of the corpora of JSON Schemas; benchmarks/constraints.py reads them whole. Skipped where they are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.constraints import examine
from benchmarks.corpora import Case, corpora, maskbench, official


@pytest.mark.parametrize(("read", "every", "least"), [(maskbench, 61, 0.6), (official, 31, 0.4)])
def test_what_we_take_is_enforced(read: Callable[[Path, int], Iterator[Case]], every: int, least: float) -> None:
    folder = corpora()
    if folder is None:
        pytest.skip("SGLSPEC_CORPORA names no folder with the corpora")
    found = examine(read(folder, every))
    assert found.wrong == []
    assert found.taken > least * found.schemas
    assert len(found.missed) < 0.1 * found.valid
    assert all(keyword or code == "S505" for _, code, keyword, _ in found.refused), found.refused

"""Five thousand mutated documents; `make fuzz` takes more."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.mutate import TEXT
from tests.fuzz.pipeline import OUTCOMES
from tests.fuzz.run import document, fuzz
from tests.fuzz.seeds import seeds

DOCUMENTS, BLOCKS = 5_000, 20
PATIENCE = 60.0
"""Seconds of processor time for one document: only for one that would never be done."""


@pytest.mark.parametrize("block", range(BLOCKS))
def test_mutated_documents(block: int) -> None:
    found = fuzz(range(block, DOCUMENTS, BLOCKS), seed=0, patience=PATIENCE)
    assert found.faults == {}
    assert all(found.outcomes[outcome] > 10 for outcome in OUTCOMES)


def test_a_number_is_always_the_same_document() -> None:
    assert [document(7, number) for number in range(50)] == [document(7, number) for number in range(50)]
    assert len({document(7, number)[0] for number in range(50)}) > 45


def test_there_is_enough_to_start_from() -> None:
    assert len(seeds()) > 300
    text = next(seed.text for seed in seeds() if "04-essay" in seed.name)
    for mutate in TEXT:
        assert any(mutate(Random(number), text) != text for number in range(5)), mutate

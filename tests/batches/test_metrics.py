"""Metrics over rows."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sglspec
from sglspec.batches.metrics import same

Row = tuple[Any, Any, str]


def measured(rows: list[Row], *metrics: str, order: int = 0, **options: Any) -> list[sglspec.Measured]:
    """rows: output `a`, column `gold`, column `group`; an output that is None is that of a row that failed."""
    found = sglspec.Metrics(*metrics, **options)
    places = list(enumerate(rows, 1))
    random.Random(order).shuffle(places)
    for number, (output, gold, group) in places:
        found.add(number, output is not None, {"a": output}, {"gold": gold, "group": group})
    return found.results()


def values(found: list[sglspec.Measured]) -> list[tuple[dict[str, Any], float | None, int, int, Any]]:
    return [(one.by, one.value, one.rows, one.left_out, one.choice) for one in found]


def test_accuracy():
    rows: list[Row] = [("x", "x", "g"), ("y", "x", "g"), (None, "x", "h"), ("z", None, "h")]
    assert values(measured(rows, "accuracy:a=gold")) == [({}, 1 / 3, 3, 1, None)]
    by = values(measured(rows, "accuracy:a=gold", by="group"))
    assert by == [({}, 1 / 3, 3, 1, None), ({"group": "g"}, 0.5, 2, 0, None), ({"group": "h"}, 0.0, 1, 1, None)]


def test_mean():
    rows: list[Row] = [(n, None, "g") for n in (1, 2.5, True, "x", None, float("inf"), float("nan"), 10**400)]
    assert values(measured(rows, "mean:a")) == [({}, 1.5, 3, 5, None)]
    nested: list[Row] = [({"b": {"c": 3}}, None, "g"), ({"b": 2}, None, "g")]
    assert values(measured(nested, "mean:a.b.c")) == [({}, 3.0, 1, 1, None)]
    assert values(measured([], "mean:a")) == [({}, None, 0, 0, None)]


def test_votes():
    rows: list[Row] = [
        ("4", 4, "g"), ("5", 4, "g"), ("4", 4, "g"), ("6", 5, "h"), ("5", 6, "h"), (None, 5, "i"),
    ]  # fmt: skip
    found = values(measured(rows, "vote:a=gold", by="group"))
    # of two answers as common as each other, that of the first row
    assert found == [
        ({}, 0.5, 5, 1, None),
        ({"group": "g"}, 1.0, 3, 0, "4"),
        ({"group": "h"}, 0.0, 2, 0, "6"),
        ({"group": "i"}, None, 0, 1, None),
    ]
    assert values(measured(rows, "vote:a")) == [({}, 0.4, 5, 1, "4")]


@pytest.mark.parametrize(
    ("output", "expected", "equal"),
    [
        (" yes\n", "yes", True), ("Yes", "yes", False), (3, "3.0", True), ("3", 3, True), (True, "true", True),
        ([1, "x"], [1, "x"], True), ({"b": 1, "a": 2}, {"a": 2, "b": 1}, True), (["x"], "x", False), ("", "0", False),
    ],
)  # fmt: skip
def test_what_is_the_same(output: Any, expected: Any, equal: bool):
    assert same(output, expected) == equal


cells = st.one_of(st.none(), st.integers(0, 3), st.floats(0, 3), st.sampled_from(["x", "y"]))


@given(st.lists(st.tuples(cells, cells, st.sampled_from("gh")), max_size=12), st.integers(1, 9))
def test_the_order_of_rows_makes_no_difference(rows: list[Row], order: int):
    metrics = ("accuracy:a=gold", "mean:a", "vote:a", "vote:a=gold")
    assert measured(rows, *metrics, by="group") == measured(rows, *metrics, order=order, by=["group"])
    assert measured(rows, *metrics) == measured(rows, *metrics, order=order)


def test_a_batch_fills_them():
    program = sglspec.load("sglspec: v1\ninputs: {q: string}\nsteps: ['{{ q }}', {gen: a}]\n")
    metrics = sglspec.Metrics("accuracy:a=gold")
    rows = [{"q": "1", "gold": "x"}, {"q": "2", "gold": "y"}, {"q": 3, "gold": "x"}]
    assert [row.columns for row in program.batch(rows, on={"a": "x"}, metrics=metrics)] == [{}] * 3
    assert values(metrics.results()) == [({}, 1 / 3, 3, 0, None)]

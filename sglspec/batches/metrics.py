"""Metrics over the rows of a batch: how many outputs are as expected, means, and what most rows say."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, cast

Kind = Literal["accuracy", "mean", "vote"]
_LARGEST = sys.float_info.max
"""No number above it, nor one that is none, can be part of a mean."""
_FORM = "of the form accuracy:OUTPUT=COLUMN, mean:OUTPUT, vote:OUTPUT or vote:OUTPUT=COLUMN"


@dataclass(frozen=True, slots=True)
class Metric:
    """What is measured. output: a name, or a path into its value (`judgement.score`); column: what is expected."""

    text: str
    kind: Kind
    output: str
    column: str | None

    @classmethod
    def parse(cls, text: str) -> Metric:
        """Raises ValueError."""
        kind, _, rest = text.partition(":")
        output, equals, column = rest.partition("=")
        takes = {"accuracy": bool(column), "mean": not equals, "vote": bool(column) or not equals}
        if not output or not takes.get(kind):
            raise ValueError(f"{text!r} is not {_FORM}")
        return cls(text, cast(Kind, kind), output, column or None)

    def value(self, outputs: Mapping[str, Any]) -> Any:
        """The value in a row's outputs; None where there is none."""
        found: Any = outputs
        for name in self.output.split("."):
            found = cast("dict[str, Any]", found).get(name) if isinstance(found, Mapping) else None
        return found


@dataclass(frozen=True, slots=True)
class Measured:
    """One metric over all rows, or over those of a group.

    by: the columns that make the group, empty for all rows. value: between 0 and 1 but for means, None where no row
    counts. rows: how many count; left_out: how many do not, because they have nothing to compare or to add. choice:
    what most rows of a vote say.
    """

    metric: str
    by: dict[str, Any]
    value: float | None
    rows: int
    left_out: int
    choice: Any = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON face."""
        face = {"metric": self.metric, "by": self.by, "value": self.value, "rows": self.rows, "left_out": self.left_out}
        return face | ({"choice": self.choice} if self.choice is not None else {})


@dataclass(slots=True)
class _Choice:
    """What some rows say: how many, the first of them, and the value."""

    value: Any
    first: int
    count: int = 0


@dataclass(slots=True)
class _Count:
    """What is known of one metric in one group. Memory for each different answer of a vote, not for each row."""

    by: dict[str, Any]
    rows: int = 0
    left_out: int = 0
    total: Fraction = Fraction(0)
    answers: dict[str, _Choice] = field(default_factory=dict[str, _Choice])
    expected: tuple[int, Any] | None = None

    def vote(self) -> _Choice | None:
        """The commonest answer, of several the one of the first row."""
        return max(self.answers.values(), key=lambda one: (one.count, -one.first), default=None)


class Metrics:
    """Metrics that a batch fills: `Metrics("accuracy:answer=gold", "mean:score", by="lang")`.

    accuracy:OUTPUT=COLUMN is the share of rows whose output says what the column says; a row that did not succeed is
    wrong. mean:OUTPUT is the mean of numbers, true counting 1 and false 0. vote:OUTPUT is the share of rows that say
    what most do, of several the answer of the first row; vote:OUTPUT=COLUMN whether that is what the column of the
    group's first row says. `by`: also for each group of rows that agree in these columns; a vote over all rows is then
    the mean over groups. Raises ValueError for what is no metric.
    """

    def __init__(self, *metrics: str, by: str | Iterable[str] = ()) -> None:
        self.metrics: tuple[Metric, ...] = tuple(Metric.parse(text) for text in metrics)
        self.by: tuple[str, ...] = (by,) if isinstance(by, str) else tuple(by)
        self._counts: dict[Metric, dict[str, _Count]] = defaultdict(dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a row that are needed."""
        return tuple(dict.fromkeys([*self.by, *(one.column for one in self.metrics if one.column is not None)]))

    def add(self, number: int, succeeded: bool, outputs: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
        """Count a row. The order in which rows come makes no difference."""
        group = {name: columns.get(name) for name in self.by}
        for metric in self.metrics:
            over_all = not self.by or metric.kind != "vote"
            for by in [*([group] if self.by else []), *([{}] if over_all else [])]:
                count = self._counts[metric].setdefault(_key(by), _Count(by))
                _add(count, metric, number, succeeded, outputs, columns)

    def results(self) -> list[Measured]:
        """Each metric over all rows, then by group, groups in the order of what they say."""
        found: list[Measured] = []
        for metric in self.metrics:
            counts = self._counts[metric]
            groups = [_measured(metric, counts[key]) for key in sorted(counts) if counts[key].by]
            if self.by and metric.kind == "vote":
                found.append(_over_groups(metric, groups))
            else:
                found.append(_measured(metric, counts.get(_key({}), _Count({}))))
            found += groups
        return found


def _add(
    count: _Count, metric: Metric, number: int, succeeded: bool, outputs: Mapping[str, Any], columns: Mapping[str, Any]
) -> None:
    value = metric.value(outputs) if succeeded else None
    expected = None if metric.column is None else columns.get(metric.column)
    if metric.kind == "accuracy" and expected is not None:
        count.rows += 1
        count.total += value is not None and same(value, expected)
        return
    if metric.kind == "mean" and isinstance(value, int | float) and abs(value) <= _LARGEST:
        count.rows += 1
        count.total += Fraction(value)
        return
    if metric.kind == "vote" and value is not None:
        count.rows += 1
        choice = count.answers.setdefault(_plain(value), _Choice(value, number))
        choice.count += 1
        choice.first = min(choice.first, number)
        if expected is not None and (count.expected is None or number < count.expected[0]):
            count.expected = number, expected
        return
    count.left_out += 1


def _measured(metric: Metric, count: _Count) -> Measured:
    value, choice = None, None
    if metric.kind != "vote":
        value = float(count.total / count.rows) if count.rows else None
    elif (winner := count.vote()) is not None:
        choice = winner.value
        if metric.column is None:
            value = winner.count / count.rows
        elif count.expected is not None:
            value = float(same(choice, count.expected[1]))
    return Measured(metric.text, count.by, value, count.rows, count.left_out, choice)


def _over_groups(metric: Metric, groups: list[Measured]) -> Measured:
    values = [Fraction(one.value) for one in groups if one.value is not None]
    mean = float(sum(values, Fraction(0)) / len(values)) if values else None
    return Measured(metric.text, {}, mean, sum(one.rows for one in groups), sum(one.left_out for one in groups))


def same(output: Any, expected: Any) -> bool:
    """Whether an output says what a column says. Columns of CSV files are texts, so numbers are compared by value and
    everything else as text, without space around it."""
    one, other = _plain(output), _plain(expected)
    if one == other:
        return True
    try:
        return float(one) == float(other)
    except ValueError:
        return False


def _plain(value: Any) -> str:
    return (
        value.strip() if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    )


def _key(group: dict[str, Any]) -> str:
    return json.dumps(list(group.values()), sort_keys=True, default=str)

"""Which work runs in a step.

First come, first served, with one twist: works that need a few tokens only (decoding, above all) go first, so that a
long prefill slows others down by its chunk and does not stop them. A share of the step is kept for the long ones, so
they come to their end too.
"""

from __future__ import annotations

from collections.abc import Iterable

from sglspec_engine.sched.work import Work
from sglspec_engine.step import Row, StepPlan

_SHORT = 16
"""Tokens up to which a work counts as short."""


class Scheduler:
    """The works that run, in order of arrival.

    budget: tokens of one step. logit_budget: positions of one step whose logits are kept.
    """

    def __init__(self, budget: int, logit_budget: int) -> None:
        self._budget = budget
        self._logit_budget = logit_budget
        self._works: list[Work] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work) -> None:
        """Take a work in."""
        self._arrivals += 1
        work.arrival = self._arrivals
        self._works.append(work)

    def works(self) -> list[Work]:
        """All of them, in order."""
        return list(self._works)

    def settle(self, plan: StepPlan, going_on: dict[Work, list[Work]]) -> None:
        """After a step: replace each work of the plan by what goes on, move those served behind the others (so every
        work gets its turn where the budget is too small for all), and drop what is closed."""
        served = {row.work for row in plan.rows}
        self._works = [w for w in self._works if w not in served]
        for row in plan.rows:
            for work in going_on.get(row.work, []):
                if work is row.work:
                    self._works.append(work)
                else:
                    self.add(work)
        self.drop_closed()

    def drop_closed(self) -> None:
        """Forget works that ended outside a step."""
        self._works = [w for w in self._works if not w.closed]

    def plan(self) -> StepPlan:
        """The next step; without rows where there is nothing to do."""
        short = [w for w in self._works if w.todo <= _SHORT]
        long = [w for w in self._works if w.todo > _SHORT]
        reserve = max(1, self._budget // 4) if long else 0
        rows: list[Row] = []
        logits = self._logit_budget
        left = max(1, self._budget - reserve)
        left, logits = _fill(rows, short, left, logits)
        left, logits = _fill(rows, sorted(long, key=lambda w: w.arrival), left + reserve, logits)
        return StepPlan(tuple(rows))


def _fill(rows: list[Row], works: Iterable[Work], tokens: int, logits: int) -> tuple[int, int]:
    """Add rows while tokens and logits last; returns what is left of both."""
    for work in works:
        if work.todo == 0:
            rows.append(Row(work, (), 1))  # its logits are there already
            continue
        start = work.lease.length
        count = min(work.todo, tokens)
        wanted = max(0, start + count - work.wanted_from)
        if wanted > logits:
            count -= wanted - logits
            wanted = logits
        if count <= 0:
            continue
        rows.append(Row(work, tuple(work.known[start : start + count]), wanted))
        tokens -= count
        logits -= wanted
    return tokens, logits

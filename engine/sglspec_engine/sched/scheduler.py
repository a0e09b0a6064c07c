"""Which works run in a step, and who gets memory.

Works wait until they are let in, then they run: each step is filled with rows of running works up to a budget of
tokens. Works that need a few tokens only (decoding, above all) go first, so that a long prefill slows others down by
its chunk and does not stop them; a share of the step is kept for the long ones, so they come to their end too.

Memory is given by arrival: who came first may take it from those who came later. These are preempted: what they have
computed goes to the cache, and they wait again. A work fails for lack of memory only when nobody else holds any.
"""

from __future__ import annotations

from collections.abc import Iterable

from sglspec_engine.kv.pool import Pool
from sglspec_engine.kv.radix import Node
from sglspec_engine.metrics import Metrics
from sglspec_engine.sched.policy import Policy
from sglspec_engine.sched.work import Work
from sglspec_engine.step import Row, StepPlan
from sglspec_engine.types import EngineError

_SHORT = 16
"""Tokens up to which a work counts as short."""
_AHEAD = 32
"""Tokens that a work is let in with room for, beyond those that are known; doubled each time it was preempted."""


class Scheduler:
    """All works of an engine, in order of arrival.

    budget: tokens of one step. logit_budget: positions of one step whose logits are kept.
    """

    def __init__(self, pool: Pool, policy: Policy, metrics: Metrics, budget: int, logit_budget: int) -> None:
        self._pool = pool
        self._policy = policy
        self._metrics = metrics
        self._budget = budget
        self._logit_budget = logit_budget
        self._waiting: list[Work] = []
        self._running: list[Work] = []
        self._hinted: dict[Work, Node] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def add(self, work: Work) -> None:
        """Take a work in."""
        self._arrivals += 1
        work.arrival = self._arrivals
        self._waiting.append(work)

    def works(self) -> list[Work]:
        """All of them."""
        return [*self._running, *self._waiting]

    def settle(self, plan: StepPlan, going_on: dict[Work, list[Work]]) -> None:
        """After a step: replace each work of the plan by what goes on, move those served behind the others (so every
        work gets its turn where the budget is too small for all), and drop what is closed."""
        served = {row.work for row in plan.rows}
        stay = {work for row in plan.rows for work in going_on.get(row.work, []) if work is row.work}
        for work in served - stay:
            work.lease.busy = False
        self._running = [w for w in self._running if w not in served]
        self._running += [row.work for row in plan.rows if row.work in stay]
        for row in plan.rows:
            for work in going_on.get(row.work, []):
                if work is not row.work:
                    self.add(work)
        self.drop_closed()

    def drop_closed(self) -> None:
        """Forget works that ended."""
        for work in self.works():
            if work.closed:
                work.lease.busy = False
                self._unhint(work)
        self._running = [w for w in self._running if not w.closed]
        self._waiting = [w for w in self._waiting if not w.closed]

    def plan(self) -> StepPlan:
        """The next step. It has no rows where there is nothing to do, or where a work is refused because it can never
        run; plan again then."""
        self._admit()
        while self._running:
            rows = self._rows()
            if rows:
                return StepPlan(tuple(rows))
            # Nobody can go on: the youngest makes room, and if it is alone, there is no room to make.
            youngest = max(self._running, key=lambda work: (not work.lease.pinned, work.arrival))
            if len(self._running) > 1 and not youngest.lease.pinned:
                self._preempt(youngest)
                continue
            self._running.remove(youngest)
            youngest.lease.busy = False
            return StepPlan((), ((youngest, EngineError("limit", _too_much(self._pool))),))
        return StepPlan(())

    # Letting in.

    def _admit(self) -> None:
        """Let in who may run and finds room. Where nobody runs, the first one is let in whatever it needs."""
        if not self._waiting:
            return
        promised = sum(_demand(work) for work in self._running)
        for work in self._policy.sort(self._waiting):
            work.align()
            if self._policy.must_wait(work, self._running):
                self._metrics.deferred += work.waited == 0
                work.waited += 1
                continue
            need = promised + _demand(work)
            work.lease.busy = True
            self._pool.park_idle(need)
            if self._running and need > self._pool.available:
                work.lease.busy = False
                work.waited += 1
                self._hint(work)
                break
            promised = need
            self._unhint(work)
            work.begin()
            self._waiting.remove(work)
            self._running.append(work)

    def _preempt(self, work: Work) -> None:
        work.lease.park()
        work.lease.busy = False
        work.preempted += 1
        work.waited = 0
        self._metrics.preempted += 1
        self._running.remove(work)
        self._waiting.append(work)

    def _hint(self, work: Work) -> None:
        """What a waiting work can use is evicted after what nobody waits for."""
        if work not in self._hinted:
            self._hinted[work] = work.lease.node
            self._pool.tree.expect(work.lease.node, 1)

    def _unhint(self, work: Work) -> None:
        node = self._hinted.pop(work, None)
        if node is not None:
            self._pool.tree.expect(node, -1)

    # Filling a step.

    def _rows(self) -> list[Row]:
        short = [w for w in self._running if w.todo <= _SHORT]
        long = [w for w in self._running if w.todo > _SHORT]
        reserve = max(1, self._budget // 4) if long else 0
        rows: list[Row] = []
        logits = self._logit_budget
        left = max(1, self._budget - reserve)
        left, logits = self._fill(rows, short, left, logits)
        self._fill(rows, sorted(long, key=lambda w: w.arrival), left + reserve, logits)
        return rows

    def _fill(self, rows: list[Row], works: Iterable[Work], tokens: int, logits: int) -> tuple[int, int]:
        """Add rows while tokens, logits and memory last; returns what is left of the first two."""
        for work in works:
            if not work.lease.busy:
                continue  # it was preempted for one before it
            if work.todo == 0:
                rows.append(Row(work, (), int(work.wanted_from < len(work.known))))  # it has all that it needs
                continue
            start = work.lease.length
            count = min(work.todo, tokens, logits + max(0, work.wanted_from - start))
            count = self._make_room(work, count, rows) if count > 0 else 0
            if count <= 0:
                continue
            wanted = max(0, start + count - work.wanted_from)
            rows.append(Row(work, tuple(work.known[start : start + count]), wanted))
            tokens -= count
            logits -= wanted
        return tokens, logits

    def _make_room(self, work: Work, count: int, rows: list[Row]) -> int:
        """Reserve slots for `count` tokens or as many as there are, at the cost of those that came later and are not
        in this step yet. Returns how many."""
        taken = {row.work for row in rows}
        while True:
            try:
                work.lease.reserve(count)
                return count
            except EngineError:
                later = [w for w in self._running if w.arrival > work.arrival and w not in taken]
                later = [w for w in later if not w.lease.pinned]
                if later:
                    self._preempt(max(later, key=lambda w: w.arrival))
                elif count > 1:
                    count = min(count - 1, max(1, self._pool.available))
                else:
                    return 0


def _demand(work: Work) -> int:
    """Tokens of memory that a work is going to take, beyond what it holds."""
    ahead = min(max(0, work.bound - len(work.known)), _AHEAD << min(work.preempted, 16))
    room = work.lease.tail.length - work.lease.tail_length if work.lease.tail is not None else 0
    return max(0, work.todo + ahead - room)


def _too_much(pool: Pool) -> str:
    return f"this takes more memory for keys and values than there is ({pool.limit} bytes)"

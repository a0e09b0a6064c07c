"""Which works run in a step, and who gets memory.

Works wait until they are let in, then they run: each step is filled with rows of running works up to a budget of
tokens. Works that need a few tokens only (decoding, above all) go first, so that a long prefill slows others down by
its chunk and does not stop them; a share of the step is kept for the long ones, so they come to their end too.

Memory is given by arrival: who came first may take it from those who came later. These are preempted: what they have
computed goes to the cache, and they wait again. A work fails for lack of memory only when nobody else holds any. With
admission "worst_case" a work is let in only if all that it may come to need is there, so nobody is preempted.

What the queue knows goes to the cache: nodes that works wait for are evicted last, and a work that computes what others
wait for is let in together with the room for those.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from itertools import takewhile

from sglspec_engine.config import Admission
from sglspec_engine.kv.pool import Pool
from sglspec_engine.kv.radix import Node, common_prefix
from sglspec_engine.metrics import Metrics
from sglspec_engine.sched.policy import Policy
from sglspec_engine.sched.sharing import share
from sglspec_engine.sched.work import Work
from sglspec_engine.step import Row, StepPlan
from sglspec_engine.types import EngineError

_SHORT = 16
"""Tokens up to which a work counts as short."""
_AHEAD = 32
"""Tokens that a work is let in with room for, beyond those that are known; doubled each time it was preempted."""
_MANY = 256
"""Waiting works that are looked up in the tree and may be let in, the first to come; the others wait behind them. What
a step costs must not grow with the queue."""


class Scheduler:
    """All works of an engine, in order of arrival.

    budget: tokens of one step. logit_budget: positions of one step whose logits are kept. admission: whether a work is
    let in with room for what it is about to need, or for all that it may come to need.
    """

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        metrics: Metrics,
        budget: int,
        logit_budget: int,
        admission: Admission = "optimistic",
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._metrics = metrics
        self._budget = budget
        self._logit_budget = logit_budget
        self._places_in_a_step = max(budget, logit_budget)  # no more works could go on at once
        self._worst_case = admission == "worst_case"
        self._waiting: list[Work] = []  # by arrival
        self._running: list[Work] = []
        self._places: dict[Work, Node] = {}
        self._awaited: dict[Work, Node] = {}
        self._looked_at: tuple[int, int] | None = None
        # _places: the deepest node that is all a waiting work's own; _awaited: the one it announced to come for.
        # _looked_at: the tree's version and the last arrival when waiting works were looked up.
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    @property
    def running(self) -> int:
        """Works that were let in."""
        return len(self._running)

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
                self._forget(work)
        self._running = [w for w in self._running if not w.closed]
        self._waiting = [w for w in self._waiting if not w.closed]

    def plan(self) -> StepPlan:
        """The next step. It has no rows where there is nothing to do, or where a work is refused because it can never
        run; plan again then."""
        never = self._admit()
        if never is not None:
            self._waiting.remove(never)
            return StepPlan((), ((never, EngineError("limit", _too_much(self._pool))),))
        while self._running:
            rows = self._rows()
            if rows:
                return StepPlan(share(rows))
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

    def _admit(self) -> Work | None:
        """Let in who may run and finds room. Where nobody runs, the first one is let in whatever it needs; with
        admission by the worst case, it is returned instead where it can never fit."""
        if not self._waiting:
            return None
        places = self._places_in_a_step - len(self._running)
        if places <= 0:
            return None
        self._look_up()
        promised = sum(self._demand(work) for work in self._running)
        for work in self._policy.sort(self._waiting[:_MANY]):
            if not places:
                return None
            work.align()
            gain = self._policy.deferral(work, self._running)
            if gain is not None:
                self._metrics.deferred += not work.deferred
                work.deferred = True
                promised += max(0, self._demand(work) - gain)
                continue
            if self._offer(work):
                work.align()
            need = promised + self._demand(work)
            work.lease.busy = True
            self._pool.park_idle(need)
            if need > self._pool.available and (self._running or self._worst_case):
                work.lease.busy = False
                return None if self._running else work
            promised = need
            places -= 1
            self._let_in(work)
        return None

    def _offer(self, work: Work) -> bool:
        """Let a work find what others have computed on the way to their first logits. Returns whether there is any."""
        found = False
        for other in self._running:
            lease, at = other.lease, other.lease.node.end
            if not (other.prefilling and lease.tail_length and at < work.wanted_from):
                continue
            if lease.ids[at] != work.known[at] or lease.node.root is not work.lease.node.root:
                continue
            common = common_prefix(lease.ids, work.known[: work.wanted_from])
            if common > at:
                lease.publish_only(common)
                found = True
        return found

    def _let_in(self, work: Work) -> None:
        self._forget(work)
        work.begin()
        self._waiting.remove(work)
        self._running.append(work)
        for other in takewhile(lambda other: other.arrival < work.arrival, self._waiting):
            other.overtaken += 1

    def _preempt(self, work: Work) -> None:
        work.lease.park()
        work.lease.busy = False
        work.preempted += 1
        self._metrics.preempted += 1
        self._running.remove(work)
        insort(self._waiting, work, key=lambda work: work.arrival)
        self._announce(work)

    def _demand(self, work: Work) -> int:
        """Tokens of memory that a work is going to take, beyond what it holds."""
        ahead = max(0, work.bound - len(work.known))
        if not self._worst_case:
            ahead = min(ahead, _AHEAD << min(work.preempted, 16))
        room = work.lease.tail.length - work.lease.tail_length if work.lease.tail is not None else 0
        return max(0, work.todo + ahead - room)

    # What waiting works are going to use.

    def _look_up(self) -> None:
        """Find what there is for those that wait, where that may have changed."""
        now = (self._pool.tree.version, self._arrivals)
        if now != self._looked_at:
            self._looked_at = now
            for work in self._waiting[:_MANY]:
                self._announce(work)

    def _announce(self, work: Work) -> None:
        """What a waiting work can use is evicted after what nobody waits for."""
        tree, lease = self._pool.tree, work.lease
        place = self._places.get(work)
        if place is None or (place.span is None and place.parent is not None):
            place = lease.node  # the first look, or it was evicted meanwhile
            if lease.ids[: place.end] != work.known[: place.end]:
                place = place.root
        self._places[work], target, found = tree.find(place, work.known, work.wanted_from)
        work.found = max(found, lease.length)
        old = self._awaited.get(work)
        if self._pool.hints and target is not old and target.parent is not None:
            self._awaited[work] = target
            tree.expect(target, 1)
            if old is not None:
                tree.expect(old, -1)

    def _forget(self, work: Work) -> None:
        """A work does not wait any more."""
        self._places.pop(work, None)
        node = self._awaited.pop(work, None)
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
                rows.append(Row(work, (), max(0, len(work.known) - work.wanted_from)))  # it has all that it needs
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
        """Reserve slots for `count` tokens or as many as there are: first from what others have for later, then at
        the cost of those that came later and are not in this step yet. Returns how many."""
        taken = {row.work for row in rows}
        while True:
            try:
                work.lease.reserve(count)
                return count
            except EngineError:
                if sum(other.lease.trim(0) for other in self._running if other not in taken and other is not work):
                    continue
                later = [w for w in self._running if w.arrival > work.arrival and w not in taken]
                later = [w for w in later if not w.lease.pinned]
                if later:
                    self._preempt(max(later, key=lambda w: w.arrival))
                elif count > 1:
                    count = min(count - 1, max(1, self._pool.available))
                else:
                    return 0


def _too_much(pool: Pool) -> str:
    return f"this takes more memory for keys and values than there is ({pool.limit} bytes)"

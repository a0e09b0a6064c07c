"""Which rows a step has, who is let in, and who has to give memory back."""

from __future__ import annotations

import torch

from sglspec_engine.config import Admission, Forks
from sglspec_engine.kv.arena import KVLayout, LayerShape
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool
from sglspec_engine.metrics import Metrics
from sglspec_engine.sched.policy import Policy
from sglspec_engine.sched.scheduler import Scheduler
from sglspec_engine.sched.work import Prefill, Work
from sglspec_engine.step import StepPlan
from tests.effort import calls_of

LAYOUT = KVLayout((LayerShape(1, 1, 1),), torch.float32, torch.device("cpu"))


def make(
    slots: int = 100_000,
    *,
    budget: int = 512,
    logits: int = 64,
    policy: Policy | None = None,
    admission: Admission = "optimistic",
    hints: bool = True,
) -> tuple[Pool, Scheduler]:
    pool = Pool(LAYOUT, slots * LAYOUT.bytes_per_token, hints=hints, poison=True)
    return pool, Scheduler(pool, policy or Policy(), Metrics(), budget, logits, admission)


def work(pool: Pool, known: int, computed: int = 0, first: int = 0) -> Prefill:
    """A work on tokens that nobody shares, unless `first` is the same."""
    lease = Lease(pool)
    ids = range(first, first + known)
    if computed:
        lease.reserve(computed)
        lease.append(ids[:computed])
    return Prefill(lease, ids, lambda _: [], lambda _: None)


def several(pool: Pool, count: int, known: int, computed: int = 0) -> list[Prefill]:
    return [work(pool, known, computed, first=10_000 * (i + 1)) for i in range(count)]


def run(scheduler: Scheduler, plan: StepPlan, *, ends: bool = True) -> None:
    """What the model and the commit would do; works that hold all they are to hold end."""
    going_on: dict[Work, list[Work]] = {}
    for row in plan.rows:
        if row.ids:
            row.work.lease.append(row.ids)
            if row.wanted:
                row.work.lease.publish()
        done = ends and row.work.todo == 0
        row.work.closed = done
        going_on[row.work] = [] if done else [row.work]
    scheduler.settle(plan, going_on)


def test_decoding_goes_first_and_prefill_gets_its_share() -> None:
    pool, scheduler = make(budget=32)
    long = work(pool, 100)
    scheduler.add(long)
    decoding = several(pool, 40, 10, 9)
    for one in decoding:
        scheduler.add(one)
    plan = scheduler.plan()
    assert {row.work for row in plan.rows[:-1]} <= set(decoding)
    assert (len(plan.rows), plan.rows[-1].work) == (25, long)
    assert (len(plan.rows[-1].ids), plan.rows[-1].wanted) == (8, 0)
    served = {row.work for row in plan.rows}
    scheduler.settle(plan, {row.work: [row.work] for row in plan.rows})
    assert [row.work for row in scheduler.plan().rows][:16] == [w for w in decoding if w not in served]


def test_long_ones_come_in_order_of_arrival() -> None:
    pool, scheduler = make(budget=50)
    first, second = several(pool, 2, 60)
    scheduler.add(first)
    scheduler.add(second)
    for _ in range(2):
        plan = scheduler.plan()
        assert plan.rows[0].work is first
        run(scheduler, plan)
    assert first.todo == 0
    assert second.lease.length >= 30


def test_logits_are_bounded() -> None:
    pool, scheduler = make(budget=100, logits=5)
    works = several(pool, 4, 12)
    for one in works:
        one.wanted_from = 8
        scheduler.add(one)
    rows = scheduler.plan().rows
    assert sum(row.wanted for row in rows) == 5
    assert [len(row.ids) for row in rows] == [12, 9, 8, 8]


def test_one_waits_for_another_that_computes_the_same() -> None:
    pool, scheduler = make()
    first, second, other = work(pool, 100), work(pool, 120), work(pool, 100, first=5000)
    for one in (first, second, other):
        scheduler.add(one)
    plan = scheduler.plan()
    assert {row.work for row in plan.rows} == {first, other}
    run(scheduler, plan)
    pool.check()
    plan = scheduler.plan()
    assert [row.work for row in plan.rows] == [second]
    assert second.reused == 100
    assert plan.rows[0].ids == tuple(range(100, 120))
    run(scheduler, plan)
    pool.check()
    assert len(scheduler) == 0


def test_the_longest_cached_prefix_is_let_in_first_but_not_for_ever() -> None:
    pool, scheduler = make(slots=300)
    warm = work(pool, 120)
    scheduler.add(warm)
    run(scheduler, scheduler.plan())
    warm.lease.release()
    blocker = work(pool, 150, first=50_000)
    scheduler.add(blocker)
    assert [row.work for row in scheduler.plan().rows] == [blocker]
    cold, hot = work(pool, 140, first=70_000), work(pool, 125)
    scheduler.add(cold)
    scheduler.add(hot)
    assert {row.work for row in scheduler.plan().rows} == {hot, blocker}
    assert (cold.found, hot.found, cold.overtaken) == (0, 120, 1)
    assert scheduler._policy.sort([cold, hot]) == [hot, cold]
    cold.overtaken = 64
    assert scheduler._policy.sort([cold, hot]) == [cold, hot]
    assert Policy("fcfs").sort([hot, cold]) == [cold, hot]


def test_a_step_costs_the_same_however_many_wait() -> None:
    """As many run as can have a place in a step; all come to their end, preempted ones by their arrival."""
    efforts: list[int] = []
    for count in (400, 4000):
        pool, scheduler = make(slots=3000, budget=64, logits=16)
        for one in several(pool, count, 40):
            scheduler.add(one)
        plan, effort = calls_of(scheduler.plan)
        efforts.append(effort)
        assert scheduler.running <= 64
        run(scheduler, plan)
        assert scheduler.plan().rows
    assert efforts[1] < 1.01 * efforts[0]
    for _ in range(12_000):
        plan = scheduler.plan()
        assert scheduler.running <= 64
        run(scheduler, plan)
        if not len(scheduler):
            break
    assert len(scheduler) == 0
    pool.check()


def test_siblings_are_let_in_together_or_one_by_one() -> None:
    cases: list[tuple[Forks, int]] = [("together", 3), ("sequential", 1)]
    for forks, expected in cases:
        pool, scheduler = make(policy=Policy("fcfs", forks))
        trunk = work(pool, 20)
        scheduler.add(trunk)
        run(scheduler, scheduler.plan())
        gang = object()
        branches: list[Work] = []
        for i in range(3):
            lease = trunk.lease.fork()
            lease.gang = gang
            branches.append(Prefill(lease, [*range(20), 900 + i], lambda _: [], lambda _: None))
        stranger = work(pool, 30, first=40_000)
        for one in (branches[0], stranger, *branches[1:]):
            scheduler.add(one)
        if forks == "together":
            assert scheduler._policy.sort([stranger, *branches]) == [*branches, stranger]
        assert len([row for row in scheduler.plan().rows if row.work in branches]) == expected


def test_the_younger_gives_its_memory_to_the_older_and_comes_back() -> None:
    pool, scheduler = make(slots=200)
    old, young = several(pool, 2, 60)
    scheduler.add(old)
    scheduler.add(young)
    for _ in range(8):
        run(scheduler, scheduler.plan(), ends=False)
        for one in (old, young):
            if one.todo == 0:
                one.known += [one.known[-1] + 1 + i for i in range(20)]
                one.wanted_from = len(one.known) - 1
        pool.check()
    assert young.preempted > 0 == old.preempted
    assert old.lease.length > 150
    old.closed = True
    old.lease.release()
    scheduler.drop_closed()
    for _ in range(3):
        run(scheduler, scheduler.plan(), ends=False)
    assert young.todo == 0
    pool.check()


def test_what_can_never_run_is_refused_and_the_others_go_on() -> None:
    pool, scheduler = make(slots=100)
    small, large, next_one = work(pool, 30), work(pool, 500, first=1000), work(pool, 30, first=3000)
    for one in (small, large, next_one):
        scheduler.add(one)
    refused: list[Work] = []
    for _ in range(12):
        plan = scheduler.plan()
        for one, error in plan.refused:
            assert error.kind == "limit"
            refused.append(one)
            one.closed = True
            one.lease.release()
        scheduler.drop_closed()
        run(scheduler, plan)
        pool.check()
    assert refused == [large]
    assert len(scheduler) == 0


def test_what_waiting_works_begin_with_is_evicted_last() -> None:
    """Two cached prefixes, one of which a waiting work needs: with hints it stays, though it is the older one."""
    for hints, expected in ((True, [100, 0]), (False, [0, 100])):
        pool, scheduler = make(slots=310, policy=Policy("fcfs"), hints=hints)
        for first in (0, 1000):
            warm = work(pool, 100, first=first)
            scheduler.add(warm)
            run(scheduler, scheduler.plan())
            warm.lease.release()
        running = work(pool, 100, first=5000)
        scheduler.add(running)
        run(scheduler, scheduler.plan(), ends=False)
        for one in (work(pool, 300, first=9000), work(pool, 110)):
            scheduler.add(one)
        running.known += range(7000, 7030)
        run(scheduler, scheduler.plan(), ends=False)
        assert len(scheduler) == 3
        assert [pool.tree.match(pool.root(), range(at, at + 100)) for at in (0, 1000)] == expected
        assert pool.tree.announced == hints
        pool.check()


def test_worst_case_admission_never_takes_memory_back() -> None:
    """Works that grow to their bound: all are let in at once and some preempted, or they wait and none is."""
    for admission in ("optimistic", "worst_case"):
        pool, scheduler = make(slots=300, admission=admission)
        works = [Growing(Lease(pool), range(1000 * i, 1000 * i + 20), bound=120) for i in range(5)]
        for one in works:
            scheduler.add(one)
        most = 0
        for _ in range(1500):
            most = max(most, len(scheduler._running))
            run(scheduler, scheduler.plan(), ends=False)
            pool.check()
            for one in works:
                if one.todo == 0 and not one.closed:
                    one.grow()
            scheduler.drop_closed()
        assert [one.closed for one in works] == [True] * 5
        assert len(scheduler) == 0
        assert most == (2 if admission == "worst_case" else 5)
        assert (sum(one.preempted for one in works) == 0) == (admission == "worst_case")


def test_worst_case_admission_refuses_what_can_never_fit() -> None:
    pool, scheduler = make(slots=100, admission="worst_case")
    small, large = Growing(Lease(pool), range(20), bound=60), Growing(Lease(pool), range(900, 920), bound=160)
    for one in (large, small):
        scheduler.add(one)
    plan = scheduler.plan()
    assert [(one, error.kind) for one, error in plan.refused] == [(large, "limit")]
    large.closed = True
    scheduler.drop_closed()
    assert [row.work for row in scheduler.plan().rows] == [small]


class Growing(Prefill):
    """A work that goes on to `bound` tokens, one at a time."""

    def __init__(self, lease: Lease, known: range, bound: int) -> None:
        super().__init__(lease, known, lambda _: [], lambda _: None)
        self._bound = bound

    @property
    def bound(self) -> int:
        return self._bound

    def grow(self) -> None:
        """What a generation does when it has chosen a token; at its end it lets go."""
        if len(self.known) == self._bound:
            self.closed = True
            self.lease.release()
        else:
            self.known.append(self.known[-1] + 1)
            self.wanted_from = len(self.known) - 1

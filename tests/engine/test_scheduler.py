"""Which rows a step has."""

from __future__ import annotations

import torch

from sglspec_engine.kv.arena import KVLayout, LayerShape
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool
from sglspec_engine.sched.scheduler import Scheduler
from sglspec_engine.sched.work import Prefill

LAYOUT = KVLayout((LayerShape(1, 1, 1),), torch.float32, torch.device("cpu"))


def work(pool: Pool, known: int, computed: int = 0) -> Prefill:
    lease = Lease(pool)
    lease.reserve(computed)
    lease.append(range(computed))
    return Prefill(lease, range(known), lambda _: [], lambda _: None)


def test_decoding_goes_first_and_prefill_gets_its_share() -> None:
    pool = Pool(LAYOUT, 1 << 20)
    scheduler = Scheduler(budget=32, logit_budget=64)
    long = work(pool, 100)
    scheduler.add(long)
    decoding = [work(pool, 10, 9) for _ in range(40)]
    for one in decoding:
        scheduler.add(one)
    plan = scheduler.plan()
    assert [row.work for row in plan.rows] == [*decoding[:24], long]
    assert len(plan.rows[-1].ids) == 8
    assert plan.rows[-1].wanted == 0
    scheduler.settle(plan, {row.work: [row.work] for row in plan.rows})
    assert [row.work for row in scheduler.plan().rows][:16] == decoding[24:], "those who waited are next"


def test_long_ones_come_in_order_of_arrival() -> None:
    pool = Pool(LAYOUT, 1 << 20)
    scheduler = Scheduler(budget=50, logit_budget=64)
    first, second = work(pool, 60), work(pool, 60)
    scheduler.add(first)
    scheduler.add(second)
    for _ in range(2):
        plan = scheduler.plan()
        assert plan.rows[0].work is first
        for row in plan.rows:
            row.work.lease.reserve(len(row.ids))
            row.work.lease.append(row.ids)
        scheduler.settle(plan, {row.work: [row.work] for row in plan.rows})
        if first.todo == 0:
            break
    assert first.todo == 0
    assert second.lease.length >= 30


def test_logits_are_bounded() -> None:
    pool = Pool(LAYOUT, 1 << 20)
    scheduler = Scheduler(budget=100, logit_budget=5)
    works = [work(pool, 12) for _ in range(4)]
    for one in works:
        one.wanted_from = 8
        scheduler.add(one)
    rows = scheduler.plan().rows
    assert sum(row.wanted for row in rows) == 5
    assert [len(row.ids) for row in rows] == [12, 9, 8, 8]

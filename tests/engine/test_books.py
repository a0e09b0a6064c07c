"""Scheduler, leases, tree and arena together, under random operations: the books agree after every single one.

The model is a stand-in that writes keys which name their token and position. What a row reads is compared with what
its context holds before every step, so whoever reads a page that is somebody else's, free or moved is found.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import torch

from sglspec_engine.config import Forks, Order
from sglspec_engine.kv.arena import KVLayout, LayerShape, Span
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool
from sglspec_engine.kv.radix import Node
from sglspec_engine.kv.rotate import Piece, join
from sglspec_engine.metrics import Metrics
from sglspec_engine.sched.policy import Policy
from sglspec_engine.sched.scheduler import Scheduler
from sglspec_engine.sched.work import Work
from sglspec_engine.step import Row
from sglspec_engine.types import EngineError

LAYOUT = KVLayout((LayerShape(1, 1, 1), LayerShape(2, 1, 2)), torch.float32, torch.device("cpu"))


def mark(id: int, position: int) -> float:
    """What the keys of a token at a position hold; a joined piece's are moved by adding."""
    return 1000.0 * id + position


def write(lease: Lease, ids: list[int]) -> None:
    """What a forward leaves in the tail: keys that name token and position, values that name the token."""
    for layer, shape in enumerate(LAYOUT.layers):
        keys = torch.tensor([mark(id, lease.length + i) for i, id in enumerate(ids)])[None, :, None]
        values = torch.tensor([float(id) for id in ids])[None, :, None]
        lease.write(
            layer,
            keys.expand(shape.heads, len(ids), shape.key_dim),
            values.expand(shape.heads, len(ids), shape.value_dim),
        )


def assert_reads(lease: Lease) -> None:
    """A read of everything that a lease holds gives what was written for its tokens."""
    keys = torch.tensor([mark(id, i) for i, id in enumerate(lease.ids)])
    values = torch.tensor([float(id) for id in lease.ids])
    for layer in range(len(LAYOUT.layers)):
        at = 0
        for key, value in lease.views(layer, 0):
            n = key.shape[1]
            assert torch.equal(key, keys[None, at : at + n, None].expand_as(key)), "keys of another token, or of none"
            assert torch.equal(value, values[None, at : at + n, None].expand_as(value))
            at += n
        assert at == lease.length


class Task(Work):
    """Computes `known`, then appends so many tokens one by one."""

    def __init__(self, lease: Lease, known: list[int], more: int) -> None:
        super().__init__(lease, known, len(known) - 1)
        self._limit = len(known) + more
        self.error: BaseException | None = None

    @property
    def bound(self) -> int:
        """See `Work`."""
        return self._limit

    def take(self, logits: torch.Tensor) -> list[Work]:
        """One more token, or the end."""
        if len(self.known) >= self._limit:
            self.closed = True
            return []
        self.wanted_from = len(self.known)
        self.known.append(len(self.known) % 2)
        return [self]

    def fail(self, error: BaseException) -> None:
        """End without the memory."""
        self.closed, self.error = True, error

    def cancel(self) -> None:
        """End."""
        self.closed = True


@dataclass(slots=True, eq=False)
class Context:
    """A session's part: a lease and the tokens that it is to hold. base: tokens that cannot be computed again."""

    lease: Lease
    ids: list[int]
    work: Task | None = None
    base: int = 0

    @property
    def busy(self) -> bool:
        return self.work is not None and not self.work.closed


@dataclass(slots=True)
class World:
    """Everything that an operation may touch."""

    pool: Pool
    scheduler: Scheduler
    contexts: list[Context] = field(default_factory=list[Context])
    hints: list[Node] = field(default_factory=list[Node])

    def idle(self, number: int) -> Context | None:
        found = [one for one in self.contexts if not one.busy]
        return found[number % len(found)] if found else None

    def check(self) -> None:
        """After every operation."""
        self.pool.check()
        for one in self.contexts:
            assert_reads(one.lease)
            assert one.lease.length >= one.base, "nobody takes what cannot be computed again"

    def step(self) -> None:
        """What loop, model and commit do, with a check before and after each of them."""
        plan = self.scheduler.plan()
        self.check()
        for work, error in plan.refused:
            work.fail(error)
        self.scheduler.drop_closed()
        for row in plan.rows:
            assert not row.work.closed
            assert row.work.lease.busy
            assert row.work.known[: row.work.lease.length] == row.work.lease.ids
            if row.ids:
                write(row.work.lease, list(row.ids))
        self.check()
        going_on: dict[Work, list[Work]] = {}
        for row in plan.rows:
            going_on[row.work] = self.commit(row)
            self.check()
        self.scheduler.settle(plan, going_on)

    def commit(self, row: Row) -> list[Work]:
        work = row.work
        if row.ids:
            work.advance(row.ids)
            if row.wanted:
                work.lease.logits = torch.zeros(1)
        return work.take(torch.zeros(row.wanted, 1)) if row.wanted or work.todo == 0 else [work]

    def start(self, number: int, ids: list[int]) -> None:
        """A request on an idle context: with more text, or with other text than it held."""
        one = self.idle(number)
        if one is None:
            return
        keep = len(one.ids) if number % 3 else max(one.base, number % (len(one.ids) + 1))
        one.ids = [*one.ids[:keep], *ids] or [0]
        one.work = Task(one.lease, list(one.ids), number % 120)
        self.scheduler.add(one.work)

    def settle(self) -> None:
        """What a finished request leaves in its context."""
        for one in self.contexts:
            if one.work is not None and one.work.closed:
                if one.work.error is None:
                    one.ids = list(one.work.known)
                elif one.lease.length > len(one.ids):
                    one.lease.truncate(len(one.ids))
                one.work = None

    def fork(self, number: int) -> None:
        one = self.idle(number)
        if one is None or one.lease.length == 0:
            return
        gang = object()
        for _ in range(1 + number % 3):
            child = Context(one.lease.fork(), list(one.lease.ids), base=one.base)
            child.lease.gang = gang
            self.contexts.append(child)

    def leave(self, number: int) -> None:
        """A caller leaves its request."""
        busy = [one for one in self.contexts if one.busy]
        if busy:
            one = busy[number % len(busy)]
            assert one.work is not None
            one.work.cancel()
            self.scheduler.drop_closed()

    def close(self, number: int) -> None:
        one = self.idle(number)
        if one is not None:
            self.contexts.remove(one)
            one.lease.release()

    def cut(self, number: int) -> None:
        one = self.idle(number)
        if one is not None:
            keep = max(one.base, number % (len(one.ids) + 1))
            del one.ids[keep:]
            if one.lease.length > keep:
                one.lease.truncate(keep)

    def join(self, number: int) -> None:
        """Keys of one context behind those of another one."""
        full = [one.lease for one in self.contexts if not one.busy and one.lease.length]
        if not full:
            return
        pieces = [Piece(lease, 0, lease.length) for lease in (full[number % len(full)], full[number // 7 % len(full)])]
        try:
            lease = join(self.pool, pieces, lambda layer, keys, by: keys + by)
        except EngineError as error:
            assert error.kind == "limit"
            return
        ids = list(lease.ids)
        self.contexts.append(Context(lease, ids, base=len(ids)))

    def expect(self, number: int) -> None:
        """A hint comes or goes."""
        one = self.contexts[number % len(self.contexts)] if self.contexts else None
        if self.hints and number % 2:
            self.pool.tree.expect(self.hints.pop(), -1)
        elif one is not None:
            self.hints.append(one.lease.node)
            self.pool.tree.expect(one.lease.node, 1)


ACTS = (
    ["start"] * 4
    + ["step"] * 8
    + ["open", "open", "fork", "leave", "close", "cut", "join", "join", "expect", "evict", "compact"]
)


def play(world: World, acts: list[tuple[str, int]]) -> None:
    """Do it all, with a check after every operation; then let everything come to its end."""
    for act, number in acts:
        if act == "step":
            world.step()
        elif act in ("open", "fork", "join") and len(world.contexts) > 9:
            continue
        elif act == "open":
            world.contexts.append(Context(Lease(world.pool), []))
        elif act == "evict":
            world.pool.tree.evict(number % 100)
        elif act == "compact":
            world.pool.arena.compact()
        elif act == "start":
            rng = random.Random(number % 5)  # few texts, so that contexts meet
            world.start(number, [rng.randrange(2) for _ in range(1 + number % 90)])
        else:
            {
                "fork": world.fork,
                "leave": world.leave,
                "close": world.close,
                "cut": world.cut,
                "join": world.join,
                "expect": world.expect,
            }[act](number)
        world.settle()
        world.check()
    for _ in range(3000):
        if not len(world.scheduler):
            break
        world.step()
        world.settle()
    assert len(world.scheduler) == 0, "nothing moves any more"
    while world.hints:
        world.pool.tree.expect(world.hints.pop(), -1)
    for one in world.contexts:
        one.lease.release()
    world.pool.check()
    assert (world.pool.live_bytes, world.pool.live_leases) == (0, 0)
    world.pool.tree.evict(world.pool.arena.slots)
    assert world.pool.arena.used == 0


def world_of(slots: int, *, cache: bool = True, order: Order = "prefix", forks: Forks = "together") -> World:
    pool = Pool(LAYOUT, slots * LAYOUT.bytes_per_token, cache=cache, poison=True)
    return World(pool, Scheduler(pool, Policy(order, forks), Metrics(), 40, 12))


def scenario(seed: int = 5, length: int = 200) -> list[tuple[str, int]]:
    """A run in which everything happens."""
    rng = random.Random(seed)
    return [(rng.choice(ACTS), rng.randrange(100_000)) for _ in range(length)]


@pytest.mark.parametrize("seed", range(20))
def test_random_operations(seed: int) -> None:
    rng = random.Random(seed)
    order: Order = rng.choice(["prefix", "fcfs", "random"])
    forks: Forks = rng.choice(["together", "sequential"])
    slots = [70, 160, 320, 2000][seed % 4]
    play(world_of(slots, cache=rng.random() < 0.7, order=order, forks=forks), scenario(seed, 90))


# -- what the checks are worth: each of these has been a fault of some engine ----------------------------------------


def test_the_scenario_itself_is_sound() -> None:
    world = world_of(160)
    play(world, scenario())
    assert world.pool.tree.evicted > 0 and world.pool.parked > 0
    assert world.scheduler._metrics.preempted > 0


def test_a_duplicate_that_is_freed_under_its_reader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two that computed the same frees its copy and goes on reading it."""
    publish = Lease.publish

    def stale(self: Lease) -> None:
        tail, kept, before = self.tail, self.tail_length, self.node
        publish(self)
        if tail is not None and kept and self.node.end == len(self.ids) and tail not in self.pool.arena._live:
            self._move(before)
            self.tail, self._tail_length = tail, kept

    monkeypatch.setattr(Lease, "publish", stale)
    with pytest.raises(AssertionError):
        play(world_of(2000), scenario(9, 300))


def test_a_span_that_is_freed_too_early_is_poison_to_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where all the books agree: what was freed reads as NaN."""
    pool = world_of(100).pool
    lease = Lease(pool)
    lease.reserve(4)
    write(lease, [1, 0, 1, 0])
    lease.append([1, 0, 1, 0])
    assert_reads(lease)
    assert lease.tail is not None
    pool.arena._fill(lease.tail.start, 4)
    with pytest.raises(AssertionError, match="of none"):
        assert_reads(lease)


FAULTS = {
    "a node loses one lock too many": ("unlock", 2),
    "a node is locked twice": ("lock", 2),
    "a fork does not lock": ("lock", 0),
    "a release does not unlock": ("unlock", 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_locks_that_do_not_match_are_found(fault: str) -> None:
    name, times = FAULTS[fault]
    world = world_of(160)
    real = getattr(world.pool.tree, name)

    def wrong(node: Node) -> None:
        for _ in range(times):
            real(node)

    setattr(world.pool.tree, name, wrong)
    with pytest.raises(AssertionError):
        play(world, scenario())


def test_spans_that_leak_or_overlap_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(160)
    monkeypatch.setattr(world.pool.arena, "release", lambda span: None)
    with pytest.raises(AssertionError):
        play(world, scenario())
    world = world_of(160)
    real = world.pool.arena.allocate

    def overlapping(length: int, after: Span | None = None) -> Span | None:
        span = real(length, after)
        if span is not None and span.start:
            span.start -= 1
        return span

    monkeypatch.setattr(world.pool.arena, "allocate", overlapping)
    with pytest.raises(AssertionError):
        play(world, scenario())

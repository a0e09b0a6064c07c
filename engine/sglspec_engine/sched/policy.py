"""In which order works that wait are let in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from sglspec_engine.config import Forks, Order
from sglspec_engine.kv.radix import common_prefix
from sglspec_engine.sched.work import Work

_AGING = 64
"""Tokens of cached prefix that one round of waiting outweighs: whoever waits comes first in the end."""
_WORTHWHILE = 32
"""Tokens of a common prefix from where it pays to wait until another one has computed them."""
_MANY = 128
"""Works up to which prefixes are compared; with more of them the order of arrival has to do."""


@dataclass(frozen=True, slots=True)
class Policy:
    """order: by arrival, by the longest cached prefix (with aging), or at random (the same one in every run).
    forks: requests of one fork's branches are let in next to each other, or never run at the same time."""

    order: Order = "prefix"
    forks: Forks = "together"

    def sort(self, waiting: Sequence[Work]) -> list[Work]:
        """All of `waiting`, those to be let in first in front."""
        keys = {work: self._key(work, len(waiting)) for work in waiting}
        if self.forks == "together":
            first: dict[object, tuple[float, int]] = {}
            for work, key in keys.items():
                if work.lease.gang is not None:
                    first[work.lease.gang] = min(key, first.get(work.lease.gang, key))
            keys = {work: first.get(work.lease.gang, key) if work.lease.gang else key for work, key in keys.items()}
        return sorted(waiting, key=lambda work: (keys[work], work.arrival))

    def must_wait(self, work: Work, running: Sequence[Work]) -> bool:
        """Whether `work`, whose lease is aligned, had better wait for one that runs: a sibling where those come one by
        one, or one that is just computing the same prefix."""
        alone = self.forks == "sequential" and work.lease.gang is not None
        if alone and any(other.lease.gang is work.lease.gang for other in running):
            return True
        return any(_computes_for(other, work) for other in running)

    def _key(self, work: Work, count: int) -> tuple[float, int]:
        if self.order == "random":
            return (random.Random(work.arrival).random(), 0)
        if self.order == "fcfs" or count > _MANY:
            return (0.0, work.arrival)
        cached = work.lease.node.end + work.lease.pool.tree.match(work.lease.node, work.known[work.lease.node.end :])
        return (-float(cached + _AGING * work.waited), work.arrival)


def _computes_for(other: Work, work: Work) -> bool:
    if other.lease.length > other.wanted_from or not other.lease.shared:
        return False
    if other.lease.node.root is not work.lease.node.root:
        return False
    common = common_prefix(other.known[: other.wanted_from], work.known[: work.wanted_from])
    return common - work.lease.length >= _WORTHWHILE

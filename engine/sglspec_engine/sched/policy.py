"""In which order works that wait are let in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from sglspec_engine.config import Forks, Order
from sglspec_engine.kv.radix import common_prefix
from sglspec_engine.sched.work import Work

_FAIR = 64
"""Later works that one may be overtaken by; then it is the first."""
_WORTHWHILE = 32
"""Tokens of a common prefix from where it pays to wait until another one has computed them."""


@dataclass(frozen=True, slots=True)
class Policy:
    """order: by arrival, by the longest cached prefix (which is a depth-first walk of the prefixes, so a cache that
    holds one path of them is enough), or at random (the same one in every run). forks: requests of one fork's branches
    are let in next to each other, or never run at the same time."""

    order: Order = "prefix"
    forks: Forks = "together"

    def sort(self, waiting: Sequence[Work]) -> list[Work]:
        """All of `waiting`, those to be let in first in front."""
        keys = {work: self._key(work) for work in waiting}
        if self.forks == "together":
            first: dict[object, tuple[float, int]] = {}
            for work, key in keys.items():
                if work.lease.gang is not None:
                    first[work.lease.gang] = min(key, first.get(work.lease.gang, key))
            keys = {work: first.get(work.lease.gang, key) if work.lease.gang else key for work, key in keys.items()}
        return sorted(waiting, key=lambda work: (keys[work], work.arrival))

    def deferral(self, work: Work, running: Sequence[Work]) -> int | None:
        """None where `work`, whose lease is aligned, may begin. Else it had better wait for one that runs: a sibling
        where those come one by one, or one that is just computing the same prefix; then the tokens that it need not
        compute itself."""
        alone = self.forks == "sequential" and work.lease.gang is not None
        if alone and any(other.lease.gang is work.lease.gang for other in running):
            return work.todo
        gains = [_gain(work, other) for other in running]
        best = max(gains, default=0)
        return best if best >= _WORTHWHILE else None

    def _key(self, work: Work) -> tuple[float, int]:
        if self.order == "random":
            return (random.Random(work.arrival).random(), 0)
        if self.order == "fcfs" or work.overtaken >= _FAIR:
            return (float("-inf"), work.arrival)
        return (-float(work.found), work.arrival)


def _gain(work: Work, other: Work) -> int:
    """Tokens that `work` finds computed once `other`, which runs, has come to its first logits."""
    at, end = work.lease.length, min(work.wanted_from, other.wanted_from)
    if other.lease.length > other.wanted_from or end - at < _WORTHWHILE:
        return 0
    # Most works have nothing in common: a look at a few tokens spares a look at all.
    if work.known[at : at + _WORTHWHILE] != other.known[at : at + _WORTHWHILE]:
        return 0
    if not other.lease.shared or other.lease.node.root is not work.lease.node.root:
        return 0
    return common_prefix(other.known[:end], work.known[:end]) - at

"""How much work something is, without a clock: the same on every machine, whatever else it does."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def calls_of(work: Callable[[], T]) -> tuple[T, int]:
    """What `work` returns, and how many function calls it took."""
    profile = cProfile.Profile()
    result = profile.runcall(work)
    return result, sum(entry.callcount for entry in profile.getstats())

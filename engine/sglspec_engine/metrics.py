"""Counters of one engine, written by the owner thread only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Metrics:
    """Totals since load.

    embedded_tokens: rows that went through the embedding, counted by a hook on that layer, so it is what the model
    really computed and not what was planned. forwards: calls of the model. steps: rounds of the loop that ran
    the model. requests, failed, cancelled: requests taken, and how those ended that did not end well.
    seconds: time inside the model. preempted: how often a work lost its memory to an older one. deferred: works that
    waited for another one to compute what they begin with, or for a sibling. evicted: cached tokens that gave way.
    parked: idle contexts that had to give their memory back. Of hints: announced: uses of cached prefixes that were
    known to come; transient: tokens that were cached as the first to go; dropped: tokens that were freed as nobody was
    going to need them; grammars_ahead: grammars that were compiled before they were asked for.
    """

    embedded_tokens: int = 0
    forwards: int = 0
    steps: int = 0
    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    sampled_tokens: int = 0
    forced_tokens: int = 0
    largest_batch: int = 0
    preempted: int = 0
    deferred: int = 0
    evicted: int = 0
    parked: int = 0
    announced: int = 0
    transient: int = 0
    dropped: int = 0
    grammars_ahead: int = 0
    seconds: float = 0.0

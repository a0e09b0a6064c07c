"""The least that a run can compute: every token that it puts before the model once, in its place."""

from __future__ import annotations

from collections.abc import Iterable

from sglspec.backends.base import Asked


def optimal_tokens(asked: Iterable[Asked]) -> int:
    """How many different beginnings these token sequences have: the nodes of their trie, as each node's keys and
    values depend on all tokens before it and on nothing else. What a join has brought along counts for nothing."""
    spaces: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    for one in asked:
        spaces.setdefault((one.space, one.given), set()).add(one.ids)
    return sum(_nodes(ids) - given for (_, given), ids in spaces.items())


def _nodes(sequences: Iterable[tuple[int, ...]]) -> int:
    """Nodes of a trie: in order, each sequence adds what it does not share with the one before it."""
    total = 0
    last: tuple[int, ...] = ()
    for ids in sorted(sequences):
        total += len(ids) - _shared(last, ids)
        last = ids
    return total


def _shared(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    return next(i for i in range(limit) if first[i] != second[i])


__all__ = ["optimal_tokens"]

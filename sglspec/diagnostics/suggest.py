"""Did you mean …? The nearest known word to one that is not known."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_DISTANCE = 2
_MAX_LENGTH = 64


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` is most likely a slip of, or None.

    At most two slips (a letter too many, missing, wrong, or two swapped) and at most one per three letters; case
    does not count. Among equals one that starts with the same letters wins, then the earlier one.
    """
    if len(word) > _MAX_LENGTH:
        return None
    wanted = word.casefold()
    allowed = min(_MAX_DISTANCE, (len(wanted) + 1) // 3)
    best: tuple[int, int] | None = None
    found: str | None = None
    for candidate in candidates:
        folded = candidate.casefold()
        if candidate == word or abs(len(folded) - len(wanted)) > allowed:
            continue
        distance = _distance(wanted, folded)
        if distance > allowed:
            continue
        rank = (distance, -common_prefix(wanted, folded))
        if best is None or rank < best:
            best, found = rank, candidate
    return found


def common_prefix(a: str, b: str) -> int:
    """How many letters two words begin with in common."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _distance(a: str, b: str) -> int:
    """Damerau-Levenshtein distance in its optimal-string-alignment form."""
    before: list[int] = []
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, previous = previous, row
    return previous[-1]

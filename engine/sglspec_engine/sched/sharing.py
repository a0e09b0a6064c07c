"""Rows of one step that begin alike: what they share is computed once, in the first of them.

Branches that begin with the same words, or that draw the same first tokens, ask for the same keys and values at the
same time. A row that follows another one sees that one's tokens as if they had been there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sglspec_engine.kv.radix import Node, common_prefix
from sglspec_engine.step import Row


def share(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows, each told which one before it has the most tokens in common with it. Only what begins right behind the
    same node is compared: with a tail of its own, a lease has parted from the others."""
    found: list[Row] = []
    behind: dict[Node, list[Row]] = {}
    for row in rows:
        lease = row.work.lease
        if row.ids and not lease.tail_length:
            others = behind.setdefault(lease.node, [])
            row = _led(row, others)
            others.append(row)
        found.append(row)
    return tuple(found)


def _led(row: Row, others: Sequence[Row]) -> Row:
    leader, shared = None, 0
    for other in others:
        if other.ids[0] != row.ids[0]:
            continue
        common = min(common_prefix(other.ids, row.ids), other.work.in_line, row.work.in_line)
        if common > shared:
            leader, shared = other, common
    return row if leader is None else replace(row, leader=leader, shared=shared)

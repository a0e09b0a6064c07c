"""Contexts put one behind the other without computing them again.

Keys move to the positions they now have, values stay as they are. Every piece was computed without seeing those that
now precede it, so the result is not what a computation would give: it lives below a root of its own, where no exact
context finds it, and it is pinned, because it could not be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool
from sglspec_engine.types import EngineError

Rotate = Callable[[int, torch.Tensor, int], torch.Tensor]
"""(layer, keys [heads, n, dim], positions to move by) → keys [heads, n, dim]."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens `start` to `end` of a lease."""

    lease: Lease
    start: int
    end: int


def join(pool: Pool, pieces: Sequence[Piece], rotate: Rotate) -> Lease:
    """A new, pinned lease on the pieces' tokens, one behind the other. Raises EngineError("limit") where memory is
    short, also where a piece had to be given up for lack of it."""
    ids = [id for piece in pieces for id in piece.lease.ids[piece.start : piece.end]]
    if len(ids) != sum(piece.end - piece.start for piece in pieces):
        raise EngineError("limit", "memory for keys and values ran out before the branches were joined")
    lease = Lease(pool, pool.tree.private_root())
    lease.pinned = True
    was = [(piece.lease, piece.lease.busy) for piece in pieces]
    try:
        for piece in pieces:
            piece.lease.busy = True
        lease.reserve(len(ids))
    except EngineError:
        lease.release()
        raise
    finally:
        for source, busy in was:
            source.busy = busy
    for layer in range(len(pool.layout.layers)):
        keys: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        at = 0
        for piece in (p for p in pieces if p.end > p.start):
            views = piece.lease.views(layer, 0)
            own = torch.cat([k for k, _ in views], dim=1)[:, piece.start : piece.end]
            keys.append(rotate(layer, own, at - piece.start))
            values.append(torch.cat([v for _, v in views], dim=1)[:, piece.start : piece.end])
            at += piece.end - piece.start
        lease.write(layer, torch.cat(keys, dim=1), torch.cat(values, dim=1))
    lease.append(ids)
    return lease

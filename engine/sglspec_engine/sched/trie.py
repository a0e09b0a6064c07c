"""Scoring many continuations of one context: their tokens as a tree, each node computed once.

The nodes are one row of a step, each seeing the context and its ancestors only (tree attention, as in speculative
decoding: Miao et al. 2024, "SpecInfer"). They lie in preorder, so a tree that a step has no room for is cut anywhere:
of what was computed, the ancestors of the next node are kept, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

import torch
from torch import Tensor

from sglspec_engine.attention.base import Tree
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.radix import common_prefix
from sglspec_engine.reply import Cancelled
from sglspec_engine.sched.work import Work

_AHEAD = 512
"""Nodes that a work says it has to compute next: it never holds more than those and a path."""
_ROOT = -1
"""The node that stands for the context."""


@dataclass(frozen=True, slots=True)
class Trie:
    """Token sequences as a tree. Last tokens are no nodes: nothing is asked of what would follow them.

    tokens, parents: per node, in preorder. paths: per sequence and token, the node it comes after.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]

    def ancestors(self, node: int) -> list[int]:
        """The nodes above one, from the top."""
        found: list[int] = []
        while (node := self.parents[node]) != _ROOT:
            found.append(node)
        return found[::-1]


def build_trie(sequences: Sequence[tuple[int, ...]]) -> Trie:
    """The trie of token sequences, none of them empty."""
    tokens: list[int] = []
    parents: list[int] = []
    paths: dict[int, tuple[int, ...]] = {}
    above: list[int] = []
    last: tuple[int, ...] = ()
    for index in sorted(range(len(sequences)), key=lambda i: sequences[i]):
        ids = sequences[index]
        del above[min(common_prefix(last, ids), len(ids) - 1) :]
        for token in ids[len(above) : -1]:
            parents.append(above[-1] if above else _ROOT)
            above.append(len(tokens))
            tokens.append(token)
        paths[index] = (_ROOT, *above)
        last = ids
    return Trie(tuple(tokens), tuple(parents), tuple(paths[i] for i in range(len(sequences))))


class TrieWork(Work):
    """Compute a context and a trie behind it, as far as log-probabilities need it; then call `done` with this work.

    Without a context, nothing predicts first tokens: their log-probability counts as 0.
    """

    def __init__(
        self,
        lease: Lease,
        context: Sequence[int],
        sequences: Sequence[tuple[int, ...]],
        done: Callable[[TrieWork], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._trie = build_trie(sequences)
        self._sequences = sequences
        self._context = len(context)
        self._done = done
        self._failed = failed
        self._next = 0
        self._fresh = range(0)
        self._path: list[int] = []
        # _next: the first node that was not computed. _fresh: those of the step that is being committed. _path: the
        # nodes that the lease holds behind the context, the ancestors of the next one.
        super().__init__(lease, [*context, *self._trie.tokens[:_AHEAD]], max(0, len(context) - 1))
        self._wanted: dict[int, dict[int, float]] = {}
        for path, ids in zip(self._trie.paths, sequences, strict=True):
            for node, token in zip(path, ids, strict=True):
                self._wanted.setdefault(node, {})[token] = 0.0
        # _wanted: per node, tokens that may follow and their log-probabilities, 0 until they are known.

    @property
    def logprobs(self) -> list[tuple[float, ...]]:
        """Per sequence, those of its tokens."""
        pairs = zip(self._trie.paths, self._sequences, strict=True)
        return [tuple(self._wanted[n][t] for n, t in zip(path, ids, strict=True)) for path, ids in pairs]

    def align(self) -> None:
        """See `Work`. Logits that the lease has kept of the context's end are used."""
        logits = self.lease.logits
        if self.wanted_from < self._context and logits is not None and self.lease.ids == self.known[: self._context]:
            self._read([_ROOT], logits[-1:])
            self.wanted_from = self._context
        super().align()

    def tree(self, count: int) -> Tree | None:
        """See `Work`."""
        start = self.lease.length
        chain = min(count, self._trunk - start)
        nodes = range(self._next, self._next + count - chain)
        parents = self._trie.parents
        if all(parents[node] == before for before, node in pairwise(nodes)):
            return None
        positions = list(range(start, start + count))
        reach = [start] * count
        seen = torch.ones(count, count, dtype=torch.bool).tril_()
        before = torch.arange(start, start + count)
        for row, node in enumerate(nodes, chain):
            above = parents[node] - self._next + chain
            if parents[node] >= self._next:
                positions[row], reach[row], seen[row] = positions[above] + 1, reach[above], seen[above]
            else:
                depth = 0 if parents[node] == _ROOT else self._path.index(parents[node]) + 1
                positions[row] = self._context + depth
                reach[row] = min(start, positions[row])
                seen[row] = before < positions[row]
                seen[row, chain:] = False
            seen[row, row] = True
        return Tree(torch.tensor(positions), torch.tensor(reach), seen)

    @property
    def in_line(self) -> int:
        """See `Work`."""
        return max(0, self._context - self.lease.length)

    def advance(self, ids: Sequence[int], shared: int = 0) -> None:
        """See `Work`. Nodes are not counted as the lease's tokens before it is known which are kept; only the context
        is published."""
        start = self.lease.length
        chain = ids[: max(0, self._trunk - start)]
        self._join(shared)
        if chain:
            self.lease.append(chain, shared)
        self._count(len(ids) - shared)
        if start < self._context <= self.lease.length:
            self.lease.publish_only(self._context)
        self._fresh = range(self._next, self._next + len(ids) - len(chain))

    def take(self, logits: Tensor) -> list[Work]:
        """See `Work`."""
        nodes = [*([_ROOT] if len(logits) > len(self._fresh) else []), *self._fresh]
        self._read(nodes, logits)
        self._next = self._fresh.stop if self._fresh else self._next
        tokens = self._trie.tokens
        if self._next < len(tokens):
            self._keep(self._trie.ancestors(self._next))
            ahead = tokens[self._next : self._next + _AHEAD]
            self.known[self._context :] = [*(tokens[node] for node in self._path), *ahead]
            self.wanted_from = self._trunk
            return [self]
        self.closed = True
        self._done(self)
        return []

    def keep(self, best: int | None) -> None:
        """At the end: leave the beginning of one sequence (None: of none) in the lease, as far as it is still there,
        and give up the others'."""
        if not self.lease.released:
            self._keep(self._trie.paths[best][1:] if best is not None else ())

    def fail(self, error: BaseException) -> None:
        """See `Work`."""
        if not self.closed:
            self.closed = True
            self._failed(error)

    def cancel(self) -> None:
        """See `Work`."""
        self.fail(Cancelled())

    @property
    def _trunk(self) -> int:
        """Tokens that follow one another: the context and the path."""
        return self._context + len(self._path)

    def _read(self, nodes: Sequence[int], logits: Tensor) -> None:
        """Look up what is wanted of the logits [n, vocabulary] after n nodes."""
        wanted = [(row, node, token) for row, node in enumerate(nodes) for token in self._wanted.get(node, ())]
        if wanted:
            rows, tokens = [row for row, _, _ in wanted], [token for _, _, token in wanted]
            found = logits[rows, tokens] - torch.logsumexp(logits, dim=-1)[rows]
            for (_, node, token), value in zip(wanted, found, strict=True):
                self._wanted[node][token] = float(value)

    def _keep(self, path: Sequence[int]) -> None:
        """Make the lease the context and the nodes of a path, up to the first one that it has not got."""
        held = common_prefix(self._path, list(path))
        if not self._fresh and held == len(self._path):
            return
        fresh = list(takewhile(lambda node: node in self._fresh, path[held:]))
        ids = [self._trie.tokens[node] for node in fresh]
        length = min(self._context + held, self.lease.length)
        self.lease.graft(length, ids, [node - self._fresh.start for node in fresh])
        self._path = [*path[:held], *fresh]
        self._fresh = range(0)

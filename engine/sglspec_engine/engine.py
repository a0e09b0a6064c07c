"""An engine: one model, one thread that runs it, and sessions on top.

Everything a caller awaits may be awaited on any event loop. Every request gets exactly one outcome, and what goes
wrong with one concerns that one only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sglspec_engine.agreement import Agreement
from sglspec_engine.attention import select
from sglspec_engine.check import check_engine
from sglspec_engine.config import EngineConfig, prepare_process
from sglspec_engine.constrain import Grammars
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.pool import Pool
from sglspec_engine.kv.rotate import Piece, join
from sglspec_engine.metrics import Metrics
from sglspec_engine.model.adapter import ModelRunner
from sglspec_engine.model.load import LoadedModel, load_model
from sglspec_engine.reply import Reply
from sglspec_engine.sched.generation import Generation, GenerationModel
from sglspec_engine.sched.loop import Loop
from sglspec_engine.sched.policy import Policy
from sglspec_engine.sched.reading import ReadWork
from sglspec_engine.sched.scheduler import Scheduler
from sglspec_engine.sched.work import Prefill, Work
from sglspec_engine.select import Alone, Scoring
from sglspec_engine.session import Session
from sglspec_engine.text.chat import ChatTemplate
from sglspec_engine.text.tokens import Vocabulary
from sglspec_engine.types import Alternative, EngineError, GenRequest, Usage, Vitals


class Engine:
    """One model, ready to serve. `close` it when done; sessions that are still open end with it."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig | None = None) -> None:
        """Take over a loaded model. Raises EngineError("unsupported") for one the engine cannot run right."""
        self.config = config if config is not None else EngineConfig()
        self.name: str = loaded.name
        self.vocabulary: Vocabulary = loaded.vocabulary
        self._chat = loaded.chat
        if self.config.healing:
            self.vocabulary.beyond(b" ")  # the first request would wait for its tables
        self._metrics = Metrics()
        self.resolved = self.config.resolve()
        torch.set_num_threads(self.resolved.threads)
        attention = select.make(self.resolved.attention, self.config.device)
        weights, probe = self.config.weights, self.config.probe
        self._runner = ModelRunner(loaded.model, loaded.config, attention, self._metrics, weights, probe=probe)
        limit, debug = self.resolved.kv_bytes, self.config.debug
        cache, hints = self.config.prefix_cache, self.config.hints
        self.pool = Pool(self._runner.layout, limit, cache=cache, hints=hints, poison=debug)
        warned = tuple(f"warning={loaded.name}: {text}" for text in loaded.report.warnings)
        self.reasons = (*self.resolved.reasons, *self._runner.reasons, *warned)
        """Why everything is as it is, one line `name=value: reason` each."""
        self.max_context = min(loaded.max_context, self.config.max_context or loaded.max_context)
        self._facts = GenerationModel(loaded.vocabulary, loaded.eos_ids, self.max_context, self.config.forced)
        self._grammars = Grammars(loaded.vocabulary, loaded.eos_ids, self.config)
        self._usage = Usage()
        self.alone = Alone()
        policy = Policy(self.config.order, self.config.forks)
        budgets = self.config.step_tokens, self.config.step_logits
        self._scheduler = Scheduler(self.pool, policy, self._metrics, *budgets, self.config.admission)
        after_step = self.pool.check if debug else None
        self._loop = Loop(self._runner, self._scheduler, self._metrics, after_step, self.pool.tidy)
        self._loop.start()

    @classmethod
    def load(cls, path: str | Path, **settings: Any) -> Engine:
        """Load a Hugging Face folder. `settings` are fields of `EngineConfig`.

        Raises EngineError("unsupported") for a model that cannot be served, TypeError and ValueError for settings.
        """
        prepare_process()
        config = EngineConfig(**settings)
        return cls(load_model(Path(path), dtype=config.float_type, device=config.device), config)

    @property
    def metrics(self) -> Metrics:
        """Counters since load."""
        pool, tree = self.pool, self.pool.tree
        return replace(
            self._metrics,
            evicted=tree.evicted,
            parked=pool.parked,
            announced=tree.announced,
            transient=tree.transient,
            dropped=pool.dropped,
            grammars_ahead=self._grammars.ahead,
        )

    @property
    def usage(self) -> Usage:
        """Token counts of everything since load, prefixes that forks computed included."""
        return self._usage

    @property
    def vitals(self) -> Vitals:
        """How it is doing, roughly: it is not stopped to be looked at."""
        metrics, pool, running = self.metrics, self.pool, self._scheduler.running
        cached = pool.tree.cached
        return Vitals(
            alive=self._loop.alive,
            running=running,
            waiting=max(0, len(self._scheduler) - running) + self._loop.compiling,
            still_seconds=self._loop.still,
            live=max(0, pool.arena.used - cached),
            cached=cached,
            capacity=pool.arena.slots,
            usage=self._usage,
            steps=metrics.steps,
            requests=metrics.requests,
            failed=metrics.failed,
            cancelled=metrics.cancelled,
            preempted=metrics.preempted,
            evicted=metrics.evicted,
            seconds=metrics.seconds,
        )

    @property
    def chat(self) -> ChatTemplate:
        """The model's chat template. Raises EngineError("no_template" | "template")."""
        if isinstance(self._chat, EngineError):
            raise EngineError(self._chat.kind, str(self._chat))
        return self._chat

    @property
    def joins_keys(self) -> bool:
        """Whether this model's keys can be moved to other positions, which `concat_kv` needs."""
        return self._runner.rotation is not None

    def open(self) -> Session:
        """A new, empty context."""
        return Session(self, Lease(self.pool))

    async def close(self) -> None:
        """End: requests that are pending fail, the thread ends. Idempotent."""
        self._grammars.close()
        await asyncio.to_thread(self._loop.stop)
        self._runner.close()

    async def check(self) -> None:
        """Raise AssertionError unless the engine's books agree. Runs between two steps."""
        await self.call(lambda: check_engine(self.pool))

    # What sessions ask for. Each returns at once; the outcome comes through the reply.

    def generate(self, work: Generation, request: GenRequest) -> None:
        """Run a generation."""
        if request.grammar is None:
            self._loop.post(lambda: self._loop.add(work), work.fail)
            return
        grammar = self._grammars.compile(request.grammar)
        timeout = self.config.grammar_timeout
        self._loop.post(lambda: self._loop.add_constrained(work, grammar, timeout), work.fail)

    def score(self, scoring: Scoring) -> None:
        """Run a scoring."""

        def start() -> None:
            for work in scoring.works():
                self._loop.add(work)

        self._loop.post(start, scoring.fail)

    def read(self, work: ReadWork) -> None:
        """Run a reading."""
        self._loop.post(lambda: self._loop.add(work), work.fail)

    def fork(self, lease: Lease, known: Sequence[int], n: int, reply: Reply[list[Lease]], loose: int = 0) -> Prefill:
        """Compute a context once and make `n` leases on it. loose: tokens at its end that a generation may take
        back."""

        def done(work: Prefill) -> list[Work]:
            self.count(Usage(0, work.computed, 0, 0, 0))
            leases = [work.lease.fork() for _ in range(n)]
            gang = object()
            for child in leases:
                child.gang = gang
            reply.finish(leases)
            return []

        work = Prefill(lease, known, done, reply.fail, logits=1 + loose)
        self._loop.post(lambda: self._loop.add(work), reply.fail)
        return work

    def compute(self, lease: Lease, known: Sequence[int], reply: Reply[Prefill]) -> Prefill:
        """Compute a context."""

        def done(work: Prefill) -> list[Work]:
            self.count(Usage(0, work.computed, 0, 0, 0))
            reply.finish(work)
            return []

        work = Prefill(lease, known, done, reply.fail, logits=0)
        self._loop.post(lambda: self._loop.add(work), reply.fail)
        return work

    def join(self, pieces: Sequence[Piece]) -> Reply[Lease]:
        """A lease on the pieces one behind the other, without computing them again. Where its caller leaves, it is to
        be abandoned."""
        rotation = self._runner.rotation
        assert rotation is not None
        reply: Reply[Lease] = Reply()
        self._loop.post(lambda: reply.finish(join(self.pool, pieces, rotation)), reply.fail)
        return reply

    def abandon_join(self, reply: Reply[Lease]) -> None:
        """Let go of the lease of a join whose caller left."""

        def abandon() -> None:
            if (lease := reply.value()) is not None:
                lease.release()

        self._loop.post(abandon, reply.fail)

    def measure(self, agreement: Agreement) -> None:
        """Run a measurement."""

        def start() -> None:
            for work in agreement.works():
                self._loop.add(work)

        self._loop.post(start, agreement.fail)

    def abandon(self, work: Prefill, reply: Reply[list[Lease]]) -> None:
        """End a fork whose caller left; leases it has made already are let go of."""

        def abandon() -> None:
            self._loop.cancel(work)
            for lease in reply.value() or []:
                lease.release()

        self._loop.post(abandon, reply.fail)

    def cancel(self, work: Generation | Scoring | ReadWork | Prefill | Agreement) -> None:
        """End a request; its reply settles within one step."""
        self._loop.post(lambda: self._loop.cancel(work), work.fail)

    def prepare(self, grammars: Sequence[str]) -> None:
        """Compile grammars that are going to be asked for. A hint: it never fails, and what does not compile is told to
        who asks for it."""
        if self.config.hints:
            self._grammars.prepare(grammars)

    async def flush(self) -> bool:
        """Forget what no session uses any more. Returns whether nothing was in use."""
        found: list[bool] = []

        def flush() -> None:
            self.pool.tree.evict(self.pool.tree.cached)
            found.append(self.pool.live_leases == 0)

        await self.call(flush)
        return found[0]

    def alternative(self, id: int, logprob: float) -> Alternative:
        """A token with its log-probability."""
        return Alternative(id, self.vocabulary.describe(id), logprob, id in self._facts.ends)

    def compiled(self, grammar: str) -> tuple[float, float] | None:
        """When the compilation of a grammar that is kept began and ended, by `time.monotonic()`."""
        return self._grammars.took(grammar)

    def discard(self, lease: Lease, keep: int) -> None:
        """Let go of a lease; what follows its first `keep` tokens is of no use to anyone."""
        self._loop.post(lambda: lease.discard(keep), lambda _: None)

    def release(self, lease: Lease) -> Reply[None]:
        """Let go of a lease; after the engine's end there is nothing to let go of."""
        reply: Reply[None] = Reply()

        def release() -> None:
            lease.release()
            reply.finish(None)

        self._loop.post(release, lambda _: reply.finish(None))
        return reply

    async def call(self, action: Callable[[], None]) -> None:
        """Run something on the engine's thread between two steps."""
        reply: Reply[None] = Reply()

        def run() -> None:
            action()
            reply.finish(None)

        self._loop.post(run, reply.fail)
        await reply.wait()

    def generation_model(self) -> GenerationModel:
        """What generations must know of the model."""
        return self._facts

    def generation_metrics(self) -> Metrics:
        """The counters that generations write."""
        return self._metrics

    def count(self, usage: Usage) -> None:
        """Add to the engine's usage. On the engine's thread."""
        self._usage += usage

"""A session: a context on an engine, with its keys and values.

The context (`Context`) is a value that operations replace; the lease follows it lazily. When the model is needed, the
context is encoded, the lease keeps what it shares with the result, and the rest is computed. So text that is pending
costs nothing until then, and a fork shares whatever stays the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sglspec_engine.agreement import Agreement
from sglspec_engine.context import Context, Written, without_space
from sglspec_engine.conversation import Conversation
from sglspec_engine.kv.lease import Lease
from sglspec_engine.kv.radix import common_prefix
from sglspec_engine.kv.rotate import Piece
from sglspec_engine.reply import Reply, Stream
from sglspec_engine.sched.generation import Committed, Generation
from sglspec_engine.sched.healing import loose_tokens
from sglspec_engine.sched.reading import ReadWork
from sglspec_engine.sched.work import Prefill
from sglspec_engine.select import Scoring, asked, shared_length, split_choices
from sglspec_engine.text.tokens import Part
from sglspec_engine.types import (
    Asked,
    Delta,
    EngineError,
    GenRequest,
    Method,
    Observed,
    Origin,
    Reading,
    Role,
    RoleOpen,
    Scores,
    Segment,
    TextSegment,
    TraceToken,
    Usage,
)

if TYPE_CHECKING:
    from sglspec_engine.engine import Engine

T = TypeVar("T")

_SPACES = count(1)
"""A number for each join whose keys and values are of its own."""


class Session:
    """A context. Not for two operations at once; forks are independent of each other.

    Every method raises EngineError for what cannot be served and leaves the context as it was then.
    """

    def __init__(self, engine: Engine, lease: Lease, parent: Session | None = None) -> None:
        self._engine = engine
        self._lease = lease
        self._context = parent._context if parent else Context()
        self._base = len(self._context.log)
        self._outer = parent._base if parent else 0
        self._role: Role | None = parent._role if parent else None
        self._bare: bool = parent._bare if parent else False
        self._lead = parent._lead if parent else 0
        self._talk: Conversation | None = parent._talk if parent else None
        self._base_talk = self._talk
        self._usage = Usage()
        self._watch: Observed | None = parent._watch if parent else None
        self._space: tuple[int, int] = parent._space if parent else (0, 0)
        self._running: Reply[Any] | None = None
        self._abort: Callable[[], None] = _nothing
        self._asked = lease.length
        self._retired = False
        self._open = True
        # _base: log entries that came from the parent. _outer: those that the parent had from its own. _role: the open
        # message. _bare: nothing was added to it yet. _lead: leading log entries that only the very first message or
        # text of a context brings along. _asked: tokens that the last request went on from, or that came from the
        # parent. _talk: the messages, where the chat template writes them anew; the context's history follows from
        # them. _watch: who observes it. _space: see `Asked`, with the number of tokens that are given.

    @property
    def usage(self) -> Usage:
        """Token counts of this session's requests, and of the prefixes its forks computed."""
        return self._usage

    def text(self) -> str:
        """The whole context as text, template markup included; control tokens by their names."""
        return self._context.text(self._engine.vocabulary)

    def trace(self) -> list[TraceToken]:
        """The context's tokens, each with where it came from."""
        return self._context.trace(self._engine.vocabulary)

    def observe(self, observed: Observed) -> None:
        """From now on note what this session and its forks do."""
        self._watch = observed

    async def extend(self, segments: Sequence[Segment]) -> None:
        """Append text or role boundaries. Nothing is computed before the model is needed."""
        await self._settle()
        saved = (self._context, self._role, self._bare, self._lead, self._talk)
        try:
            for segment in segments:
                if isinstance(segment, TextSegment):
                    self._write_text(segment)
                elif isinstance(segment, RoleOpen):
                    self._open_role(segment.role)
                else:
                    self._close_role()
            if self._talk is not None:
                self._render(self._talk)
        except EngineError:
            self._context, self._role, self._bare, self._lead, self._talk = saved
            raise

    async def extend_tokens(self, ids: Sequence[int]) -> None:
        """Append tokens as they are: nothing is encoded, no BOS is put before them, and control tokens are what they
        are. For callers who write the whole context; text of users goes through `extend`."""
        await self._settle()
        if self._talk is not None or self._role is not None:
            raise EngineError("unsupported", "tokens cannot be written into a message")
        self._known_ids(ids)
        self._context = self._context.splice(
            self._context.encode(self._engine.vocabulary), [(id, "input") for id in ids]
        )

    async def read(self, start: int, top: int = 0, watched: Sequence[int] = ()) -> Reading:
        """How likely each token of the context is, from token `start` (at least 1) to the place behind the last one;
        the context does not change. top, watched: as `alternatives` and `watched` in GenRequest."""
        await self._settle()
        prompt = self._prompt()
        if not 1 <= start <= len(prompt):
            raise EngineError("unsupported", f"reading begins at a token from 1 to {len(prompt)}, not at {start}")
        self._known_ids(watched)
        self._note([prompt])
        reply: Reply[Reading] = Reply()
        vocabulary, describe = self._engine.vocabulary, self._engine.alternative
        work = ReadWork(self._lease, prompt, start, top, watched, vocabulary.size, describe, reply, self._count)
        self._asked = len(prompt)
        self._engine.read(work)
        return await self._outcome(reply, lambda: self._engine.cancel(work))

    async def generate(self, request: GenRequest) -> AsyncGenerator[Delta, None]:
        """Append generated text. Closing the iterator cancels the generation within one step; the context then holds
        what was committed. The text of an end or end-of-turn token is not part of the context."""
        await self._settle()
        self._known_ids(request.watched)
        engine = self._engine
        prompt = self._prompt()
        stream = Stream()
        model, metrics = engine.generation_model(), engine.generation_metrics()
        tail = self._tail(self._outer if request.over_fork else self._base)
        work = Generation(request, model, self._lease, prompt, stream, self._committed, metrics, tail)
        self._running, self._abort = stream, lambda: engine.cancel(work)
        self._asked = len(prompt)
        engine.generate(work, request)
        try:
            while True:
                delta = await stream.get()
                yield delta
                if delta.finish is not None:
                    return
        finally:
            if not stream.done:
                self._abort()
            await stream.settled()
            self._note(work.asked)
            self._note_compiled(request.grammar)

    async def score(self, choices: Sequence[str], method: Method, label: str = "") -> Scores:
        """Score continuations; the context does not change. `label` is for other backends."""
        await self._settle()
        if not choices:
            raise EngineError("unsupported", "there are no choices to score")
        vocabulary = self._engine.vocabulary
        base = self._started()
        if self._talk is not None:
            base = base.become(self._talk.entries(self._engine.chat, text=True), vocabulary)
        context = base.encode(vocabulary)
        encoded = [base.encode(vocabulary, choice) for choice in choices]
        if context and shared_length(encoded, context) < 1:
            # The context melts into the choices' first tokens: nothing is left to predict those from. Keep them apart.
            encoded = [[*context, *vocabulary.encode_content(choice, after="text")] for choice in choices]
        start = vocabulary.encode(vocabulary.start_parts())
        split = split_choices(encoded, context, start)
        self._limit(max(len(ids) for ids in encoded))
        reply: Reply[Scores] = Reply()
        self._note(asked(split, method))
        scoring = Scoring(split, method, self._lease, reply, self._count, self._engine.alone)
        self._asked = len(split.context)
        self._engine.score(scoring)
        return await self._outcome(reply, lambda: self._engine.cancel(scoring))

    async def fork(self, n: int) -> list[Session]:
        """`n` copies that share everything so far. The context is computed once, here, if it is not yet."""
        await self._settle()
        if n < 0:
            raise EngineError("unsupported", "a fork cannot have a negative width")
        known = self._started().encode(self._engine.vocabulary)
        if not known or n == 0:
            return [Session(self._engine, Lease(self._engine.pool), self) for _ in range(n)]
        self._limit(len(known))
        self._note([known])
        reply: Reply[list[Lease]] = Reply()
        loose = loose_tokens(self._engine.vocabulary, known, self._tail(self._base))
        work = self._engine.fork(self._lease, known, n, reply, loose)
        self._asked = len(known)
        leases = await self._outcome(reply, lambda: self._engine.abandon(work, reply))
        self._usage += Usage(0, work.computed, 0, 0, 0)
        return [Session(self._engine, lease, self) for lease in leases]

    async def concat(self, branches: Sequence[Session], mode: Literal["concat", "concat_kv"]) -> float | None:
        """Append what each branch added since it was forked, in order, as if it had been written here.

        Sampled tokens keep their ids; text is encoded where it now stands. What differs is computed when next needed.
        With "concat_kv" the branches' tokens are taken as they are, and what was computed for them is moved here: they
        do not see each other. Raises EngineError("unsupported") where the model's keys cannot be moved, or where a
        branch's text melts into a token of the text before it. Returns what `measure_joins` asks for, else None.
        """
        for one in (self, *branches):
            await one._settle()
        divergence = None
        if mode == "concat_kv":
            divergence = await self._concat_kv(branches)
        else:
            self._replay(branches)
        if branches:
            self._role, self._bare = branches[-1]._role, branches[-1]._bare
        return divergence

    def _replay(self, branches: Sequence[Session]) -> None:
        """Write what the branches wrote."""
        if self._talk is not None or any(branch._talk is not None for branch in branches):
            talk = self._talk or Conversation()
            for branch in branches:
                base = branch._base_talk or Conversation()
                if branch._talk is None and not branch._context.empty:
                    message = "with this model's chat template branches begin all with a system message, or none does"
                    raise EngineError("template", message)
                talk = talk.join(branch._talk or base, base)
            self._render(talk)
            return
        found = self._context
        for branch in branches:
            # A first message brings BOS and the default system message along; the second of two brings none.
            skip = branch._lead if branch._base == 0 and not found.empty else 0
            found = found.replay(branch._context.log[branch._base + skip :], self._engine.vocabulary)
        if self._context.empty:
            self._lead = next((b._lead for b in branches if not b._context.empty), 0)
        self._context = found

    async def _concat_kv(self, branches: Sequence[Session]) -> float | None:
        """Concatenate keys and values; see `concat`."""
        if not self._engine.joins_keys:
            raise EngineError("unsupported", "this model's keys cannot be moved to other positions")
        if self._talk is not None or any(branch._talk is not None for branch in branches):
            raise EngineError("unsupported", "this model's chat template writes earlier messages anew")
        pieces, found, lead = self._pieces(branches)
        if found is self._context:
            return None
        self._limit(len(found.ids))
        await _together([one._compute() for one in (self, *branches)])
        joining = self._engine.join(pieces)
        lease = await self._outcome(joining, lambda: self._engine.abandon_join(joining))
        try:
            divergence = await self._measure(lease, found.ids) if self._engine.config.measure_joins else None
        except BaseException:
            self._engine.release(lease)
            raise
        self._engine.release(self._lease)
        self._lease, self._context, self._lead = lease, found, lead
        self._space = next(_SPACES), len(found.ids)
        self._asked = len(found.ids)
        return divergence

    def _pieces(self, branches: Sequence[Session]) -> tuple[list[Piece], Context, int]:
        """What is put one behind the other, the context that it gives (this one where the branches added nothing), and
        the leading entries of its log."""
        vocabulary = self._engine.vocabulary
        own = self._context.encode(vocabulary)
        pieces = [Piece(self._lease, 0, len(own))]
        found, lead = self._context, self._lead
        for branch in (branch for branch in branches if not branch._context.empty):
            ids = branch._context.encode(vocabulary)
            tokens: list[tuple[int, Origin]] = [(token.id, token.origin) for token in branch.trace()]
            opening = Context().replay(branch._context.log[: branch._lead], vocabulary).encode(vocabulary)
            shared = own or opening
            if ids[: len(shared)] != shared:
                raise EngineError("unsupported", "a branch's text melts into the last token before the fork")
            if found.empty and opening:
                # Apart from the rest, because the first text here may turn out to be a later one elsewhere.
                found, lead = found.splice([], tokens[: len(opening)]), 1
                pieces.append(Piece(branch._lease, 0, len(opening)))
            found = found.splice(found.encode(vocabulary), tokens[len(shared) :])
            pieces.append(Piece(branch._lease, len(shared), len(ids)))
        return pieces, found, lead

    async def _measure(self, joined: Lease, ids: Sequence[int]) -> float:
        reply: Reply[float] = Reply()
        agreement = Agreement(joined, ids, reply, self._count)
        self._engine.measure(agreement)
        return await self._outcome(reply, lambda: self._engine.cancel(agreement))

    async def _compute(self) -> None:
        """Compute the context as it is."""
        reply: Reply[Prefill] = Reply()
        known = self._context.encode(self._engine.vocabulary)
        self._note([known])
        work = self._engine.compute(self._lease, known, reply)
        done = await self._outcome(reply, lambda: self._engine.cancel(work))
        self._usage += Usage(0, done.computed, 0, 0, 0)

    def retire(self) -> None:
        """Say that no request follows, and that nobody goes on from this context. A hint: what no other request has
        gone on from is freed now, the rest is cache. Text, trace and usage stay; `close` has to follow."""
        if self._open and (self._running is None or self._running.done) and self._engine.config.hints:
            self._retired = True
            self._engine.discard(self._lease, self._asked)

    async def close(self) -> None:
        """Let go of keys and values; a request that runs is cancelled first. Idempotent."""
        if not self._open:
            return
        self._open = False
        if self._running is not None and not self._running.done:
            self._abort()
        await self._engine.release(self._lease).wait()

    # Writing text and scaffolding.

    def _write_text(self, segment: TextSegment) -> None:
        text = segment.text
        if self._talk is not None:
            if self._role is None:
                raise EngineError("template", "with this model's chat template text stands in messages only")
            if text:
                self._talk = self._talk.write([Written(text, segment.origin)])
            return
        if self._role is not None and self._bare and self._engine.chat.trims(self._role)[0]:
            text = text.lstrip()
        if not text:
            return
        self._context = self._started().write([Written(text, segment.origin)])
        self._bare = False

    def _open_role(self, role: Role) -> None:
        chat = self._engine.chat
        first = self._context.empty and self._talk is None
        if self._talk is not None or (first and chat.anew(role)):
            self._talk = (self._talk or Conversation()).begin(role)
            self._role = role
            return
        parts = chat.open(role, first=first)
        if first:
            self._lead = _lead(parts, chat.open(role, first=False)) if role != "system" else 0
        self._context = self._context.write(_scaffold(parts))
        self._role, self._bare = role, True

    def _close_role(self) -> None:
        if self._role is None:
            raise EngineError("template", "no message is open")
        chat = self._engine.chat
        if self._talk is not None:
            self._talk, self._role = self._talk.end(self._engine.vocabulary), None
            return
        self._context = self._context.without_thinking(self._engine.vocabulary)
        if chat.trims(self._role)[1]:
            self._context = _trim_right(self._context)
        self._context = self._context.write(_scaffold(chat.close(self._role)))
        self._role, self._bare = None, False

    def _render(self, talk: Conversation) -> None:
        """Make the context's history that of messages."""
        self._context = self._context.become(talk.entries(self._engine.chat), self._engine.vocabulary)
        self._talk = talk

    def _started(self) -> Context:
        """The context, with BOS where plain text begins it."""
        if not self._context.empty:
            return self._context
        parts = self._engine.vocabulary.start_parts()
        self._lead = len(parts)
        return self._context.write(_scaffold(parts))

    # Requests.

    async def _settle(self) -> None:
        """Make sure that the request before this one has left the context as it is to be. One that still runs was left
        by its caller (a stream that was neither read to its end nor closed), so it is cancelled."""
        if not self._open or self._retired:
            raise EngineError("internal", "the session is closed")
        if self._running is not None:
            if not self._running.done:
                self._abort()
            await self._running.settled()
            self._running = None

    async def _outcome(self, reply: Reply[T], abort: Callable[[], None]) -> T:
        """What a request ends with; where the caller leaves, it is ended."""
        self._running, self._abort = reply, abort
        try:
            return await reply.wait()
        except asyncio.CancelledError:
            abort()
            raise

    def _prompt(self) -> list[int]:
        self._context = self._started()
        prompt = self._context.encode(self._engine.vocabulary)
        if not prompt:
            raise EngineError("unsupported", "the context is empty, and this model has no token to begin a text with")
        self._limit(len(prompt))
        return prompt

    def _known_ids(self, ids: Sequence[int]) -> None:
        size = self._engine.vocabulary.size
        for id in ids:
            if not 0 <= id < size:
                raise EngineError("unsupported", f"there is no token {id}: this model's tokens are 0 to {size - 1}")

    def _tail(self, since: int) -> bytes:
        """The end of the text that other tokens may spell, from a log entry on."""
        return self._context.loose(since) if self._engine.config.healing else b""

    def _limit(self, length: int) -> None:
        if length > self._engine.max_context:
            limit = self._engine.max_context
            raise EngineError("limit", f"the context has {length} tokens, the model takes {limit}")

    def _committed(self, committed: Committed | None) -> None:
        """What a generation leaves. On the engine's thread, before the outcome is known here."""
        if committed is None:
            return
        if committed.tokens or committed.rest:
            before = len(self._context.log)
            tokens, thought = committed.tokens, committed.thought
            if thought and self._role is None:  # without messages there is no turn to keep the thinking for
                tokens, thought = tokens[thought:], 0
                if self._lease.length > len(committed.prompt):
                    self._lease.truncate(len(committed.prompt))
            text = ""
            if thought < committed.thought:
                text, tokens = without_space(tokens, self._engine.vocabulary)
            if text:
                spaced = self._context.write([Written(text, "generated")])
                prompt = spaced.encode(self._engine.vocabulary)
                self._lease.truncate(common_prefix(self._lease.ids, prompt))
                self._context = spaced.seal(prompt, tokens, committed.rest)
            else:
                self._context = self._context.seal(committed.prompt, tokens, committed.rest, thought, committed.healed)
            self._bare = False
            if self._talk is not None:
                self._talk = self._talk.write(self._context.log[before:])
        self._count(committed.usage)

    def _note(self, asked: Iterable[Sequence[int]]) -> None:
        """Tell who observes what is put before the model."""
        if self._watch is not None:
            self._watch.asked += [Asked(tuple(ids), *self._space) for ids in asked]

    def _note_compiled(self, grammar: str | None) -> None:
        if self._watch is not None and grammar is not None and (took := self._engine.compiled(grammar)) is not None:
            self._watch.compiled[grammar] = took

    def _count(self, usage: Usage) -> None:
        self._usage += usage
        self._engine.count(usage)


def _nothing() -> None:
    return


async def _together(requests: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Await all of them, so that they may run in one step; then raise what the first one raised."""
    for outcome in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _scaffold(parts: Sequence[Part]) -> list[Written]:
    origin: Origin = "scaffold"
    return [Written(part, origin) for part in parts]


def _lead(first: Sequence[Part], later: Sequence[Part]) -> int:
    """How many parts a first message has before those that every message has."""
    lead = len(first) - len(later)
    return lead if lead > 0 and list(first[lead:]) == list(later) else 0


def _trim_right(context: Context) -> Context:
    """Without white space at the end of what was written last: content only, and not what was generated."""
    pending = list(context.pending)
    log = list(context.log)
    while pending:
        last = pending[-1]
        if last.origin in ("scaffold", "generated") or not isinstance(last.part, str):
            break
        text = last.part.rstrip()
        pending.pop()
        log.pop()
        if text:
            pending.append(Written(text, last.origin))
            log.append(pending[-1])
            break
    return Context(context.ids, tuple(pending), tuple(log))

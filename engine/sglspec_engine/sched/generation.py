"""One generation: from logits to tokens, text and an end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

import numpy as np
from torch import Tensor

from sglspec_engine.constrain import Constraint
from sglspec_engine.kv.lease import Lease
from sglspec_engine.metrics import Metrics
from sglspec_engine.reply import Cancelled, Stream
from sglspec_engine.sample import Bools, Floats, Sampler, check_ids, likeliest, log_probability
from sglspec_engine.sched.healing import Border, loose_tokens
from sglspec_engine.sched.work import Work
from sglspec_engine.text.stream import TextStream
from sglspec_engine.text.thinking import Thinking
from sglspec_engine.text.tokens import Vocabulary
from sglspec_engine.types import Alternative, Delta, EngineError, Finish, FinishReason, GenRequest, Token, Usage


@dataclass(frozen=True, slots=True)
class GenerationModel:
    """What a generation must know of its model. ends: ids that end a text. max_context: tokens a context may hold.
    jump: forced tokens are rows of one step, else each has a step of its own; the text is the same."""

    vocabulary: Vocabulary
    ends: frozenset[int]
    max_context: int
    jump: bool = True


@dataclass(frozen=True, slots=True)
class Committed:
    """What a generation leaves in the context: tokens after the prompt, the first `thought` of them thinking, then text
    whose tokens a stop cut.

    healed: bytes of `tokens` that spell the end of the prompt's text anew; `prompt` has no tokens for those.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    rest: str
    usage: Usage
    thought: int = 0
    healed: int = 0


class Generation(Work):
    """A running `GenRequest`.

    `settled` is called once, before the outcome is sent, with what stays in the context (None after an error, which
    leaves the context as it was).
    """

    def __init__(
        self,
        request: GenRequest,
        model: GenerationModel,
        lease: Lease,
        prompt: Sequence[int],
        stream: Stream,
        settled: Callable[[Committed | None], None],
        metrics: Metrics,
        tail: bytes = b"",
    ) -> None:
        """tail: the text at the prompt's end that the first tokens may spell in another way."""
        heals = request.max_tokens > 0 and request.reasoning is None
        loose = loose_tokens(model.vocabulary, prompt, tail) if heals else 0
        kept = len(prompt) - loose
        super().__init__(lease, prompt, kept - 1)
        self._request = request
        self._model = model
        self._whole = tuple(prompt)
        self._prompt = self._whole[:kept]
        self._border = Border(model.vocabulary, model.vocabulary.decode_bytes(prompt[kept:]))
        self._healed = 0
        # _whole: the prompt's tokens; _prompt: those that stay. _healed: bytes of `_tokens` that spell the others.
        self._stream = stream
        self._settled = settled
        self._metrics = metrics
        self._constraint: Constraint | None = None
        self._sampler = Sampler(request.sampling, request.noise_key, model.vocabulary.size, self._prompt)
        check_ids("stop_token_ids", request.stop_token_ids, model.vocabulary.size)
        self._ends: frozenset[int] = model.ends | frozenset(request.stop_token_ids)
        self._tokens: list[int] = []
        self._forced: list[int] = []
        self._closes = False
        self._generated = 0
        self._forced_count = 0
        self._ahead: tuple[Alternative, ...] = ()
        self._text = TextStream(request.stop, request.keep_stop, request.stop_patterns)
        self._thinking: Thinking | None = None
        self._thought = 0
        self._skipped = 0
        self._read = 0
        # _thought: tokens before the answer. _skipped: white space in front of the answer's text, in bytes. _read:
        # tokens after the last of which the model was asked what follows.
        if request.reasoning is not None:
            self._thinking = Thinking(request.reasoning, model.vocabulary, prompt)
            self._forced = list(self._thinking.opening)

    @property
    def bound(self) -> int:
        """See `Work`."""
        respelled = len(self._prompt) + max(self._healed, len(self._border.owed))
        return min(max(len(self._whole), respelled) + self._request.max_tokens, self._model.max_context)

    @property
    def asked(self) -> list[tuple[int, ...]]:
        """What was put before the model: the prompt, and what was written as far as it was asked what follows."""
        return [self._whole, (*self._prompt, *self._tokens)[: self._read]]

    def constrain(self, constraint: Constraint) -> None:
        """Set what the text must match, before the first token."""
        self._constraint = constraint

    def take(self, logits: Tensor) -> list[Work]:
        """See `Work`. One token per row of logits: the forced one that the row was computed for, else a chosen one."""
        sent: list[Token] = []
        for place, row in enumerate(logits, self.wanted_from + 1):
            self._read = max(self._read, len(self._prompt) + len(self._tokens))
            finish = self._step(row.numpy(), sent)
            if finish is not None:
                self._end(sent, *finish)
                return []
            if place == len(self.known):
                break  # the rows after it followed tokens that another one took the place of
        if sent:
            self._stream.put(_delta(sent))
        if self._tokens:
            old = max(self.wanted_from + 1, len(self._prompt))
            # Nothing is asked of what follows the last token.
            room = self._request.max_tokens - self._generated - 1
            ahead = self._forced[: max(0, min(room, len(self._forced) - self._closes))] if self._model.jump else ()
            self.known[old:] = [*self._tokens[old - len(self._prompt) :], *ahead]
        self.wanted_from = len(self._prompt) + len(self._tokens) - 1
        return [self]

    def fail(self, error: BaseException) -> None:
        """See `Work`. The context is as it was before the request."""
        if self.closed:
            return
        self.closed = True
        self._trim(len(self._prompt))
        self._settled(None)
        self._stream.fail(error)

    def cancel(self) -> None:
        """See `Work`. The context keeps what was committed."""
        if self.closed:
            return
        self.closed = True
        self._settle(*self._surviving())
        self._stream.fail(Cancelled())

    def _step(self, logits: Floats, sent: list[Token]) -> tuple[FinishReason, str | int | None] | None:
        """Commit one token, or find that the text ends before it. Returns how the text ends, None where it goes on."""
        if self._generated >= self._request.max_tokens:
            self._ahead = self._top(logits)
            return ("length", None)
        thinking = self._phase()
        if thinking is None and self._constraint is not None and self._constraint.finished():
            return ("constraint", None)
        if self._border.owed:
            return self._respell(logits, sent)
        forced = bool(self._forced)
        if forced:
            id = self._forced.pop(0)
        elif thinking is not None and thinking.inside:
            id, forced = self._think(logits, thinking)
        else:
            allowed = self._allowed()
            if allowed is not None:
                ending = self._constraint_ends(logits, allowed)
                if ending is not None:
                    return ending
                forced = int(np.count_nonzero(allowed)) == 1
            position = len(self._prompt) + len(self._tokens)
            id = self._sampler.choose(logits, position, allowed, self._banned() if allowed is None else ())
        return self._add(id, logits, sent, forced, thinking)

    def _respell(self, logits: Floats, sent: list[Token]) -> tuple[FinishReason, str | int | None] | None:
        """Choose a token that spells the end of the prompt's text anew, or the rest of it and more. See `_step`."""
        owed = len(self._border.owed)
        allowed = self._border.allowed(self._constraint, logits)
        place = len(self._prompt) + len(self._tokens)
        id = self._sampler.choose(logits, place, allowed)
        size = len(self._model.vocabulary.token_bytes[id])
        if not self._tokens and id == self._whole[place]:
            self._prompt = self._whole[: place + 1]
        elif not self._tokens:
            self._healed = owed
            del self.known[place:]
            self._trim(place)
        if size > owed:
            return self._add(id, logits, sent, int(np.count_nonzero(allowed)) == 1)
        self._border.take(self._model.vocabulary.token_bytes[id])
        self._sampler.see(id)
        if not self._healed:
            return None
        self._tokens.append(id)
        return ("length", None) if place + 1 >= self._model.max_context else None

    def _add(
        self, id: int, logits: Floats, sent: list[Token], forced: bool, thinking: Thinking | None = None
    ) -> tuple[FinishReason, str | int | None] | None:
        """Count a token and add it, unless it is one that ends the text. See `_step`."""
        self._generated += 1
        self._forced_count += forced
        self._metrics.sampled_tokens += not forced
        self._metrics.forced_tokens += forced
        token = Token(id, "", log_probability(logits, id), forced, top=self._top(logits), watched=self._watched(logits))
        if thinking is not None and (thinking.inside or forced or self._blank(id)):
            return self._append_thought(token, thinking, sent)
        ending = self._ends_with(token, sent)
        return ending if ending is not None else self._append(token, sent)

    def _phase(self) -> Thinking | None:
        """The thinking, while the answer has not begun. One that has to end now is being ended."""
        thinking = self._thinking
        if thinking is None or thinking.over:
            return None
        if thinking.used_up and not self._forced:
            self._forced = list(thinking.closing)
        if not thinking.inside and not self._forced and self._constraint is not None:
            self._begin_answer(thinking)
            return None
        return thinking

    def _begin_answer(self, thinking: Thinking) -> None:
        thinking.over = True
        self._thought = len(self._tokens)

    def _think(self, logits: Floats, thinking: Thinking) -> tuple[int, bool]:
        """The next token inside the thinking, and whether it is a forced one. An end token there ends the thinking."""
        banned = self._model.ends if self._request.ignore_eos else ()
        id = self._sampler.choose(logits, len(self._prompt) + len(self._tokens), None, banned)
        if id not in self._model.ends:
            return id, False
        self._forced = list(thinking.closing)
        return self._forced.pop(0), True

    def _blank(self, id: int) -> bool:
        """Whether a token is white space between thinking and answer."""
        return self._model.vocabulary.token_bytes[id].isspace()

    def _append_thought(
        self, token: Token, thinking: Thinking, sent: list[Token]
    ) -> tuple[FinishReason, str | int | None] | None:
        """Add a token before the answer. Returns how the text ends, None where it goes on."""
        text = ""
        if thinking.inside:
            text = thinking.push(token.id)
            if not thinking.inside:
                whole = thinking.cut(token.id)
                if whole:
                    token = replace(token, id=whole[0])
                self._forced += [*whole[1:], *thinking.gap]
        self._keep(token.id)
        self._thought = len(self._tokens)
        sent.append(replace(token, text=text, thinking=True))
        return self._full()

    def _keep(self, id: int) -> None:
        """A token is now part of the context."""
        self._tokens.append(id)
        self._sampler.record(id)
        if self._request.sampling.temperature > 0 and self.lease.random_from is None:
            self.lease.random_from = len(self._prompt)

    def _full(self) -> tuple[FinishReason, None] | None:
        full = len(self._prompt) + len(self._tokens) >= self._model.max_context
        return ("length", None) if full or self._generated >= self._request.max_tokens else None

    @property
    def _answered(self) -> int:
        """Tokens of the answer so far."""
        return self._generated - self._thought

    def _top(self, logits: Floats) -> tuple[Alternative, ...]:
        """The likeliest tokens here, where they are wanted."""
        found = likeliest(logits, self._request.alternatives, self._model.vocabulary.size)
        return tuple(self._alternative(id, logprob) for id, logprob in found)

    def _watched(self, logits: Floats) -> tuple[Alternative, ...]:
        """The tokens that were asked for."""
        return tuple(self._alternative(id, log_probability(logits, id)) for id in self._request.watched)

    def _alternative(self, id: int, logprob: float) -> Alternative:
        return Alternative(id, self._model.vocabulary.describe(id), logprob, id in self._ends)

    def _banned(self) -> frozenset[int]:
        """Ids that may not be chosen now: ends that are too early, or not to count at all."""
        if self._answered < self._request.min_tokens:
            return self._ends
        return self._model.ends - frozenset(self._request.stop_token_ids) if self._request.ignore_eos else frozenset()

    def _allowed(self) -> Bools | None:
        """The constraint's mask with early ends taken out, None without a constraint."""
        if self._constraint is None:
            return None
        allowed = self._constraint.allowed()
        for id in self._banned():
            if id < len(allowed):
                allowed[id] = False
        return allowed

    def _constraint_ends(self, logits: Floats, allowed: Bools) -> tuple[FinishReason, None] | None:
        """Whether constrained text ends here: it is complete, and nothing may follow or the likeliest token is one
        that may not. Raises EngineError("constraint") at a dead end."""
        assert self._constraint is not None
        complete = self._constraint.complete()
        if not allowed.any():
            if complete:
                return ("constraint", None)
            raise EngineError("constraint", "the constraint allows no token here, and the text is not complete")
        if complete and not bool(np.delete(allowed, [i for i in self._model.ends if i < len(allowed)]).any()):
            return ("constraint", None)
        if not complete or self._answered < self._request.min_tokens:
            return None
        known = logits[: len(allowed)]
        if self._request.ignore_eos:
            known = known.copy()
            known[[id for id in self._model.ends if id < len(known)]] = -np.inf
        return None if allowed[int(np.argmax(known))] else ("constraint", None)

    def _ends_with(self, token: Token, sent: list[Token]) -> tuple[FinishReason, str | int | None] | None:
        """How the text ends if this is a token that ends it."""
        if token.id not in self._ends or self._answered <= self._request.min_tokens:
            return None
        token = replace(token, end=True)
        stop = token.id in self._request.stop_token_ids
        if stop and self._request.keep_stop:
            self._append(token, sent)
        else:
            sent.append(token)
        return ("stop", token.id) if stop else ("end", None)

    def _append(self, token: Token, sent: list[Token]) -> tuple[FinishReason, str | int | None] | None:
        """Add a token to context and text. Returns how the text ends, None where it goes on."""
        id = token.id
        data = self._model.vocabulary.token_bytes[id]
        owed = len(self._border.owed)
        added = self._border.beyond(id) if owed else [id]
        self._border.take(data)
        data = data[owed:]
        if self._thinking is not None and not self._thinking.over:
            self._begin_answer(self._thinking)
            self._skipped = len(data) - len(data.lstrip())
            data = data.lstrip()
        self._keep(id)
        armed = self._answered >= self._request.min_tokens
        text = self._text.push(data, armed=armed)
        sent.append(replace(token, text=text))
        if self._text.matched is not None:
            return ("stop", self._text.matched)
        if self._constraint is not None:
            for one in added or ():
                self._constraint.advance(one)
            if self._constraint.finished():
                return ("constraint", None)
            if not self._forced:
                ahead = self._request.max_tokens - self._generated
                forced = takewhile(lambda one: one not in self._ends, self._constraint.forced())
                self._forced = list(islice(forced, ahead))
                self._closes = bool(self._forced) and self._constraint.ends_with(self._forced)
        return self._full()

    def _end(self, sent: list[Token], reason: FinishReason, matched: str | int | None) -> None:
        """Send the last delta and settle the context."""
        self.closed = True
        thinking = self._thinking
        unfinished = thinking is not None and not thinking.over
        rest = thinking.finish() if thinking is not None and unfinished else self._text.finish()
        usage = self._settle(*self._surviving())
        if sent and rest:
            last = sent[-1]
            sent[-1] = replace(last, text=last.text + rest)
        delta = _delta(sent)
        if not sent:
            delta = Delta("", thinking=rest) if unfinished else Delta(rest)
        reasoning = thinking.text if thinking is not None else None
        finish = Finish(reason, self._text.text, matched, usage, self._ahead, reasoning)
        try:
            self._stream.put(replace(delta, finish=finish))
        finally:
            self._stream.finish(None)

    def _settle(self, tokens: tuple[int, ...], rest: str) -> Usage:
        """Leave tokens and text in the context. Without tokens the prompt is what it was."""
        self._trim(len(self._prompt) + len(tokens))
        usage = self._usage()
        prompt, healed = (self._prompt, self._healed) if tokens else (self._whole, 0)
        self._settled(Committed(prompt, tokens, rest, usage, self._thought, healed))
        return usage

    def _surviving(self) -> tuple[tuple[int, ...], str]:
        """The tokens that stay, and the text of the token that a stop cut in two.

        The cut goes back to a token boundary from where the rest is whole characters. Where it would go back into the
        prompt's text, no token stays: that text is as it was.
        """
        table = self._model.vocabulary.token_bytes
        thought, answer = self._tokens[: self._thought], self._tokens[self._thought :]
        ends = [0]
        for id in answer:
            ends.append(ends[-1] + len(table[id]))
        data = b"".join(table[id] for id in answer)
        kept = self._skipped + self._text.surviving_bytes if self._text.surviving_bytes else 0
        keep = ends[-1] if self._text.matched is None else self._healed + kept
        last = max(i for i, end in enumerate(ends) if end <= keep)
        for count in range(last, -1, -1):
            if ends[count] <= self._healed and self._healed:
                return (), data[self._healed : keep].decode("utf-8", "ignore")
            try:
                return (*thought, *answer[:count]), data[ends[count] : keep].decode("utf-8")
            except UnicodeDecodeError:
                continue
        return (*thought, *answer[:last]), data[ends[last] : keep].decode("utf-8", "ignore")

    def _trim(self, length: int) -> None:
        if not self.lease.released and self.lease.length > length:
            self.lease.truncate(length)

    def _usage(self) -> Usage:
        return Usage(len(self._whole), self.computed, self.reused, self._generated, self._forced_count)


def _delta(sent: Sequence[Token]) -> Delta:
    answer = "".join(token.text for token in sent if not token.thinking)
    return Delta(answer, tuple(sent), thinking="".join(token.text for token in sent if token.thinking))

"""Constraints on generated text.

A constraint says which tokens may follow. llguidance does the work; nothing else in the engine knows it. Compilation
runs on a small thread pool, so a heavy grammar never holds up a step, and compiled grammars are kept.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from numpy.typing import NDArray

from sglspec_engine.config import EngineConfig
from sglspec_engine.keys import START, Keys, Place
from sglspec_engine.text.tokens import Vocabulary
from sglspec_engine.types import EngineError

Bools = NDArray[np.bool_]

COMPILE_FUEL = 400_000
"""Work that compiling a grammar and its first mask may take, in llguidance's own unit: the same on every machine, and a
stop that leaves nothing running. Usual schemas take a hundredth; all of it is about half a second."""
STEP_FUEL = 100_000
"""Work for one token."""
SLOW, PATIENCE = 0.02, 1.0
"""Processor seconds of one call from which it counts as slow, and what all slow calls for one text may take together:
a grammar with many readings of the same text gets slower with every token, and the step loop waits for it."""
JSON = "start: %json "
"""How a grammar begins whose whole text is one JSON value."""


class Constraint(Protocol):
    """What generated text must match, and how far it has come. Every method may raise EngineError("constraint")."""

    def allowed(self) -> Bools:
        """Which token ids may come next: [vocabulary size]. End tokens are allowed where the text is complete."""
        ...

    def complete(self) -> bool:
        """Whether the text may end here."""
        ...

    def finished(self) -> bool:
        """Whether the text is complete and nothing may follow."""
        ...

    def accepts(self, ids: Sequence[int]) -> bool:
        """Whether these tokens may come next, one after the other. The state stays."""
        ...

    def advance(self, id: int) -> None:
        """Take a token; not an end token."""
        ...

    def forced(self) -> list[int]:
        """Tokens that must come next whatever the model says, in the way it would write them; often none."""
        ...

    def ends_with(self, ids: Sequence[int]) -> bool:
        """Whether the text is complete and nothing may follow once these tokens were taken. The state stays."""
        ...

    def copy(self) -> Constraint:
        """An independent constraint in the same state."""
        ...


class GrammarConstraint:
    """A Lark grammar in llguidance's dialect. keys: of a JSON text; objects have each of theirs once, where the grammar
    leaves a choice."""

    def __init__(
        self, matcher: LLMatcher, vocabulary: Vocabulary, forced: bool, keys: Keys | None, place: Place = START
    ) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._size = vocabulary.size
        self._forced = forced
        self._keys = keys
        self._place = place
        self._bits = allocate_token_bitmask(1, self._size)
        self._slow = 0.0

    def allowed(self) -> Bools:
        """See `Constraint`."""
        start = time.thread_time()
        fill_next_token_bitmask(self._matcher, self._bits)
        allowed = np.unpackbits(self._bits.view(np.uint8)[0], bitorder="little")[: self._size].view(np.bool_)
        again = self._keys.repeated(self._place, allowed) if self._keys is not None else []
        if again and np.count_nonzero(allowed) > len(set(again)):
            allowed[again] = False
        self._spend(start)
        return allowed

    def complete(self) -> bool:
        """See `Constraint`."""
        return self._matcher.is_accepting()

    def finished(self) -> bool:
        """See `Constraint`."""
        stopped = self._matcher.is_stopped()
        self._raise()
        return stopped

    def accepts(self, ids: Sequence[int]) -> bool:
        """See `Constraint`."""
        return self._matcher.validate_tokens(list(ids)) == len(ids)

    def advance(self, id: int) -> None:
        """See `Constraint`."""
        start = time.thread_time()
        self._matcher.consume_token(id)
        if self._keys is not None:
            self._place, _ = self._place.after(self._vocabulary.token_bytes[id])
        self._spend(start)

    def forced(self) -> list[int]:
        """See `Constraint`."""
        if not self._forced:
            return []
        start = time.thread_time()
        found = list(self._matcher.compute_ff_tokens())
        self._spend(start)
        return found

    def ends_with(self, ids: Sequence[int]) -> bool:
        """See `Constraint`."""
        after = self._matcher.deep_copy()
        return bool(after.consume_tokens(list(ids))) and after.is_stopped() and not after.is_error()

    def copy(self) -> GrammarConstraint:
        """See `Constraint`."""
        return GrammarConstraint(self._matcher.deep_copy(), self._vocabulary, self._forced, self._keys, self._place)

    def _spend(self, start: float) -> None:
        """Count a call that began at `start`, by this thread's clock."""
        spent = time.thread_time() - start
        if spent > SLOW:
            self._slow += spent
        self._raise()
        if self._slow > PATIENCE:
            raise EngineError("constraint", "following the constraint takes too long: it reads a text in many ways")

    def _raise(self) -> None:
        if self._matcher.is_error():
            reason = _first_line(self._matcher.get_error())
            if "too many" in reason.lower():  # one of llguidance's limits, in its own words
                reason = f"following the constraint takes too much work, as it repeats or branches too much ({reason})"
            raise EngineError("constraint", reason)


class Grammars:
    """Compiles grammars for one vocabulary.

    ends: the ids that end a generation; llguidance must know exactly these. A text never contains control tokens under
    a constraint: they are special to the grammar, however they are spelled.
    """

    def __init__(self, vocabulary: Vocabulary, ends: frozenset[int], config: EngineConfig) -> None:
        self._vocabulary = vocabulary
        self._keys = Keys(vocabulary)
        self._ends = ends
        self._capacity = config.grammar_cache
        self._pool = ThreadPoolExecutor(config.grammar_workers, thread_name_prefix="sglspec-grammar")
        self._lock = threading.Lock()
        self._building = threading.Lock()
        self._found: OrderedDict[str, Future[GrammarConstraint]] = OrderedDict()
        self._tokenizer: LLTokenizer | None = None
        self._exact = False
        self._closed = False
        self._took: dict[str, tuple[float, float]] = {}
        self._prepared: set[str] = set()
        self.ahead = 0
        # _prepared: grammars that nobody has asked for yet. ahead: how many were compiled before they were asked for.

    def prepare(self, grammars: Sequence[str]) -> None:
        """Begin to compile grammars, no more than are kept."""
        for grammar in list(dict.fromkeys(grammars))[: self._capacity]:
            with self._lock:
                if self._closed or grammar in self._found:
                    continue
                self._prepared.add(grammar)
            self._begin(grammar)

    def compile(self, grammar: str) -> Future[GrammarConstraint]:
        """The grammar in its first state; copy it before use. Fails with EngineError("constraint")."""
        with self._lock:
            self.ahead += grammar in self._prepared
            self._prepared.discard(grammar)
        return self._begin(grammar)

    def took(self, grammar: str) -> tuple[float, float] | None:
        """When the compilation of a grammar began and ended, by `time.monotonic()`; None where it is not kept."""
        with self._lock:
            return self._took.get(grammar)

    def _begin(self, grammar: str) -> Future[GrammarConstraint]:
        with self._lock:
            future = self._found.get(grammar)
            if future is None:
                if self._closed:
                    raise EngineError("internal", "the engine is closed")
                future = self._found[grammar] = self._pool.submit(self._compile, grammar)
                while len(self._found) > self._capacity:
                    gone, _ = self._found.popitem(last=False)
                    self._prepared.discard(gone)
                    self._took.pop(gone, None)
            self._found.move_to_end(grammar)
            return future

    def close(self) -> None:
        """Stop taking grammars. A compilation that runs goes on to its end, unheard."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def tokenizer(self) -> LLTokenizer:
        """The vocabulary as llguidance wants it, built once."""
        with self._building:
            if self._tokenizer is None:
                self._tokenizer = self._build()
            return self._tokenizer

    def _compile(self, grammar: str) -> GrammarConstraint:
        began = time.monotonic()
        try:
            return self._compiled(grammar)
        finally:
            with self._lock:
                self._took[grammar] = began, time.monotonic()

    def _compiled(self, grammar: str) -> GrammarConstraint:
        matcher = LLMatcher(self.tokenizer(), grammar, log_level=0, limits=_limits())
        if matcher.is_error():
            raise EngineError("constraint", f"the constraint does not compile: {_first_line(matcher.get_error())}")
        keys = self._keys if grammar.startswith(JSON) else None
        constraint = GrammarConstraint(matcher, self._vocabulary, self._exact, keys)
        constraint.allowed()  # the first mask builds lexer tables; better here than in the step loop
        return constraint.copy()  # without the time that took

    def _build(self) -> LLTokenizer:
        if not self._ends:
            raise EngineError("unsupported", "grammars need a model with an end token")
        source = _TokenSource(self._vocabulary, self._ends)
        # Forced tokens are cut out of re-encoded text, which needs an encoder that adds nothing of its own.
        self._exact = all(self._vocabulary.decode_bytes(source(text)) == text.encode() for text in ("a", " a", "1"))
        return LLTokenizer(TokenizerWrapper(source), n_vocab=self._vocabulary.size, eos_token=sorted(self._ends))


def _limits() -> LLParserLimits:
    return LLParserLimits(initial_lexer_fuel=COMPILE_FUEL, step_lexer_fuel=STEP_FUEL)


class _TokenSource:
    """A vocabulary in the shape llguidance reads."""

    def __init__(self, vocabulary: Vocabulary, ends: frozenset[int]) -> None:
        self._vocabulary = vocabulary
        control = vocabulary.control_ids
        self.eos_token_id = min(ends)
        self.bos_token_id = vocabulary.bos_id
        self.tokens: Sequence[bytes] = [
            vocabulary.describe(id).encode() if id in control else data
            for id, data in enumerate(vocabulary.token_bytes)
        ]
        self.special_token_ids = sorted(control)

    def __call__(self, text: str | bytes) -> list[int]:
        content = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._vocabulary.encode_content(content, after="text")


def _first_line(text: str) -> str:
    """What llguidance says, without the dump of its state behind it."""
    line = text.strip().split("\n", 1)[0].strip()
    return line if len(line) <= 200 else line[:200] + "…"

"""What crosses the border between the engine and its users. Plain data, importable without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Origin = Literal["scaffold", "author", "input", "generated", "thinking", "tool"]
"""`thinking`: generated before an answer, and gone once the message is finished."""
Role = Literal["system", "user", "assistant"]
Method = Literal["length_normalized", "greedy", "unconditional", "sum"]
FinishReason = Literal["stop", "end", "length", "constraint"]
"""`stop`: a stop text or stop token; `end`: the model's end (or end-of-turn) token; `length`: max_tokens;
`constraint`: the constraint is complete and nothing may (or, for its likeliest token, should) follow."""


@dataclass(frozen=True, slots=True)
class TextSegment:
    """Content. Its text is data: it never becomes a control token, whatever it spells."""

    text: str
    origin: Origin = "author"


@dataclass(frozen=True, slots=True)
class RoleOpen:
    """Begin a message. `system` first of all suppresses the template's default system message."""

    role: Role


@dataclass(frozen=True, slots=True)
class RoleClose:
    """End the open message."""


Segment = TextSegment | RoleOpen | RoleClose


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn. temperature 0 is greedy (ties go to the lowest id). None means off."""

    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How a model marks the thinking before its answer.

    open, close: the tags. lead, tail: what the model writes behind `open` and before `close`; gap: between `close` and
    the answer. budget: tokens of thinking after which it is ended; None for no bound but `max_tokens`.
    """

    open: str
    close: str
    lead: str = ""
    tail: str = ""
    gap: str = ""
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class GenRequest:
    """Generate on a session.

    `grammar` is llguidance (Lark) grammar text, already validated; the whole generated text must match it.
    `noise_key` is a 64-bit number from run seed, step seed, branch path, loop rounds and attempt; together with
    the token's position in the context it fixes all randomness (results do not depend on the batch).
    `stop_patterns` are regular expressions (see `text.patterns`); the text ends where a match is first complete.
    With `reasoning` the text begins with thinking, whose opening is written where the context does not end with it.
    `grammar`, stops, `min_tokens` and end tokens concern the answer behind it (an end token inside it ends the thinking
    only); `max_tokens` counts both.
    `over_fork` says that the fork that the session comes from is a part of the same step, so that the end of the text
    before it may be spelled by other tokens, too (see `sched.healing`). `alternatives` is how many of the likeliest
    tokens to report beside each token, `watched` which ones whatever they are. `label` and `candidate` (which of how
    many texts for one step) are for other backends.
    """

    max_tokens: int = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    stop_patterns: tuple[str, ...] = ()
    keep_stop: bool = False
    ignore_eos: bool = False
    grammar: str | None = None
    reasoning: Reasoning | None = None
    sampling: Sampling = Sampling()
    noise_key: int = 0
    over_fork: bool = False
    alternatives: int = 0
    watched: tuple[int, ...] = ()
    label: str = ""
    candidate: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the likeliest tokens at a place: its id, its own text (broken UTF-8 as escapes), its log-probability under
    the unmasked distribution, and whether it would have ended the text."""

    id: int
    text: str
    logprob: float
    end: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a generation: its id, the text it added to the value (may be "" while a character or a
    possible stop is incomplete), and its log-probability under the unmasked distribution. `forced`: the constraint left
    no choice; `end`: it ended the text; `top`: the likeliest tokens here, the likeliest first; `thinking`: it stands
    before the answer, tags included; `watched`: those that were asked for, in that order."""

    id: int
    text: str
    logprob: float
    forced: bool = False
    end: bool = False
    top: tuple[Alternative, ...] = ()
    thinking: bool = False
    watched: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts, taken where the model runs.

    prompt_tokens: context tokens that requests were asked to extend (each generation or scoring counts the
    context it starts from); computed_tokens: tokens that went through the model; reused_tokens: prompt tokens
    whose KV was already there (prompt_tokens of a request minus what it had to compute); generated_tokens:
    sampled tokens (an end token included); forced_tokens: those of them that the constraint left no choice.
    """

    prompt_tokens: int = 0
    computed_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    forced_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.computed_tokens + other.computed_tokens,
            self.reused_tokens + other.reused_tokens,
            self.generated_tokens + other.generated_tokens,
            self.forced_tokens + other.forced_tokens,
        )


@dataclass(frozen=True, slots=True)
class Vitals:
    """How an engine is doing: what it does now, and totals since it was loaded.

    alive: whether its thread runs. running, waiting: requests that are computed, and those that wait for their turn,
    for memory or for their grammar. still_seconds: how long it has done nothing although there is something to do.
    live, cached, capacity: tokens whose keys and values contexts hold, that are kept in case they are used again, and
    that fit at all.
    steps, requests, failed, cancelled, preempted, evicted, seconds: see `metrics.Metrics`.
    """

    alive: bool = True
    running: int = 0
    waiting: int = 0
    still_seconds: float = 0.0
    live: int = 0
    cached: int = 0
    capacity: int = 0
    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    preempted: int = 0
    evicted: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Tokens that a request put before the model, from the beginning of its context on.

    A generation asks for its prompt, and for what it wrote as far as the model was asked what follows; a scoring asks
    for its context with each choice but the choice's last token. space: contexts of different spaces share nothing.
    given: leading tokens whose keys and values were joined from elsewhere, so that nobody computes them.
    """

    ids: tuple[int, ...]
    space: int = 0
    given: int = 0


@dataclass(slots=True)
class Observed:
    """What a context and its forks did. asked: what they put before the model, in no order that means anything.
    compiled: grammar → when its compilation began and ended, by `time.monotonic()`."""

    asked: list[Asked] = field(default_factory=list[Asked])
    compiled: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])


@dataclass(frozen=True, slots=True)
class Finish:
    """How a generation ended. `text` is the whole value (stop removed unless keep_stop); `matched` the text that was
    the stop, or the stop token's id; `ahead` the likeliest tokens that would begin a text of no tokens; `reasoning` the
    thinking before the text, None where none was asked for."""

    reason: FinishReason
    text: str
    matched: str | int | None = None
    usage: Usage = Usage()
    ahead: tuple[Alternative, ...] = ()
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of a running generation. The last one of a stream carries `finish`, and only that one.
    The concatenated `text` of all deltas equals `finish.text`, their `thinking` equals `finish.reasoning`."""

    text: str
    tokens: tuple[Token, ...] = ()
    finish: Finish | None = None
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class Scores:
    """The result of scoring choices. `scores` are comparable numbers by the method (higher is better), `index`
    the best one (ties: the first), `probabilities` their softmax, `tokens` the (id, logprob) pairs of each choice."""

    index: int
    scores: tuple[float, ...]
    probabilities: tuple[float, ...]
    tokens: tuple[tuple[tuple[int, float], ...], ...] = ()
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Place:
    """What the model expects at one place of a context. token: what stands there, None behind the context's end; `top`
    and `watched`: as in Token."""

    token: Alternative | None
    top: tuple[Alternative, ...] = ()
    watched: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What the model expects at the places of a context, in order; the last one is behind its end."""

    places: tuple[Place, ...]
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class TraceToken:
    """One token of a context, for traces: where it came from and whether its KV was computed or reused is not
    told apart here. Control tokens that role scaffolding emitted have origin "scaffold"."""

    id: int
    text: str
    origin: Origin


class EngineError(Exception):
    """A request that could not be served; others go on. `kind` is one of: "template" (chat template unusable),
    "no_template", "unsupported" (model or option), "sampling" (a sampling option without a meaning for this model),
    "constraint" (dead end, or a grammar that does not compile), "limit" (context or memory exhausted), "internal"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

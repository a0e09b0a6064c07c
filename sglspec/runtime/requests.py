"""From a `gen` step to a request, and from generated text to a typed value."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, cast

import sglspec.expressions as ev
from sglspec.analysis.constraints import (
    Constraint,
    grammar_constraint,
    regex_constraint,
    schema_constraint,
)
from sglspec.analysis.grammar import ConstraintError
from sglspec.analysis.inserted import GrammarText
from sglspec.analysis.plan.steps import inputs_of
from sglspec.analysis.program import Program
from sglspec.analysis.reasoning import read_reasoning
from sglspec.analysis.regexes import check_stop_sizes, escape, stop_pattern
from sglspec.analysis.sampling import (
    DEFAULT_MAX_TOKENS,
    SamplingError,
    biases,
    check_budget,
    check_chance,
    check_counts,
    token_ids,
)
from sglspec.analysis.sites import every_step
from sglspec.analysis.validate import parse_json
from sglspec.backends.base import (
    Delta,
    EngineError,
    Finish,
    GenRequest,
    PlaceholderFinish,
    Scores,
    Session,
    Token,
    ValueFinish,
)
from sglspec.backends.base import Sampling as EngineSampling
from sglspec.diagnostics import SpecError
from sglspec.document.fields import Param, Text, Texts, Value
from sglspec.document.model import Gen, Sampling, Select
from sglspec.document.nodes import to_python
from sglspec.runtime.frame import Frame

T = TypeVar("T")


def usage_dict(finish: Finish | Scores) -> dict[str, int]:
    return {item.name: getattr(finish.usage, item.name) for item in fields(finish.usage)}


def label_of(step: Gen | Select) -> str:
    """The key of a scripted reply: the step's id, else its variable."""
    target = step.gen if isinstance(step, Gen) else step.select
    return step.id or (target.name if target is not None else "")


@dataclass(frozen=True, slots=True)
class Generated:
    """One generated text with its tokens."""

    finish: Finish
    tokens: tuple[Token, ...]

    @property
    def answer(self) -> tuple[Token, ...]:
        """The tokens behind the thinking."""
        return tuple(token for token in self.tokens if not token.thinking)

    def meta(self) -> dict[str, Any]:
        """What `meta(x)` gives (language.md § 5). A text of no tokens says what would have begun it."""
        finish = self.finish
        tokens = [_token(token) for token in self.answer]
        if not tokens and finish.ahead:
            first = finish.ahead[0]
            tokens = [_token(Token(first.id, "", first.logprob, end=False, top=finish.ahead))]
        usage = usage_dict(finish)
        found = {"tokens": tokens, "finish": finish.reason, "matched": finish.matched, "usage": usage}
        return found | {"reasoning": finish.reasoning}


def _token(token: Token) -> dict[str, Any]:
    top = [{"text": one.text, "logprob": one.logprob, "end": one.end} for one in token.top]
    return {"text": token.text, "logprob": token.logprob, "end": token.end, "forced": token.forced, "top": top}


async def generate(
    frame: Frame, session: Session, step: Gen, request: GenRequest, show: Callable[[Delta], None]
) -> Generated:
    """Generate, passing text on as it comes and counting tokens against the run's limit."""
    finish: Finish | None = None
    tokens: list[Token] = []
    at = frame.at(step.verb_node)
    left = frame.limits.tokens_left
    capped = left < request.max_tokens
    if capped:
        request = replace(request, max_tokens=left, min_tokens=min(request.min_tokens, left))
    beside = f"~{request.candidate[0]}" if request.candidate is not None and request.candidate[0] else ""
    try:
        with frame.span("gen", label_of(step), beside) as spent:
            async with aclosing(cast(Any, session.generate(request))) as deltas:
                async for delta in deltas:
                    show(delta)
                    finish = delta.finish or finish
                    tokens += delta.tokens
                    if delta.tokens:
                        frame.limits.add_tokens(len(delta.tokens), at)
            spent |= usage_dict(finish) if finish is not None else {}
    except EngineError as problem:
        raise frame.engine_error(problem, step.verb_node) from None
    if finish is None:
        raise frame.error("S713", "the backend ended a generation without saying how", step.verb_node)
    if capped and finish.reason == "length":
        raise frame.limits.tokens_used_up(at)
    return Generated(finish, tuple(tokens))


class Showing:
    """Passes on what a generation gives. Thinking is no part of the text. Tokens that add no text yet (half a
    character, what may be a stop) go with the next that do."""

    def __init__(self, frame: Frame, step: Gen) -> None:
        self._frame = frame
        self._step = step
        self._waiting: tuple[Token, ...] = ()

    def show(self, delta: Delta) -> None:
        frame, step = self._frame, self._step
        self._waiting += tuple(token for token in delta.tokens if not token.thinking)
        if delta.thinking:
            frame.emit("thinking", step.verb_node, text=delta.thinking, name=label_of(step))
        if delta.text:
            frame.transcript.append(delta.text)
            frame.emit("delta", step.verb_node, self._waiting, text=delta.text, name=label_of(step))
            self._waiting = ()


def value_of(frame: Frame, step: Gen, finish: Finish, constraint: Constraint | None) -> Any:
    """The typed value of what was generated (or scripted). SpecError when it breaks its constraint."""
    if isinstance(finish, PlaceholderFinish):
        return finish.value
    if isinstance(finish, ValueFinish):
        return _scripted_value(frame, step, finish.value, constraint)
    if constraint is None:
        return finish.text
    try:
        value = constraint.parse(finish.text)
    except ValueError as problem:
        if not frame.shared.backend.capabilities.grammar:
            message, help = f"the reply breaks its constraint: {problem}", _as_written(constraint, finish.text)
            raise frame.error("S711", message, step.verb_node, help=help) from None
        if finish.reason == "length":
            raise _cut_off(frame, step, finish, str(problem)) from None
        message = f"the generated text breaks its constraint: {problem}"
        help = "`retry: {max: 3}` with a `temperature` above 0 tries again."
        if finish.reason == "stop":
            message = f"the stop {finish.matched!r} ended the text before it was complete: {problem}"
            help = "Leave the stop out: a text with a constraint ends by itself."
        raise frame.error("S709", message, step.verb_node, help=help if step.retry is None else None) from None
    if finish.reason == "length" and constraint.json:
        raise _cut_off(frame, step, finish, "it could go on with more digits")
    return value


def _as_written(constraint: Constraint, reply: str) -> str | None:
    """What to write instead of a reply that is no JSON, where its text has to be JSON."""
    if not constraint.json:
        return None
    try:
        parse_json(reply)
    except ValueError:
        quoted = json.dumps(reply, ensure_ascii=False)
        short = len(reply) <= 40 and "'" not in quoted and "\n" not in reply
        example = f"`'{quoted}'`" if short else "JSON"
        return f"A text is what the model writes: write {example}, or the value itself where it is not text."
    return None


def _cut_off(frame: Frame, step: Gen, finish: Finish, problem: str) -> SpecError:
    help = "Raise `max_tokens`, or make the constraint allow less text."
    message = f"the generation was cut off at {step_max(step)} before it was complete: {problem}"
    if finish.reasoning and not finish.text:
        message = f"the generation was cut off at {step_max(step)} while the model was thinking"
        help = "Raise `max_tokens`, or end the thinking earlier with a `budget`."
    return frame.error("S708", message, step.verb_node, help=help)


def _scripted_value(frame: Frame, step: Gen, value: Any, constraint: Constraint | None) -> Any:
    if constraint is not None:
        try:
            constraint.accepts(value)
        except ValueError as problem:
            raise frame.error("S711", f"the reply breaks its constraint: {problem}", step.verb_node) from None
    return value


def step_max(step: Gen) -> str:
    return f"{step.max_tokens.value} tokens" if step.max_tokens and step.max_tokens.value else "`max_tokens`"


# -- requests ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GenPlan:
    """A `gen` with its options looked up. `count`: how many candidates, None for one text that is no list; `best`:
    the context goes on with the likeliest, not the first; `seed`: the step's own."""

    request: GenRequest
    constraint: Constraint | None
    seed: int
    count: int | None
    best: bool
    attempts: int


async def plan_gen(frame: Frame, step: Gen) -> GenPlan:
    """Precedence: engine < `defaults` < run options < step; an explicit null resets (language.md § 5)."""
    constraint = await _constraint(frame, step)
    layers = [frame.program.spec.defaults, frame.shared.options, step]
    option = _Options(frame, [layer for layer in layers if layer is not None])
    stop = await option.texts("stop")
    empty = next((text for text in stop if text == ""), None)
    if empty is not None:
        raise frame.data_error("S507", "a stop text is empty", step.at("stop"))
    sampling = EngineSampling(
        temperature=float(await option.setting("temperature", 0.0)),
        top_p=await option.setting("top_p", None),
        top_k=await option.setting("top_k", None),
        min_p=await option.setting("min_p", None),
        frequency_penalty=float(await option.setting("frequency_penalty", 0.0)),
        presence_penalty=float(await option.setting("presence_penalty", 0.0)),
        repetition_penalty=float(await option.setting("repetition_penalty", 1.0)),
        logit_bias=await option.tokens("logit_bias", biases),
    )
    seed = int(await option.setting("seed", 0))
    request = GenRequest(
        max_tokens=int(await option.setting("max_tokens", DEFAULT_MAX_TOKENS)),
        min_tokens=int(await option.setting("min_tokens", 0)),
        stop=tuple(stop),
        stop_token_ids=await option.tokens("stop_token_ids", token_ids),
        stop_patterns=tuple(await option.patterns("stop_regex")),
        keep_stop=await option.setting("keep_stop", False),
        ignore_eos=await option.setting("ignore_eos", False),
        grammar=constraint.grammar if constraint else None,
        reasoning=read_reasoning(step.reasoning.node) if step.reasoning is not None else None,
        sampling=sampling,
        noise_key=frame.noise_key(seed),
        alternatives=int(await option.setting("logprobs", 0)),
        label=label_of(step),
    )
    count = await option.setting("n", None)
    most = await frame.option(step.retry.max, "max") if step.retry is not None else 1
    best = await option.setting("keep", "first") == "best"
    plan = GenPlan(request, constraint, seed, count, best, int(most or 1))
    try:
        check_counts(request.min_tokens, request.max_tokens)
        if request.reasoning is not None:
            check_budget(request.reasoning.budget, request.max_tokens)
        if plan.attempts > 1 or (count or 1) > 1:
            check_chance("retry" if plan.attempts > 1 else "n", sampling.temperature)
    except SamplingError as problem:
        raise frame.data_error("S507", problem.message, step.verb_node, problem.help) from None
    return plan


@dataclass(slots=True)
class _Options:
    """Looks an option up through the layers, the last one first."""

    frame: Frame
    layers: list[Sampling]

    def _last(self, name: str) -> Any:
        for layer in reversed(self.layers):
            given = getattr(layer, name)
            if given is not None:
                return given
        return None

    async def setting(self, name: str, default: Any) -> Any:
        """A number, a flag or a word."""
        param: Param | None = self._last(name)
        value = None if param is None else await self.frame.option(param, name)
        return default if value is None else value

    async def tokens(self, name: str, read: Callable[[object], T]) -> T:
        """Tokens by their ids."""
        given: Value | None = self._last(name)
        if given is None:
            return read(None)
        known = given.node not in self.frame.program.values
        value = to_python(given.node) if known else (await self.frame.value_at(given.node))[0]
        try:
            return read(value)
        except SamplingError as problem:
            raise self.frame.data_error("S507", problem.message, given.node, problem.help) from None

    async def texts(self, name: str) -> list[str]:
        texts: Texts | None = self._last(name)
        if texts is None:
            return []
        out: list[str] = []
        for text in texts.items:
            out.extend(await self._text_or_list(text))
        return out

    async def patterns(self, name: str) -> list[str]:
        """Stop patterns; inserted values match as they are written."""
        texts: Texts | None = self._last(name)
        if texts is None:
            return []
        out: list[str] = []
        sizes: list[int] = []
        for text in texts.items:
            pattern = await _pattern(self.frame, text)
            try:
                found, size = stop_pattern(pattern)
            except ConstraintError as problem:
                raise self.frame.data_error(problem.code, problem.message, text.node, problem.help) from None
            out.append(found)
            sizes.append(size)
        try:
            check_stop_sizes(sizes)
        except ConstraintError as problem:
            raise self.frame.data_error(problem.code, problem.message, texts.node, problem.help) from None
        return out

    async def _text_or_list(self, text: Text) -> list[str]:
        """`"{{ stops }}"` may be a list of texts."""
        template = self.frame.program.templates.get(text)
        if template is None:
            return [text.source]  # an option of the run
        if template.single is None:
            return [await self.frame.plain(text)]
        value, _ = await self.frame.value_at(text.node)
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        for item in cast("list[ev.Value]", items):
            if item is None or isinstance(item, (list, dict)):
                raise self.frame.data_error("S507", f"a stop is a text, found {ev.describe(item)}", text.node)
        return [ev.value_to_text(item) for item in items]


async def prepare_constraints(frame: Frame) -> None:
    """When a program starts, that of the run or one that is included or called, tell the backend all constraints that
    are known by then: constants, those of programs that it uses too, and what depends on inputs alone, in its lists of
    steps too. One that is wrong is reported where it is reached."""
    program, inserted = frame.program, frame.unit.constraints
    for step in _of_inputs(program, {name for name in program.inputs if frame.scope.get(name) is not None}):
        with suppress(SpecError):
            constraint = await _constraint(frame, step)
            if constraint is not None:
                inserted[step] = constraint
    known = [constraint for one in program.all() for constraint in one.constraints.values()]
    frame.shared.backend.prepare([constraint.grammar for constraint in (*known, *inserted.values())])


def _of_inputs(program: Program, known: Collection[str]) -> Iterator[Gen]:
    for routine in (program.routine, *program.lists.values()):
        for step in every_step(routine.steps):
            if isinstance(step, Gen) and step not in program.constraints:
                read = inputs_of(program, step, routine.params)
                if read is not None and read.issubset(known):
                    yield step


async def _constraint(frame: Frame, step: Gen) -> Constraint | None:
    """The compiled constraint. One that holds `{{ }}` is rendered and compiled when its values are known, beside the
    event loop: in a regex and in a grammar inserted values match as they are written, a schema may be a value."""
    known = frame.program.constraints.get(step) or frame.unit.constraints.get(step)
    if known is not None:
        return known
    try:
        if step.regex is not None:
            return await asyncio.to_thread(regex_constraint, await _pattern(frame, step.regex))
        if step.grammar is not None:
            return await asyncio.to_thread(grammar_constraint, await _grammar(frame, step.grammar))
        if step.schema_ is not None:
            schema, _ = await frame.value_at(step.schema_.node)
            if not isinstance(schema, dict):
                raise frame.data_error("S503", f"a schema is an object, found {ev.describe(schema)}", step.at("schema"))
            found = cast("dict[str, Any]", schema)
            layout = {"pretty": bool(step.pretty), "lenient": bool(step.lenient)}
            return await asyncio.to_thread(schema_constraint, found, **layout)
    except ConstraintError as problem:
        place = step.at(next(key for key in ("regex", "grammar", "schema") if step.node.key(key) is not None))
        raise frame.data_error(problem.code, problem.message, place, problem.help) from None
    return None


async def _grammar(frame: Frame, text: Text) -> str:
    """A grammar; inserted values match as they are written."""
    grammar = GrammarText()
    for segment in await frame.template(text):
        if segment.literal:
            grammar.written(segment.text)
        else:
            grammar.value(segment.text)
    return grammar.text


async def _pattern(frame: Frame, text: Text) -> str:
    """A regular expression; inserted values match as they are written."""
    if text not in frame.program.templates:
        return text.source  # an option of the run
    return "".join(s.text if s.literal else escape(s.text) for s in await frame.template(text))

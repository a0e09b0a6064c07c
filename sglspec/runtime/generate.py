"""`gen` and `select`: from a step to a request, and from generated text to a typed value."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import sglspec.expressions as ev
from sglspec.analysis.constraints import Constraint, regex_constraint, schema_constraint
from sglspec.analysis.grammar import ConstraintError
from sglspec.analysis.program import Program, Rendered
from sglspec.analysis.regexes import escape
from sglspec.analysis.sites import every_step
from sglspec.backends.base import (
    EngineError,
    Finish,
    GenRequest,
    Method,
    RoleClose,
    RoleOpen,
    Scores,
    TextSegment,
    ValueFinish,
)
from sglspec.backends.base import Sampling as EngineSampling
from sglspec.diagnostics import SpecError
from sglspec.document.fields import Param, Text, Texts, Value
from sglspec.document.model import Gen, Sampling, Select, Step
from sglspec.document.nodes import Node, to_python
from sglspec.expressions import Template
from sglspec.runtime.frame import Frame
from sglspec.runtime.limits import LimitReached
from sglspec.runtime.scope import Bound

DEFAULT_MAX_TOKENS = 256


@asynccontextmanager
async def own_turn(frame: Frame, step: Step) -> AsyncGenerator[None]:
    """In a chat, a generation outside a role is an assistant turn of its own."""
    wanted = frame.shared.program.chat and frame.transcript.role is None
    if not wanted:
        yield
        return
    await open_role(frame, "assistant", step.verb_node)
    yield
    await close_role(frame, step.verb_node)


async def open_role(frame: Frame, role: Any, node: Node) -> None:
    frame.transcript.open(role)
    frame.emit("message.opened", node, role=role)
    await frame.extend([RoleOpen(role)], node)


async def close_role(frame: Frame, node: Node) -> None:
    role = frame.transcript.role
    frame.transcript.close()
    frame.emit("message.closed", node, role=role)
    await frame.extend([RoleClose()], node)


async def run_gen(frame: Frame, step: Gen) -> None:
    request, constraint = await request_for(frame, step)
    async with own_turn(frame, step):
        mark = frame.transcript.mark()
        try:
            finish = await stream(frame, step, request)
        except (asyncio.CancelledError, LimitReached):
            _keep_partial(frame, step, frame.transcript.since(mark), constraint)
            raise
        value = _value(frame, step, finish, constraint)
    meta = {"finish": finish.reason, "matched": finish.matched, "usage": usage_dict(finish)}
    frame.emit("generated", step.verb_node, name=label_of(step), finish=finish.reason)
    if step.gen is not None:
        await frame.bind(step.gen.name, step.gen.append, Bound(value, "generated", meta), step.verb_node)


def _keep_partial(frame: Frame, step: Gen, text: str, constraint: Constraint | None) -> None:
    """What a run that is stopped had generated is part of its result; half a typed value is not a value."""
    if step.gen is not None and not step.gen.append and constraint is None and text:
        frame.scope.bind(step.gen.name, Bound(text, "generated", {"finish": "cancelled"}))


def usage_dict(finish: Finish | Scores) -> dict[str, int]:
    return {item.name: getattr(finish.usage, item.name) for item in fields(finish.usage)}


def label_of(step: Gen | Select) -> str:
    """The key of a scripted reply: the step's id, else its variable."""
    target = step.gen if isinstance(step, Gen) else step.select
    return step.id or (target.name if target is not None else "")


async def stream(frame: Frame, step: Gen, request: GenRequest) -> Finish:
    """Generate, passing text on as it comes and counting tokens against the run's limit."""
    finish: Finish | None = None
    at = frame.at(step.verb_node)
    left = frame.shared.limits.tokens_left
    capped = left < request.max_tokens
    if capped:
        request = replace(request, max_tokens=left, min_tokens=min(request.min_tokens, left))
    try:
        async with aclosing(cast(Any, frame.session.generate(request))) as deltas:
            async for delta in deltas:
                if delta.text:
                    frame.transcript.append(delta.text)
                    frame.emit("delta", step.verb_node, text=delta.text, name=label_of(step))
                finish = delta.finish or finish
                if delta.tokens:
                    frame.shared.limits.add_tokens(len(delta.tokens), at)
    except EngineError as problem:
        raise frame.engine_error(problem, step.verb_node) from None
    if finish is None:
        raise frame.error("S713", "the backend ended a generation without saying how", step.verb_node)
    if capped and finish.reason == "length":
        raise frame.shared.limits.tokens_used_up(at)
    return finish


def _value(frame: Frame, step: Gen, finish: Finish, constraint: Constraint | None) -> Any:
    """The typed value of what was generated (or scripted)."""
    if isinstance(finish, ValueFinish):
        return _scripted_value(frame, step, finish.value, constraint)
    if constraint is None:
        return finish.text
    try:
        return constraint.parse(finish.text)
    except ValueError as problem:
        if not frame.shared.backend.capabilities.grammar:
            raise frame.error("S711", f"the reply breaks its constraint: {problem}", step.verb_node) from None
        if finish.reason == "length":
            help = "Raise `max_tokens`, or make the constraint allow less text."
            message = f"the generation was cut off at {step_max(step)} before it was complete: {problem}"
            raise frame.error("S708", message, step.verb_node, help=help) from None
        raise frame.error("S709", f"the generated text breaks its constraint: {problem}", step.verb_node) from None


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


async def request_for(frame: Frame, step: Gen) -> tuple[GenRequest, Constraint | None]:
    """Precedence: engine < `defaults` < run options < step; an explicit null resets (language.md § 5)."""
    constraint = await _constraint(frame, step)
    layers = [frame.shared.program.spec.defaults, frame.shared.options, step]
    option = _Options(frame, [layer for layer in layers if layer is not None])
    stop = await option.texts("stop")
    empty = next((text for text in stop if text == ""), None)
    if empty is not None:
        raise frame.data_error("S507", "a stop text is empty", step.at("stop"))
    sampling = EngineSampling(
        temperature=float(await option.number("temperature", 0.0)),
        top_p=await option.number("top_p", None),
        top_k=await option.number("top_k", None),
        min_p=await option.number("min_p", None),
        frequency_penalty=float(await option.number("frequency_penalty", 0.0)),
        presence_penalty=float(await option.number("presence_penalty", 0.0)),
        repetition_penalty=float(await option.number("repetition_penalty", 1.0)),
        logit_bias=_bias(option.json("logit_bias")),
    )
    request = GenRequest(
        max_tokens=int(await option.number("max_tokens", DEFAULT_MAX_TOKENS)),
        min_tokens=int(await option.number("min_tokens", 0)),
        stop=tuple(stop),
        stop_token_ids=tuple(option.json("stop_token_ids") or ()),
        keep_stop=bool(option.flag("keep_stop")),
        ignore_eos=bool(option.flag("ignore_eos")),
        grammar=constraint.grammar if constraint else None,
        sampling=sampling,
        noise_key=frame.noise_key(int(await option.number("seed", 0))),
        label=label_of(step),
    )
    return request, constraint


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

    async def number(self, name: str, default: Any) -> Any:
        param: Param | None = self._last(name)
        value = None if param is None else await self.frame.option(param, name)
        return default if value is None else value

    def flag(self, name: str) -> bool | None:
        return self._last(name)

    def json(self, name: str) -> Any:
        value: Value | None = self._last(name)
        return None if value is None else to_python(value.node)

    async def texts(self, name: str) -> list[str]:
        texts: Texts | None = self._last(name)
        if texts is None:
            return []
        out: list[str] = []
        for text in texts.items:
            out.extend(await self._text_or_list(text))
        return out

    async def _text_or_list(self, text: Text) -> list[str]:
        """`"{{ stops }}"` may be a list of texts."""
        single = self.frame.shared.program.templates[text].single
        if single is None:
            return [await self.frame.plain(text)]
        value, _ = await self.frame.value_at(text.node)
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        for item in items:
            if not isinstance(item, str):
                raise self.frame.data_error("S507", "a stop must be a text", text.node)
        return items


def _bias(given: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    return tuple((int(token), float(amount)) for token, amount in (given or {}).items())


async def prepare_constraints(frame: Frame) -> None:
    """At a run's start, tell the backend all constraints that are known by then: constants, and what depends on inputs
    alone. One that is wrong is reported where it is reached."""
    program, inserted = frame.shared.program, frame.shared.constraints
    for step in every_step(program.spec.steps):
        if isinstance(step, Gen) and step not in program.constraints and _of_inputs(program, step):
            with suppress(SpecError):
                constraint = await _constraint(frame, step)
                if constraint is not None:
                    inserted[step] = constraint
    frame.shared.backend.prepare([c.grammar for c in (*program.constraints.values(), *inserted.values())])


def _of_inputs(program: Program, step: Gen) -> bool:
    """Whether a constraint with `{{ }}` reads nothing but inputs."""
    template: Template | None = None
    if step.regex is not None:
        template = program.templates[step.regex]
    elif step.schema_ is not None:
        compiled = program.values[step.schema_.node]
        template = compiled.template if isinstance(compiled, Rendered) else None
    return template is not None and not template.functions and all(n.name in program.inputs for n in template.names)


async def _constraint(frame: Frame, step: Gen) -> Constraint | None:
    """The compiled constraint. One that holds `{{ }}` is rendered and compiled when its values are known: in a regex
    inserted values match as they are written, a schema may be a value."""
    known = frame.shared.program.constraints.get(step) or frame.shared.constraints.get(step)
    if known is not None:
        return known
    try:
        if step.regex is not None:
            segments = await frame.template(step.regex)
            return regex_constraint("".join(s.text if s.literal else escape(s.text) for s in segments))
        if step.schema_ is not None:
            schema, _ = await frame.value_at(step.schema_.node)
            if not isinstance(schema, dict):
                raise frame.data_error("S503", f"a schema is an object, found {ev.describe(schema)}", step.at("schema"))
            return schema_constraint(
                cast("dict[str, Any]", schema), pretty=bool(step.pretty), lenient=bool(step.lenient)
            )
    except ConstraintError as problem:
        place = step.at("regex" if step.regex is not None else "schema")
        raise frame.data_error(problem.code, problem.message, place, problem.help) from None
    return None


# -- select ------------------------------------------------------------------------------------------------------


async def run_select(frame: Frame, step: Select) -> None:
    choices, origin = await frame.items(step.choices)
    texts = _choice_texts(frame, step, choices)
    method = cast(Method, step.method or "length_normalized")
    async with own_turn(frame, step):
        try:
            scores = await frame.session.score(texts, method, label_of(step))
        except EngineError as problem:
            raise frame.engine_error(problem, step.verb_node) from None
        chosen = texts[scores.index]
        frame.transcript.append(chosen)
        await frame.extend([TextSegment(chosen, origin)], step.verb_node)
    rows = [
        {"choice": choice, "score": score, "probability": probability}
        for choice, score, probability in zip(choices, scores.scores, scores.probabilities, strict=False)
    ]
    meta = {"index": scores.index, "scores": rows}
    frame.emit("selected", step.verb_node, name=label_of(step), text=chosen, **meta)
    if step.select is not None:
        bound = Bound(choices[scores.index], "generated", meta)
        await frame.bind(step.select.name, step.select.append, bound, step.verb_node)


def _choice_texts(frame: Frame, step: Select, choices: Any) -> list[str]:
    if not isinstance(choices, list) or not choices:
        raise frame.data_error("S506", "`from` must be a list with at least one choice", step.at("from"))
    texts: list[str] = []
    for choice in cast("list[Any]", choices):
        if choice is None or isinstance(choice, (list, dict)):
            raise frame.data_error("S506", "a choice must be a text, a number or a boolean", step.at("from"))
        texts.append(ev.value_to_text(choice))
    if "" in texts:
        raise frame.data_error("S506", "a choice is empty", step.at("from"))
    if len(set(texts)) < len(texts):
        raise frame.data_error("S506", "two choices have the same text", step.at("from"))
    return texts

"""`gen` and `select`, and the messages around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import sglspec.expressions as ev
from sglspec.analysis.constraints import Constraint
from sglspec.backends.base import EngineError, Method, RoleClose, RoleOpen, TextSegment
from sglspec.document.model import Gen, Select, Step
from sglspec.document.nodes import Node
from sglspec.runtime.candidates import run_candidates
from sglspec.runtime.frame import Frame
from sglspec.runtime.limits import LimitReached
from sglspec.runtime.requests import GenPlan, Showing, generate, label_of, plan_gen, usage_dict, value_of
from sglspec.runtime.scope import Bound


@asynccontextmanager
async def own_turn(frame: Frame, step: Step) -> AsyncGenerator[None]:
    """In a chat, a generation outside a role is an assistant turn of its own."""
    wanted = frame.unit.chat and frame.transcript.role is None
    if not wanted:
        yield
        return
    if frame.transcript.closed and frame.transcript.closed[-1]["role"] == "assistant":
        # `check` sees all of these but for what `messages` brings.
        message = f"this `{step.VERB}` would start a second assistant message right after the first"
        help = f"Put a `user:` message between them, or write `assistant: {{{step.VERB}: …}}`."
        raise frame.data_error("S209", message, step.verb_node, help)
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
    plan = await plan_gen(frame, step)
    async with own_turn(frame, step):
        bound = await (
            _single(frame, step, plan)
            if step.retry is None and plan.count is None
            else run_candidates(frame, step, plan)
        )
    meta = bound.meta if plan.count is None else None
    frame.emit("generated", step.verb_node, name=label_of(step), finish=meta["finish"] if meta else None)
    if step.gen is not None:
        await frame.bind(step.gen.name, step.gen.append, bound, step.verb_node)


async def _single(frame: Frame, step: Gen, plan: GenPlan) -> Bound:
    """One text, shown while it comes."""
    mark = frame.transcript.mark()
    try:
        generated = await generate(frame, frame.session, step, plan.request, Showing(frame, step).show)
    except (asyncio.CancelledError, LimitReached):
        _keep_partial(frame, step, frame.transcript.since(mark), plan.constraint)
        raise
    return Bound(value_of(frame, step, generated.finish, plan.constraint), "generated", generated.meta())


def _keep_partial(frame: Frame, step: Gen, text: str, constraint: Constraint | None) -> None:
    """What a run that is stopped had generated is part of its result; half a typed value is not a value."""
    if step.gen is not None and not step.gen.append and constraint is None and text:
        frame.scope.bind(step.gen.name, Bound(text, "generated", {"finish": "cancelled"}))


# -- select ------------------------------------------------------------------------------------------------------


async def run_select(frame: Frame, step: Select) -> None:
    choices, origin = await frame.items(step.choices)
    texts = _choice_texts(frame, step, choices)
    method = cast(Method, step.method or "length_normalized")
    async with own_turn(frame, step):
        try:
            with frame.span("select", label_of(step)) as spent:
                scores = await frame.session.score(texts, method, label_of(step))
                spent |= usage_dict(scores)
        except EngineError as problem:
            raise frame.engine_error(problem, step.verb_node) from None
        chosen = texts[scores.index]
        frame.transcript.append(chosen)
        await frame.extend([TextSegment(chosen, origin)], step.verb_node)
    rows = [
        {"choice": choice, "score": score, "probability": probability}
        for choice, score, probability in zip(choices, scores.scores, scores.probabilities, strict=True)
    ]
    meta: dict[str, Any] = {"index": scores.index, "scores": rows}
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

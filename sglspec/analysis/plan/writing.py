"""What the model writes and chooses, in a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from sglspec.analysis.plan.known import NOTHING, Unknown
from sglspec.analysis.plan.ranges import ONE, UNKNOWN, Length, Range
from sglspec.analysis.sampling import DEFAULT_MAX_TOKENS, FLAGS, NUMBERS, last_given
from sglspec.document.model import Gen, Select
from sglspec.expressions import value_to_text

if TYPE_CHECKING:
    from sglspec.analysis.plan.walk import Walk


def _own_turn(walk: Walk, write: Callable[[], None]) -> None:
    """What the model writes outside of a message is one of its own in a chat."""
    alone = walk.chat and walk.state.role is None
    if alone:
        walk.sizes.open(walk.state, "assistant")
    write()
    if alone:
        walk.sizes.close(walk.state)


def walk_gen(walk: Walk, step: Gen) -> None:
    options = [getattr(step, name) for name in (*NUMBERS, *FLAGS, "keep")]
    texts = [*(step.stop.items if step.stop else ()), *(step.stop_regex.items if step.stop_regex else ())]
    values = [value.node for value in (step.schema_, step.logit_bias, step.stop_token_ids) if value is not None]
    walk.reads(step, step.regex, step.grammar, *options, *texts, *values)
    most = walk.values.sampling(step, "max_tokens", DEFAULT_MAX_TOKENS)
    count = walk.values.sampling(step, "n", 1)
    attempts = walk.values.option(step.retry.max, 1) if step.retry is not None else 1
    one = Range.up_to(most)
    drafts = Range(count or 1, None if count is None or attempts is None else count * attempts)
    walk.note(step, tokens=one, drafts=drafts)
    _own_turn(walk, lambda: _generate(walk, step, one, drafts, attempts))
    if step.retry is not None:
        walk.reads(step, step.retry.until)
    listed = last_given(step, walk.program.spec.defaults, "n") is not None
    walk.bind(step.gen, Unknown(Range.exactly(count) if count else UNKNOWN) if listed else NOTHING)


def _generate(walk: Walk, step: Gen, one: Range, drafts: Range, attempts: int | None) -> None:
    walk.sizes.flush(walk.state)
    state = walk.state
    state.begun = True
    state.cost = state.cost.plus(generated=one * drafts, generations=drafts)
    state.length = Length(state.length.text, state.length.written + one)
    state.clock = state.clock.after(walk.key(step), one.most, attempts)


def walk_select(walk: Walk, step: Select) -> None:
    walk.reads(step, step.choices.expr, step.choices.node)
    choices = walk.values.items(step.choices)
    _own_turn(walk, lambda: _score(walk, step, choices))
    walk.bind(step.select)


def _score(walk: Walk, step: Select, choices: Any) -> None:
    walk.sizes.flush(walk.state)
    state = walk.state
    state.begun = True
    if isinstance(choices, Unknown):
        walk.note(step, width=choices.length)
        chosen, scored = UNKNOWN, UNKNOWN
    else:
        sizes = [walk.sizes.text(value_to_text(choice)) for choice in cast("list[Any]", choices)]
        walk.note(step, width=Range.exactly(len(sizes)))
        chosen = Range(min(sizes, default=0), max(sizes, default=0))
        # Nobody asks what follows a choice's last token.
        scored = Range.up_to(sum(sizes) - (len(sizes) if walk.sizes.unit == "tokens" else 0))
        if step.method == "unconditional":
            scored = scored + scored
    state.cost = state.cost.plus(choices=scored, selections=ONE)
    state.length = Length(state.length.text + chosen, state.length.written)
    if walk.sizes.unit == "tokens":
        state.cost = state.cost.plus(choices=Range.up_to(1))

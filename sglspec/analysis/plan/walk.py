"""The plan's walk: a program as a run would take it, on what is known of values and with every part that may run.

Where a condition or a list is known, the walk goes the way of the run, round by round and branch by branch. Where not,
it goes every way and keeps the widest result. What is counted is what can happen at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from sglspec.analysis.bindings import bound_names
from sglspec.analysis.plan import forks, loops, others, writing
from sglspec.analysis.plan.known import NOTHING, Unknown, Values
from sglspec.analysis.plan.ranges import MAYBE, ONE, Length, Range
from sglspec.analysis.plan.state import END, Found, Key, Pending, State, joined, latest
from sglspec.analysis.plan.texts import Sizes
from sglspec.analysis.program import CompiledValue, ListValue, MapValue, Program, Rendered
from sglspec.document.fields import Expr, Param, Text
from sglspec.document.model import (
    AnyStep,
    Assistant,
    Break,
    Call,
    Capture,
    Check,
    Continue,
    Fail,
    For,
    Fork,
    Gen,
    If,
    Include,
    Match,
    Messages,
    Raw,
    Return,
    Role,
    Scratch,
    Select,
    Set,
    System,
    TextStep,
    Tool,
    User,
    While,
)
from sglspec.document.nodes import Node
from sglspec.expressions import SCOPE_FUNCTIONS, truthy, value_to_text
from sglspec.expressions.syntax import Expression, Template

PATIENCE = 20_000
"""Steps that are walked one by one; behind them loops and forks are walked once for all of their rounds."""


@dataclass(slots=True)
class Walk:
    """state: of the line that is being walked; times: how often what is walked runs; breaks, continues: where lines
    have left the loop or branch around; ends: where the program has ended, or the
    `included` steps; chat: whether the context is one; longest: how long other contexts become."""

    program: Program
    sizes: Sizes
    state: State
    times: Range = ONE
    site: Key = ()
    found: dict[Key, Found] = field(default_factory=dict[Key, Found])
    breaks: list[State] = field(default_factory=list[State])
    continues: list[State] = field(default_factory=list[State])
    ends: list[State] = field(default_factory=list[State])
    included: bool = False
    chat: bool = field(init=False)
    longest: list[Length] = field(default_factory=list[Length])
    left: int = PATIENCE

    def __post_init__(self) -> None:
        self.chat = self.program.chat

    def program_end(self) -> State:
        """Walk all of the program."""
        self.block(self.program.spec.steps)
        if self.state.alive:
            self.finish()
        return joined(self.ends)

    def settle(self) -> None:
        """The line awaits what still runs."""
        state = self.state
        for pending in set(state.pending.values()):
            self.found[pending.key].awaited.setdefault(END)
        state.clock = latest([state.clock, *(pending.done for pending in state.pending.values())])
        state.pending = {}

    def finish(self) -> None:
        """The program ends."""
        self.settle()
        if not self.included:
            self.sizes.flush(self.state, computed=False)
        self.ends.append(self.state.copy())
        self.state.alive = False

    # -- what is known -------------------------------------------------------------------------------------------

    @property
    def values(self) -> Values:
        return Values(self.program, self.state.values)

    @property
    def often(self) -> Range:
        """How often the next step runs."""
        return self.times if self.state.sure else self.times * MAYBE

    def key(self, step: AnyStep) -> Key:
        return (*self.site, id(step))

    def note(self, step: AnyStep, **seen: Range | Length | None) -> Found:
        found = self.found.setdefault(self.key(step), Found(step))
        found.widen(**seen)
        return found

    def reads(self, step: AnyStep, *read: Text | Expr | Param | Node | None) -> None:
        """Wait for what a step reads that is still to come."""
        for one in read:
            for compiled in self._compiled(one):
                names = [use.name for use in compiled.names]
                self.wait(step, self.state.pending if {*compiled.functions} & {*SCOPE_FUNCTIONS} else names)

    def expect(self, pending: Pending, names: Sequence[str]) -> None:
        """Names that are bound later. What binds none is awaited at the end, too."""
        for name in names or [f"{pending.key}"]:
            self.state.expect(name, pending)

    def wait(self, step: AnyStep, names: Iterable[str]) -> None:
        """Wait for names that are still to come."""
        for name in list(names):
            pending = self.state.pending.get(name)
            if pending is None:
                continue
            self.found[self.key(step)].waits.setdefault(pending.key)
            self.found[pending.key].awaited.setdefault(self.key(step))
            self.state.clock = latest([self.state.clock, pending.done])
            for other in [n for n, p in self.state.pending.items() if p is pending]:
                del self.state.pending[other]

    def _compiled(self, read: Text | Expr | Param | Node | None) -> Iterable[Template | Expression]:
        match read:
            case None:
                return []
            case Text():
                return [self.program.templates[read]]
            case Expr():
                return [self.program.expressions[read]]
            case Param():
                return [self.program.templates[read.template]] if read.template is not None else []
            case _:
                compiled = self.program.values.get(read)
                return _templates(compiled) if compiled is not None else []

    def condition(self, expr: Expr) -> bool | None:
        """None where a run will tell."""
        value = self.values.evaluate(self.program.expressions[expr])
        return None if isinstance(value, Unknown) else truthy(value)

    # -- steps ---------------------------------------------------------------------------------------------------

    def block(self, steps: Sequence[AnyStep]) -> None:
        for step in steps:
            if not self.state.alive:
                return
            self.left -= 1
            found = self.note(step)
            found.times = found.times + self.often
            _STEPS[type(step)](self, step)

    def inside(self, steps: Sequence[AnyStep], state: State, times: Range | None = None) -> State:
        """Walk a block from another state, and `times` as often as what is around it."""
        before, self.state = self.state, state
        around = self.times
        self.times = around if times is None else around * times
        self.block(steps)
        end, self.state, self.times = self.state, before, around
        return end

    def text(self, step: TextStep) -> None:
        self.reads(step, step.text)
        parts, whole = self.values.text(self.program.templates[step.text])
        self.write(step, parts, whole)

    def raw(self, step: Raw) -> None:
        self.write(step, [step.raw.source], True)

    def write(self, step: AnyStep, parts: Sequence[str], whole: bool) -> None:
        least = sum(self.sizes.text(part) for part in parts)
        self.note(step, size=Range(least, least if whole else None))
        self.sizes.write(self.state, parts, whole)

    def role(self, step: Role) -> None:
        self.sizes.open(self.state, step.VERB)
        jumped = len(self.breaks), len(self.continues), len(self.ends)
        self.block(step.steps)
        if self.state.alive:
            self.sizes.close(self.state)
        leavers = self.breaks[jumped[0] :] + self.continues[jumped[1] :] + self.ends[jumped[2] :]
        for state in leavers:  # they leave the message, and it ends where they do
            if state.role is not None:
                self.sizes.close(state)

    def messages(self, step: Messages) -> None:
        self.reads(step, step.messages)
        history = self.values.evaluate(self.program.expressions[step.messages])
        if not isinstance(history, list):
            self.write(step, [], False)
            return
        for message in cast("list[Any]", history):
            face = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
            if {"role", "content"} <= {*face}:
                self.sizes.open(self.state, str(face["role"]))
                self.write(step, [str(face["content"])], True)
                self.sizes.close(self.state)

    def gen(self, step: Gen) -> None:
        writing.walk_gen(self, step)

    def select(self, step: Select) -> None:
        writing.walk_select(self, step)

    def set(self, step: Set) -> None:
        for key, value in step.set.items():
            self.reads(step, value.node)
            found = self.values.value(self.program.values[value.node])
            name = key.removesuffix("[]")
            if key.endswith("[]"):
                self.wait(step, [name])
                before = self.state.values.get(name)
                known = isinstance(before, list) and not isinstance(found, Unknown)
                found = [*cast("list[Any]", before), found] if known else self.longer(before)
            self.state.bind(name, found)

    def capture(self, step: Capture) -> None:
        self.block(step.do)
        self.bind(step.capture)

    def check(self, step: Check) -> None:
        self.reads(step, step.check)

    def tool(self, step: Tool) -> None:
        for value in (step.args or {}).values():
            self.reads(step, value.node)
        self.state.cost = self.state.cost.plus(tools=ONE)
        others.bind_into(self, step.into)

    def bind(self, target: Any, value: Any = NOTHING) -> None:
        """What a step gives; an item of a list where it appends."""
        if target is not None:
            before = self.state.values.get(target.name)
            self.state.bind(target.name, self.longer(before) if target.append else value)

    @staticmethod
    def longer(before: Any) -> Unknown:
        """A list with one more item."""
        if isinstance(before, list):
            return Unknown(Range.exactly(len(cast("list[Any]", before)) + 1))
        return Unknown(before.length + ONE) if isinstance(before, Unknown) else NOTHING

    def include(self, step: Include) -> None:
        others.walk_include(self, step)

    def call(self, step: Call) -> None:
        others.walk_call(self, step)

    # -- where paths part ----------------------------------------------------------------------------------------

    def choose(self, step: If | Match, ways: dict[str, Sequence[AnyStep]], decided: str | None) -> None:
        """Go one way, or every way."""
        if decided is not None:
            self.note(step).taken.setdefault(decided)
            self.block(ways.get(decided, ()))
            return
        self.note(step).taken |= dict.fromkeys(ways)
        self.state = joined([self.inside(steps, self.state.copy(), MAYBE) for steps in ways.values()])

    def if_(self, step: If) -> None:
        self.reads(step, step.condition)
        holds = self.condition(step.condition)
        decided = None if holds is None else "then" if holds else "else"
        self.choose(step, {"then": step.then, "else": step.orelse or ()}, decided)

    def match(self, step: Match) -> None:
        self.reads(step, step.subject)
        value = self.values.evaluate(self.program.expressions[step.subject])
        ways: dict[str, Sequence[AnyStep]] = {f"case {case}": steps for case, steps in step.cases.items()}
        decided = None if isinstance(value, Unknown) else f"case {value_to_text(value)}"
        if step.orelse is not None:
            ways["else"] = step.orelse
        self.choose(step, ways, decided if decided is None or decided in ways else "else")

    def jump(self, step: Break | Continue) -> None:
        (self.breaks if isinstance(step, Break) else self.continues).append(self.state.copy())
        self.state.alive = False

    def leave(self, step: Return | Fail) -> None:
        if isinstance(step, Return):
            for value in (step.values or {}).values():
                self.reads(step, value.node)
        self.finish()

    # -- branches ------------------------------------------------------------------------------------------------

    def scratch(self, step: Scratch) -> None:
        names = [target.name for target in step.export or ()]
        self.wait(step, names)
        end = forks.branch(self, step, step.scratch, {})
        forks.settle(self, step, [end], ONE)
        self.expect(Pending(self.key(step), end.clock), names)

    def fork(self, step: Fork) -> None:
        forks.walk_fork(self, step)

    def for_(self, step: For) -> None:
        loops.walk_for(self, step)

    def while_(self, step: While) -> None:
        loops.walk_while(self, step)

    def changing(self, steps: Sequence[AnyStep]) -> list[str]:
        """Names that have another value after a round of these."""
        names = bound_names(steps)
        return [*names.plain, *names.appended, "loop"]


def _templates(compiled: CompiledValue) -> Iterable[Template]:
    match compiled:
        case Rendered(template=template):
            yield template
        case ListValue(items=items):
            for item in items:
                yield from _templates(item)
        case MapValue(entries=entries):
            for _, item in entries:
                yield from _templates(item)
        case _:
            return


_STEPS: dict[type[Any], Callable[[Walk, Any], None]] = {
    TextStep: Walk.text,
    Raw: Walk.raw,
    Gen: Walk.gen,
    Select: Walk.select,
    Messages: Walk.messages,
    System: Walk.role,
    User: Walk.role,
    Assistant: Walk.role,
    Set: Walk.set,
    Capture: Walk.capture,
    Check: Walk.check,
    Tool: Walk.tool,
    Include: Walk.include,
    Call: Walk.call,
    If: Walk.if_,
    Match: Walk.match,
    Break: Walk.jump,
    Continue: Walk.jump,
    Return: Walk.leave,
    Fail: Walk.leave,
    Scratch: Walk.scratch,
    Fork: Walk.fork,
    For: Walk.for_,
    While: Walk.while_,
}

__all__ = ["Walk"]

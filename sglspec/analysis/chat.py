"""Chat or completion: whether role steps occur, and where text and generations may then stand (language.md § 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from sglspec.analysis.lints import meant_step
from sglspec.analysis.program import Routine, Target
from sglspec.analysis.sites import children, every_step
from sglspec.diagnostics import Diagnostic, Related, Report
from sglspec.document.advice import written
from sglspec.document.fields import Param
from sglspec.document.load import Document
from sglspec.document.model import (
    AnyStep,
    Assistant,
    Break,
    Capture,
    Continue,
    Fail,
    For,
    Fork,
    Gen,
    If,
    Image,
    Include,
    Match,
    Messages,
    Raw,
    Return,
    Role,
    Scratch,
    Select,
    TextStep,
    Video,
    While,
)
from sglspec.expressions import ast
from sglspec.expressions.errors import ExpressionSyntaxError
from sglspec.expressions.syntax import parse_expression

Tails = frozenset[str]
"""What the context may end with: "assistant" after a closed assistant turn, "other" after anything else."""

OTHER: Tails = frozenset({"other"})
TURN: Tails = frozenset({"assistant"})


Find = Callable[[str], Target | None]
"""What an `include` of that name runs; None where it is not known."""

BEFORE: Tails = frozenset({"before"})
"""Stands for what was there before a block, to see whether it may still be the end after it."""


def is_chat(steps: Iterable[AnyStep], find: Find) -> bool:
    """A program is a chat when a message occurs anywhere, in included steps too."""
    for step in every_step(steps):
        if isinstance(step, (Role, Messages)):
            return True
        if isinstance(step, Include) and (target := find(step.include)) is not None and target.routine.roles:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Effect:
    """What a block does to the end of the context: what it may leave there itself, and whether the end from before
    may still be there."""

    adds: Tails
    passes: bool

    def after(self, before: Tails) -> Tails:
        return self.adds | before if self.passes else self.adds


@dataclass(frozen=True, slots=True)
class _Inside:
    role: str | None = None
    capture: bool = False


def _arms(step: If | Match) -> list[list[AnyStep]]:
    """The blocks of which one runs. A `match` without `else` fails when no case fits."""
    blocks = children(step)
    return blocks[:-1] if isinstance(step, Match) and step.orelse is None else blocks


def runs_once(step: For | While | Fork) -> bool:
    """Whether the body of a loop, or each branch of a fork, runs at least once for certain."""
    if isinstance(step, While):
        return False
    if isinstance(step, Fork):
        if step.on_error == "skip":
            return False  # a branch that fails adds nothing
        if step.branches is not None:
            return True
        if isinstance(step.spec, Param):
            return bool(step.spec.value)
    items = step.items
    if items is None or items.expr is None:
        return items is not None and items.literal is not None and bool(items.literal.items)
    try:
        root = parse_expression(items.expr.source).root
    except ExpressionSyntaxError:
        return False
    return isinstance(root, ast.ListLit) and bool(root.items)


def _left_early(step: For | While | Fork) -> bool:
    """Whether a round may end before its last step."""
    return any(isinstance(inner, (Break, Continue)) for block in children(step) for inner in every_step(block))


@dataclass(slots=True)
class ChatChecker:
    """Walks the steps of a chat with what the context may end with."""

    document: Document
    report: Report
    find: Find
    effects: dict[int, _Effect] = field(default_factory=dict[int, _Effect])
    jumps: list[set[str]] = field(default_factory=list[set[str]])
    """What the context may end with where `break` and `continue` leave: one set per loop or branch around."""
    returns: set[str] = field(default_factory=set[str])
    """The same where `return` leaves."""
    walked: dict[tuple[Routine, Tails, _Inside], tuple[Tails, list[Diagnostic]]] = field(
        default_factory=dict[tuple[Routine, Tails, _Inside], "tuple[Tails, list[Diagnostic]]"]
    )
    """Included steps by where they stood: what the context may end with after them, and what is wrong there."""

    def check(self, steps: list[AnyStep]) -> None:
        self._block(steps, OTHER, _Inside())

    def _block(self, steps: list[AnyStep], tails: Tails, inside: _Inside) -> Tails:
        for step in steps:
            tails = self._step(step, tails, inside)
        return tails

    def _step(self, step: AnyStep, tails: Tails, inside: _Inside) -> Tails:
        match step:
            case Role():
                self._role(step, inside)
                return TURN if isinstance(step, Assistant) else OTHER
            case TextStep() | Raw() | Image() | Video():
                if inside.role is None:
                    self._stray_text(step)
                return tails
            case Gen() | Select():
                if inside.role is None:
                    self._own_turn(step, tails, inside)
                    return TURN
                return tails
            case If() | Match():
                ends = [self._block(block, tails, inside) for block in _arms(step)]
                return frozenset[str]().union(*ends)
            case For() | While():
                entry = tails | self._effect(step.do).after(tails)
                end = self._round(step.do, entry, inside)
                return end if runs_once(step) else tails | end
            case Break() | Continue() | Return() | Fail():
                if self.jumps and isinstance(step, (Break, Continue)):
                    self.jumps[-1] |= tails
                elif isinstance(step, Return):
                    self.returns |= tails
                return frozenset()
            case Include():
                return self._include(step, tails, inside)
            case Fork() | Scratch():
                ends = [self._round(block, tails, inside) for block in children(step)]
                if not isinstance(step, Fork) or step.join not in ("concat", "concat_kv"):
                    return tails
                joined = frozenset[str]().union(*ends)
                return joined if runs_once(step) else tails | joined
            case Capture():
                self._block(step.do, tails, replace(inside, capture=True))
                return tails
            case Messages():
                self._not_inside(step, inside)
                return OTHER
            case _:
                return tails

    def _round(self, steps: list[AnyStep], tails: Tails, inside: _Inside) -> Tails:
        """The body of a loop or branch, with the ways to leave it early."""
        self.jumps.append(set())
        end = self._block(steps, tails, inside)
        return end | self.jumps.pop()

    def _effect(self, steps: list[AnyStep]) -> _Effect:
        """The effect of a block, computed once: loops in loops would otherwise be walked again and again."""
        known = self.effects.get(id(steps))
        if known is not None:
            return known
        effect = _Effect(frozenset(), True)
        for step in steps:
            if isinstance(step, Continue):
                break  # the next round starts with what is there now
            one = self._effect_of(step)
            effect = _Effect(one.after(effect.adds), effect.passes and one.passes)
        self.effects[id(steps)] = effect
        return effect

    def _effect_of(self, step: AnyStep) -> _Effect:
        match step:
            case Role():
                return _Effect(TURN if isinstance(step, Assistant) else OTHER, False)
            case Gen() | Select():
                return _Effect(TURN, False)
            case Messages():
                return _Effect(OTHER, False)
            case Break() | Return() | Fail():
                return _Effect(frozenset(), False)
            case Include():
                end, _ = self._walked(step, BEFORE, _Inside())
                return _Effect(end - BEFORE, bool(end & BEFORE))
            case If() | Match():
                parts = [self._effect(block) for block in _arms(step)]
                adds = frozenset[str]().union(*(part.adds for part in parts))
                return _Effect(adds, any(part.passes for part in parts))
            case For() | While():
                body = self._effect(step.do)
                return _Effect(body.adds, body.passes or not runs_once(step) or _left_early(step))
            case Fork() if step.join in ("concat", "concat_kv"):
                parts = [self._effect(block) for block in children(step)]
                adds = frozenset[str]().union(*(part.adds for part in parts))
                passes = any(part.passes for part in parts) or not runs_once(step) or _left_early(step)
                return _Effect(adds, passes)
            case _:
                return _Effect(frozenset(), True)

    def _include(self, step: Include, tails: Tails, inside: _Inside) -> Tails:
        """Included steps are as if they stood here; what is wrong with them here is said here."""
        end, faults = self._walked(step, tails, inside)
        for fault in faults[:1]:
            # what comes behind the colon explains the rule, which the page of the code does too
            reason = fault.message[:1].lower() + fault.message[1:].partition(":")[0].rstrip(".")
            message = f"the steps of `{step.include}` cannot stand here: {reason}"
            related = (Related("this step", fault.range, fault.file),) if fault.range is not None else ()
            help = "Put the `include` where its steps could stand: into a message, or between messages."
            node = step.verb_node
            self.report.add(self.document.diagnostic(fault.code, message, node, help=help, related=related))
        return end

    def _walked(self, step: Include, tails: Tails, inside: _Inside) -> tuple[Tails, list[Diagnostic]]:
        target = self.find(step.include)
        if target is None:
            return tails, []
        key = target.routine, tails, inside
        if key not in self.walked:
            report = Report()
            document, find = self.document, self.find
            if target.program is not None:
                document, find = target.program.document, target.program.target
            inner = ChatChecker(document, report, find, walked=self.walked)
            end = inner._block(target.routine.steps, tails, inside)
            self.walked[key] = end | inner.returns, report.sorted()
        return self.walked[key]

    def _role(self, step: Role, inside: _Inside) -> None:
        self._not_inside(step, inside)
        self._block(step.steps, OTHER, _Inside(role=step.VERB, capture=inside.capture))

    def _not_inside(self, step: Role | Messages, inside: _Inside) -> None:
        """Messages stand neither in a message nor in a `capture`."""
        what = f"`{step.VERB}` is a message" if isinstance(step, Role) else "`messages` appends messages"
        if inside.role is not None:
            message = f"{what} inside a message (`{inside.role}`)"
            help = "Move it out: start a new step at the level of the other messages."
            self.report.add(self.document.diagnostic("S208", message, step.verb_node, help=help))
        elif inside.capture:
            message = f"`capture` holds no messages, found `{step.VERB}`"
            help = f"Put the `capture` inside the message: `{step.VERB}: [{{capture: x, do: [...]}}]`."
            if isinstance(step, Messages):
                help = "Move it out of the `capture`."
            self.report.add(self.document.diagnostic("S208", message, step.verb_node, help=help))

    def _stray_text(self, step: TextStep | Raw | Image | Video) -> None:
        node = step.node if isinstance(step, TextStep) else step.verb_node
        message = "text outside of a message: this program is a chat, because it has messages"
        shown = " ".join(step.text.source.split())[:40] if isinstance(step, TextStep) else ""
        help = f"Put it into a message: `- user: {written(shown) if shown else '…'}`."
        if isinstance(step, TextStep) and (meant := meant_step(step.text.node)) is not None:
            help = f"Write `- {meant}` for the step."
        self.report.add(self.document.diagnostic("S209", message, node, help=help))

    def _own_turn(self, step: Gen | Select, tails: Tails, inside: _Inside) -> None:
        if inside.capture:
            message = f"`{step.VERB}` would open a message, and `capture` holds no messages"
            help = "Put the `capture` inside `assistant:`."
            self.report.add(self.document.diagnostic("S209", message, step.verb_node, help=help))
        elif "assistant" in tails:
            message = f"this `{step.VERB}` would start a second assistant message right after the first"
            if len(tails) > 1:
                message += ", on some path"
            help = (
                "Put both into one `assistant:` list, put a `user:` message between them, "
                f"or write `assistant: {{{step.VERB}: …}}` if a second message is meant."
            )
            self.report.add(self.document.diagnostic("S209", message, step.verb_node, help=help))

"""Steps as a plan shows them: in a few words, with the blocks inside of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sglspec.analysis.program import Program, Rendered
from sglspec.document.fields import Items, Param, Target
from sglspec.document.model import (
    AnyStep,
    Call,
    Capture,
    For,
    Fork,
    Gen,
    If,
    Include,
    Match,
    Messages,
    Raw,
    Role,
    Scratch,
    Select,
    Set,
    TextStep,
    Tool,
    While,
)
from sglspec.expressions.syntax import Template

SHORT = 40
"""Characters of a text or an expression in a label."""

Parts = Sequence[tuple[str, Sequence[AnyStep]]]


def parts(step: AnyStep) -> Parts:
    """The blocks inside a step, each with its name where it is one of several."""
    match step:
        case Role():
            return [("", step.steps)]
        case Capture() | For() | While():
            return [("", step.do)]
        case Scratch():
            return [("", step.scratch)]
        case Fork(branches=None):
            return [("", step.do or [])]
        case Fork():
            return [(name, steps) for name, steps in (step.branches or {}).items()]
        case If():
            return [("then", step.then), ("else", step.orelse or [])]
        case Match():
            cases = [(f"case {case}", steps) for case, steps in step.cases.items()]
            return [*cases, *([("else", step.orelse)] if step.orelse is not None else [])]
        case _:
            return []


def described(step: AnyStep) -> tuple[str, str]:
    """The kind of a step, and what it is in a few words."""
    match step:
        case TextStep():
            return "text", f'"{short(step.text.source)}"'
        case Raw():
            return "text", f'"{short(step.raw.source)}"'
        case Role():
            return "message", step.VERB
        case Messages():
            return "message", f"messages {short(step.messages.source)}"
        case Gen(gen=target) | Select(select=target):
            return step.VERB, f"{step.VERB} {_target(target) or step.id or ''}".rstrip()
        case Capture():
            return "capture", f"capture {_target(step.capture)}"
        case If():
            return "if", f"if {short(step.condition.source)}"
        case Match():
            return "match", f"match {short(step.subject.source)}"
        case For():
            return "loop", f"for {step.var.name} in {_items(step.items)}"
        case While():
            return "loop", f"while {short(step.condition.source)}"
        case Fork():
            return "fork", f"fork{_spec(step)}"
        case Scratch():
            return "scratch", "scratch"
        case Tool():
            return "tool", f"tool {step.tool}"
        case Call():
            return "call", f"call {step.call}"
        case Include():
            return "include", f"include {step.include}"
        case Set():
            return "set", f"set {', '.join(step.set)}"
        case _:
            return step.VERB, step.VERB


def _spec(step: Fork) -> str:
    if isinstance(step.spec, Target):
        return f" {step.spec.name} in {_items(step.items)}"
    if isinstance(step.spec, Param) and step.spec.template is not None:
        return f" {short(step.spec.template.source)}"
    return ""


def _items(items: Items | None) -> str:
    if items is None:
        return ""
    return short(items.expr.source) if items.expr is not None else "[…]"


def _target(target: Target | None) -> str:
    return "" if target is None else target.name + ("[]" if target.append else "")


def short(text: str) -> str:
    """A text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1].rstrip() + "…"


CONSTRAINTS = ("regex", "fields", "schema", "grammar", "type")


def constraint_of(step: Gen) -> str | None:
    """What constrains a text."""
    return next((key for key in CONSTRAINTS if step.node.get(key) is not None), None)


def inputs_of(program: Program, step: Gen, params: Collection[str] = ()) -> set[str] | None:
    """The inputs that a constraint with `{{ }}` reads, None where it reads anything else. params: names of the list
    that the step is in."""
    template: Template | None = None
    text = step.regex or step.grammar
    if text is not None:
        template = program.templates[text]
    elif step.schema_ is not None:
        compiled = program.values[step.schema_.node]
        template = compiled.template if isinstance(compiled, Rendered) else None
    if template is None or template.functions:
        return None
    names = {read.name for read in template.names}
    return names if names <= {*program.inputs} - {*params} else None


__all__ = ["constraint_of", "described", "inputs_of", "parts", "short"]

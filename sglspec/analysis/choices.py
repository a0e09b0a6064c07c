"""The choices of `select` and the cases of `match`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sglspec.analysis.declarations import nearest
from sglspec.analysis.infer import NUMERIC
from sglspec.analysis.program import CompiledValue, Constant, ListValue
from sglspec.analysis.types import ANY, Type, of_choices
from sglspec.diagnostics import MAX_REPORTED, Related, Report
from sglspec.document.load import Document
from sglspec.document.model import Match, Select
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence
from sglspec.expressions import ast
from sglspec.expressions.syntax import Expression


def choice_text(value: Any) -> str:
    """How a choice stands in the prompt."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def check_choices(
    document: Document,
    report: Report,
    step: Select,
    compiled: ListValue,
    type_of: Callable[[CompiledValue], Type],
) -> Type:
    """A literal list of choices: not empty, all scalars, no two of equal text. Their common type."""
    nodes = step.choices.literal.items if step.choices.literal is not None else ()
    if not nodes:
        help = 'Write the choices: `from: ["yes", "no"]`.'
        report.add(document.diagnostic("S506", "`select` has nothing to choose from", step.at("from"), help=help))
        return ANY
    first: dict[str, Node] = {}
    values: list[Any] = []
    for node, item in zip(nodes, compiled.items, strict=True):
        if not isinstance(node, Scalar) or node.value is None:
            what = "null" if isinstance(node, Scalar) else "a list" if isinstance(node, Sequence) else "a mapping"
            message = f"a choice is a text, a number or true/false, not {what}"
            report.add(document.diagnostic("S506", message, node, help="Put the text into quotes."))
            continue
        if not isinstance(item, Constant):
            kind = type_of(item).kind
            if kind in ("array", "object"):
                message = (
                    f"a choice is a text, a number or true/false, not a {'list' if kind == 'array' else 'mapping'}"
                )
                report.add(document.diagnostic("S506", message, node))
            continue
        text = choice_text(item.value)
        if text == "":
            report.add(document.diagnostic("S506", "a choice is an empty text", node))
        elif text in first:
            related = (Related("first given here", first[text].range),)
            report.add(document.diagnostic("S506", f"the choice `{text}` is there twice", node, related=related))
        first.setdefault(text, node)
        values.append(item.value)
    return of_choices(values) if len(values) == len(nodes) else ANY


def check_listed(document: Document, report: Report, step: Select, compiled: Expression) -> None:
    """A list that an expression writes out."""
    root, place = compiled.root, step.choices.expr
    if not isinstance(root, ast.ListLit) or place is None:
        return
    if not root.items:
        message = "`select` has nothing to choose from"
        report.add(document.diagnostic_in("S506", message, place.node, root.start, root.end))
    seen: set[str] = set()
    for item in root.items:
        if not isinstance(item, ast.Literal):
            continue
        text = choice_text(item.value)
        message = "a choice is null" if item.value is None else f"the choice `{text}` is there twice"
        if item.value is None or text in seen:
            report.add(document.diagnostic_in("S506", message, place.node, item.start, item.end))
        elif text == "":
            report.add(document.diagnostic_in("S506", "a choice is an empty text", place.node, item.start, item.end))
        seen.add(text)


def check_cases(document: Document, report: Report, step: Match, subject: Type) -> bool:
    """Cases that the value can never be. True where the cases are all that it can be."""
    if subject.nullable:
        return False
    choices = (True, False) if subject.kind == "boolean" else subject.choices
    if choices is None and subject.kind not in NUMERIC:
        return False
    texts = [choice_text(choice) for choice in choices or ()]
    mapping = step.at("cases")
    for case in step.cases:
        if case in texts or (choices is None and _is_number(case)):
            continue
        node = (mapping.key(case) if isinstance(mapping, Mapping) else None) or mapping
        close = nearest(case, texts) if report.count < MAX_REPORTED else None
        help = f"Did you mean `{close}`?" if close is not None else None
        if help is None and case in ("true", "false") and {"yes", "no"} & set(texts):
            help = 'Write "yes" or "no".'
        if help is None and case in ("yes", "no") and subject.kind == "boolean":
            help = "Write `true` or `false`."
        shown = "it is a number"
        if choices is not None:
            shown = "it is one of " + ", ".join(f'"{text}"' for text in texts[:8])
        message = f"the value is never `{case}`: {shown}"
        report.add(document.diagnostic("S405", message, node, help=help))
    return choices is not None and set(texts) <= step.cases.keys()


def _is_number(text: str) -> bool:
    try:
        return isinstance(json.loads(text), int | float)
    except ValueError:
        return False

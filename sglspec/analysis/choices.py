"""The choices of `select` and the cases of `match`."""

from __future__ import annotations

import json
from typing import Any

from sglspec.analysis.declarations import nearest
from sglspec.analysis.program import Constant, ListValue
from sglspec.analysis.types import ANY, Type, of_choices
from sglspec.diagnostics import MAX_REPORTED, Related, Report
from sglspec.document.load import Document
from sglspec.document.model import Match, Select
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence


def choice_text(value: Any) -> str:
    """How a choice stands in the prompt."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def check_choices(document: Document, report: Report, step: Select, compiled: ListValue) -> Type:
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
            return ANY
        if not isinstance(item, Constant):
            return ANY
        text = choice_text(item.value)
        if text == "":
            report.add(document.diagnostic("S506", "a choice is an empty text", node))
        elif text in first:
            related = (Related("first given here", first[text].range),)
            report.add(document.diagnostic("S506", f"the choice `{text}` is there twice", node, related=related))
        first.setdefault(text, node)
        values.append(item.value)
    return of_choices(values)


def check_cases(document: Document, report: Report, step: Match, subject: Type) -> None:
    """Cases that the value can never be."""
    if subject.choices is None or subject.nullable:
        return
    texts = [choice_text(choice) for choice in subject.choices]
    mapping = step.at("cases")
    possible = set(texts)
    for case in step.cases:
        if case in possible:
            continue
        node = (mapping.key(case) if isinstance(mapping, Mapping) else None) or mapping
        close = nearest(case, texts) if report.count < MAX_REPORTED else None
        help = f"Did you mean `{close}`?" if close is not None else None
        if help is None and case in ("true", "false") and {"yes", "no"} & set(texts):
            help = 'Write "yes" or "no".'
        shown = ", ".join(f'"{text}"' for text in texts[:8])
        message = f"the value is never `{case}`: it is one of {shown}"
        report.add(document.diagnostic("S405", message, node, help=help))

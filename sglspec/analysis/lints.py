"""Warnings about texts that the model would read in another way than the author thinks."""

from __future__ import annotations

import re

from sglspec.diagnostics import Report
from sglspec.document.fields import TEMPLATE_MARK, Text
from sglspec.document.load import Document
from sglspec.document.model import VERBS
from sglspec.document.nodes import LONE_STEPS, Scalar

_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_RAW = re.compile(r"\{%[-+]?\s*raw\b")


def no_comment(document: Document, report: Report, text: Text) -> None:
    """W203: Jinja's comments do not exist, so `{# … #}` is text like any other."""
    if _RAW.search(text.source):
        return  # an author who knows how to write braces
    found = _COMMENT.search(text.source)
    if found is None or _inside_tag(text.source[: found.start()]):
        return
    message = "`{# #}` is not a comment here: the model will read it"
    help = "Write a YAML comment (`# …`) on a line of its own outside the text, or a `note:` in a step."
    start, end = found.span()
    report.add(document.diagnostic_in("W203", message, text.node, start, end, severity="warning", help=help))


def step_as_text(document: Document, report: Report, node: Scalar) -> None:
    """W204: `- break` without its colon, and `- user:a` without a space after it, are texts."""
    meant = meant_step(node)
    if meant is None:
        return
    shown = node.text if len(node.text) <= 40 else node.text[:39] + "…"
    message = f"`{shown}` is a text here, which the model reads"
    help = f"Write `- {meant}` for the step, or put the text in quotes."
    report.add(document.diagnostic("W204", message, node, severity="warning", help=help))


def meant_step(node: Scalar) -> str | None:
    """The step that a text without quotes looks like, as it is written."""
    if node.style != "plain":
        return None
    if node.text in LONE_STEPS:
        return f"{node.text}:"
    verb, colon, rest = node.text.partition(":")
    return f"{verb}: {rest[:40]}" if colon and rest and verb in VERBS else None


def braces_in_key(document: Document, report: Report, key: Scalar, help: str) -> None:
    """W205: keys are no templates."""
    if not TEMPLATE_MARK.search(key.text):
        return
    message = f"`{key.text}` is a key, and keys are no templates: the braces stay"
    report.add(document.diagnostic("W205", message, key, severity="warning", help=help))


def _inside_tag(before: str) -> bool:
    return before.count("{{") > before.count("}}") or before.count("{%") > before.count("%}")

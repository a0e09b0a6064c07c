"""Warnings about texts that the model would read in another way than the author thinks."""

from __future__ import annotations

import re

from sglspec.diagnostics import Report
from sglspec.document.fields import Text
from sglspec.document.load import Document
from sglspec.document.model import AnyStep, Gen, Select, TextStep

_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_RAW = re.compile(r"\{%[-+]?\s*raw\b")


def last_newline(document: Document, report: Report, step: TextStep, following: AnyStep) -> None:
    """W201: `|` keeps a last newline that nobody sees; right before a generation it changes what the model says."""
    node = step.node
    if not isinstance(following, (Gen, Select)) or node.style not in ("literal", "folded"):
        return
    header = document.source.lines[node.range.start.line - 1][node.range.start.column - 1 :].split("#")[0]
    if "+" in header or "-" in header or not step.text.source.endswith("\n"):
        return
    sign = header[:1]
    message = f"the block's last newline comes right before the `{following.VERB}`"
    help = f"Write `{sign}-` to leave it out, or `{sign}+` if it is meant."
    report.add(document.diagnostic("W201", message, node, severity="warning", help=help))


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


def _inside_tag(before: str) -> bool:
    return before.count("{{") > before.count("}}") or before.count("{%") > before.count("%}")

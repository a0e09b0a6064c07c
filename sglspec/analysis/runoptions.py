"""Sampling options that a run is given, between the document's `defaults` and its steps (language.md § 5)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sglspec.analysis.sampling import SamplingChecker, holds_template
from sglspec.diagnostics import Position, Range, Report
from sglspec.document.faults import Faults
from sglspec.document.load import Tree
from sglspec.document.model import LANGUAGE_VERSION, Sampling, Spec
from sglspec.document.nodes import Entry, Scalar, Source
from sglspec.document.nodes import Mapping as MappingNode
from sglspec.document.read import parse, source_from_text


def sampling_of(given: Mapping[str, Any]) -> Sampling:
    """Options as plain values. Raises SpecError for those that do not exist or cannot be used so."""
    return read_sampling(source_from_text(json.dumps(dict(given)), "sampling"))


def read_sampling(source: Source) -> Sampling:
    """Options as a document has them below `defaults`. Raises SpecError for those that cannot be used so."""
    report = Report(source.name)
    node = parse(source, report)
    report.raise_errors()
    assert isinstance(node, MappingNode)
    # as the defaults of a document, so that faults are told in the same words
    root = _document(node)
    try:
        options = Spec.model_validate(root).defaults
    except ValidationError as error:
        Faults(source, root, report).all(error)
        report.raise_errors()
        raise
    assert options is not None
    tree = Tree(source, root)
    for entry in node.entries:
        if holds_template(entry.value):
            message = f"`{entry.key.text}` of a run is a value, not a template"
            report.add(tree.diagnostic("S203", message, entry.value))
    if options.n is not None:
        help = "Write it in the document, in a step or in its `defaults`."
        message = "`n` makes a variable a list, which the steps that read it must know"
        report.add(tree.diagnostic("S213", message, options.key("n"), help=help))
    SamplingChecker(tree, report, options, None).check()
    report.raise_errors()
    return options


def _document(defaults: MappingNode) -> MappingNode:
    here = Range(Position(1, 1), Position(1, 1))

    def word(text: str) -> Scalar:
        return Scalar(text, text, "plain", here)

    entries = (("sglspec", word(LANGUAGE_VERSION)), ("defaults", defaults), ("steps", word("-")))
    return MappingNode(tuple(Entry(word(key), value) for key, value in entries), here)


__all__ = ["read_sampling", "sampling_of"]

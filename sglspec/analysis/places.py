"""Places inside of values: where a constraint is wrong."""

from __future__ import annotations

from sglspec.analysis.grammar import ConstraintError
from sglspec.analysis.grammar import Step as PointerStep
from sglspec.diagnostics import Report
from sglspec.document.load import Tree
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence


def find(node: Node, pointer: tuple[PointerStep, ...], *, at_key: bool = False) -> Node:
    """The node at the end of a pointer, or the last one on the way that exists; with `at_key` its key."""
    current: Node = node
    last_key: Node | None = None
    for part in pointer:
        following: Node | None = None
        key: Node | None = None
        if isinstance(current, Mapping):
            following, key = current.get(str(part)), current.key(str(part))
        elif isinstance(current, Sequence) and isinstance(part, int) and part < len(current.items):
            following = current.items[part]
        if following is None:
            return last_key or current if at_key else current
        current, last_key = following, key
    return (last_key or current) if at_key else current


def report_constraint(report: Report, tree: Tree, error: ConstraintError, node: Node) -> None:
    """Report what is wrong with a constraint at the part of it that the error speaks of."""
    place = find(node, error.pointer, at_key=error.at_key)
    if isinstance(place, Scalar) and error.start is not None:
        end = error.end if error.end is not None else error.start + 1
        report.add(tree.diagnostic_in(error.code, error.message, place, error.start, end, help=error.help))
    else:
        report.add(tree.diagnostic(error.code, error.message, place, help=error.help))

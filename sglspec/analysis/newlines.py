"""W201: the last newline of a `|` block, which nobody sees, right before a generation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sglspec.diagnostics import Report
from sglspec.document.load import Document
from sglspec.document.model import (
    AnyStep,
    Break,
    Capture,
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
    TextStep,
    While,
)
from sglspec.document.nodes import Scalar

Block = tuple[str, Scalar]
"""A text and its node."""


@dataclass(slots=True)
class _Edges:
    """What some steps begin and end with: the generations that may come first, the blocks that may come last, and
    whether a path through them writes nothing."""

    first: list[Gen | Select] = field(default_factory=list[Gen | Select])
    last: list[Block] = field(default_factory=list[Block])
    silent: bool = True


def last_newlines(document: Document, report: Report, steps: list[AnyStep]) -> None:
    """Finds them on every path: into conditions and loops, and past steps that write nothing."""
    _Newlines(document, report).steps(steps)


@dataclass(slots=True)
class _Newlines:
    document: Document
    report: Report
    reported: set[Scalar] = field(default_factory=set[Scalar])

    def steps(self, steps: list[AnyStep]) -> _Edges:
        out = _Edges()
        for step in steps:
            edges = self._edges(step)
            self._meet(out.last, edges.first)
            if out.silent:
                out.first += edges.first
            out.last = [*(out.last if edges.silent else ()), *edges.last]
            out.silent = out.silent and edges.silent
        return out

    def _edges(self, step: AnyStep) -> _Edges:
        match step:
            case TextStep():
                return _Edges([], [(step.text.source, step.text.node)], silent=False)
            case Raw():
                return _Edges([], [(step.raw.source, step.raw.node)], silent=False)
            case Gen() | Select():
                return _Edges([step], silent=False)
            case Role():
                self.steps(step.steps)
                return _Edges(silent=False)
            case Messages() | Include() | Break() | Continue() | Return() | Fail():
                return _Edges(silent=False)
            case Capture():
                return self.steps(step.do)
            case If():
                return _either(self.steps(block) for block in (step.then, step.orelse or []))
            case Match():
                return _either(self.steps(block) for block in (*step.cases.values(), step.orelse or []))
            case For() | While():
                body = self.steps(step.do)
                self._meet(body.last, body.first)  # one round after the other
                body.silent = True
                return body
            case Scratch():
                return _Edges(self.steps(step.scratch).first)
            case Fork():
                branches = [self.steps(block) for block in (step.branches or {"": step.do or []}).values()]
                return _Edges(
                    [gen for branch in branches for gen in branch.first], silent=step.join in (None, "gather")
                )
            case _:
                return _Edges()

    def _meet(self, blocks: Iterable[Block], gens: list[Gen | Select]) -> None:
        for source, node in blocks if gens else ():
            sign = self._implied(source, node)
            if not sign or node in self.reported:
                continue
            self.reported.add(node)
            message = f"the block's last newline comes right before the `{gens[0].VERB}`"
            help = f"Write `{sign}-` to leave it out, or `{sign}+` if it is meant."
            self.report.add(self.document.diagnostic("W201", message, node, severity="warning", help=help))

    def _implied(self, source: str, node: Scalar) -> str:
        """The sign of a block whose last newline is not written out; "" for any other text."""
        if node.style not in ("literal", "folded") or not source.endswith("\n"):
            return ""
        header = self.document.source.lines[node.range.start.line - 1][node.range.start.column - 1 :].split("#")[0]
        return "" if "+" in header or "-" in header else header[:1]


def _either(paths: Iterable[_Edges]) -> _Edges:
    """The edges of steps of which one block runs."""
    every = list(paths)
    return _Edges(
        [gen for path in every for gen in path.first],
        [block for path in every for block in path.last],
        silent=any(path.silent for path in every),
    )

"""The tests in a document: their inputs, the names of their replies, their expectations."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping as MappingABC

from sglspec.analysis.comparisons import check_comparisons, check_truth
from sglspec.analysis.declarations import check_input, nearest
from sglspec.analysis.inputs import fill
from sglspec.analysis.operations import check_operations
from sglspec.analysis.program import Program
from sglspec.analysis.types import ANY, Type, of_decl
from sglspec.diagnostics import Report
from sglspec.diagnostics.codes import CODES
from sglspec.document.model import Case
from sglspec.document.nodes import Mapping, Node, Scalar, Sequence, to_python
from sglspec.expressions.errors import ExpressionSyntaxError
from sglspec.expressions.syntax import parse_expression

_FAMILIES = frozenset(f"{code[:2]}xx" for code in CODES)


class CaseChecker:
    """Checks every entry of `tests`. `bound`: all names that steps bind, in whatever scope; `types`: what is known of
    outputs and variables where a run succeeds; `all_known`: nothing that the program includes or calls has errors of
    its own, so that all keys of replies are known."""

    def __init__(
        self,
        program: Program,
        report: Report,
        bound: Collection[str],
        types: MappingABC[str, Type],
        *,
        all_known: bool = True,
    ) -> None:
        self.all_known = all_known
        self._types = types
        self.program = program
        self.document = program.document
        self.report = report
        spec = program.spec
        outputs = [target.name for target in spec.outputs.names] if spec.outputs is not None else []
        self.readable = [*dict.fromkeys([*outputs, *bound, *spec.inputs])]

    def check(self, case: Case) -> None:
        self._inputs(case)
        self._replies(case)
        if case.expect is not None:
            node = case.expect.node
            for item in node.items if isinstance(node, Sequence) else (node,):
                self._expectation(item, failing=case.error is not None)
        self._calls(case)
        self._tags(case)
        if case.error is not None and (case.error[:1] != "S" or case.error not in CODES.keys() | _FAMILIES):
            help = "Write a code such as S702, or a family such as S7xx."
            self._fault("S203", f"`{case.error}` is not an error code", case.at("error"), help)

    def _inputs(self, case: Case) -> None:
        given = case.inputs or {}
        mapping = case.at("inputs")
        for name, value in given.items():
            decl = self.document.spec.inputs.get(name)
            if decl is None:
                close = nearest(name, list(self.document.spec.inputs))
                help = f"Did you mean `{close}`?" if close else None
                self._fault("S403", f"the program has no input `{name}`", _key(mapping, name), help)
                continue
            message = check_input(decl, fill(decl, to_python(value.node)))
            if message is not None:
                self._fault("S401", f"input `{name}`: {message}", value.node)
        for name, decl in self.document.spec.inputs.items():
            if name not in given and decl.default is None and not decl.optional:
                place = case.key("inputs") if case.inputs is not None else _first_key(case)
                self._fault("S402", f"the input `{name}` is missing in this test", place)

    def _replies(self, case: Case) -> None:
        mapping = case.at("replies")
        for name in case.replies or {}:
            if self.program.takes_reply(name) or not self.all_known:
                continue
            keys = self.program.reply_keys(name)
            known = ", ".join(keys[:12])
            close = nearest(name, keys)
            help = f"Did you mean `{close}`?" if close else f"Replies are given for: {known}." if known else None
            self._fault("S301", f"no step takes the reply `{name}`", _key(mapping, name), help)

    def _calls(self, case: Case) -> None:
        """`calls`: the key of a step, as for replies, and how often it runs."""
        if case.calls is None:
            return
        node = case.calls.node
        if not isinstance(node, Mapping):
            self._fault("S203", "`calls` is a mapping of names to counts", node, "Write `calls: {answer: 2}`.")
            return
        for entry in node.entries:
            name, count = entry.key.text, to_python(entry.value)
            if not self.program.takes_reply(name) and self.all_known:
                close = nearest(name, self.program.reply_keys(name))
                help = f"Did you mean `{close}`?" if close else None
                self._fault("S301", f"no step is named `{name}`", entry.key, help)
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                self._fault("S203", "a count is a whole number from 0", entry.value)

    def _tags(self, case: Case) -> None:
        node = case.tags.node if case.tags is not None else None
        words = node.items if isinstance(node, Sequence) else [node] if node is not None else []
        for word in words:
            if not isinstance(word, Scalar) or not isinstance(word.value, str):
                self._fault("S203", "`tags` is a list of words", word)

    def _expectation(self, node: Node, *, failing: bool) -> None:
        if not isinstance(node, Scalar) or node.value is None:
            self._fault("S203", "`expect` is a list of expressions", node)
            return
        try:
            compiled = parse_expression(node.text)
        except ExpressionSyntaxError as error:
            self.report.add(
                self.document.diagnostic_in(error.code, error.message, node, error.start, error.end, help=error.help)
            )
            return
        for use in compiled.names:
            declared = self.document.spec.inputs.get(use.name)
            if declared is not None and declared.secret:
                message = f"the secret input `{use.name}` would be shown where this does not hold"
                help = "Expect something of what the program makes of it."
                self.report.add(self.document.diagnostic_in("S308", message, node, use.start, use.end, help=help))
            if use.name in self.readable:
                continue
            close = nearest(use.name, self.readable)
            help = f"Did you mean `{close}`?" if close else None
            message = f"the program has no output or variable `{use.name}`"
            self.report.add(self.document.diagnostic_in("S301", message, node, use.start, use.end, help=help))
        if failing:
            return  # a run that fails leaves what it had by then
        root = compiled.root
        for p in (
            *check_truth(root, self._lookup),
            *check_comparisons(root, self._lookup),
            *check_operations(root, self._lookup),
        ):
            self.report.add(self.document.diagnostic_in(p.code, p.message, node, p.start, p.end, help=p.help))

    def _lookup(self, name: str) -> Type:
        declared = self.document.spec.inputs.get(name)
        return self._types.get(name) or (of_decl(declared) if declared is not None else ANY)

    def _fault(self, code: str, message: str, node: Node, help: str | None = None) -> None:
        self.report.add(self.document.diagnostic(code, message, node, help=help))


def _key(mapping: Node, name: str) -> Node:
    return (mapping.key(name) if isinstance(mapping, Mapping) else None) or mapping


def _first_key(case: Case) -> Node:
    return case.node.entries[0].key if case.node.entries else case.node

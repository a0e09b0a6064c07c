"""Compiling every text, expression and value field, with syntax errors at their exact place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Sequence as SequenceABC
from dataclasses import dataclass, field
from typing import Literal

from sglspec.analysis.infer import infer
from sglspec.analysis.lints import braces_in_key
from sglspec.analysis.patterns import insert_patterns
from sglspec.analysis.program import CompiledValue, Constant, ListValue, MapValue, Rendered
from sglspec.analysis.types import ANY, LOOP, STRING, Lookup
from sglspec.diagnostics import MAX_REPORTED, Report
from sglspec.document.fields import TEMPLATE_MARK, Expr, Items, Param, Text, Texts
from sglspec.document.load import Document
from sglspec.document.nodes import Node, Scalar, Sequence
from sglspec.expressions import ast
from sglspec.expressions.errors import ExpressionSyntaxError
from sglspec.expressions.syntax import (
    Expression,
    Template,
    looks_like_expression,
    parse_expression,
    parse_template,
    without_piece,
)

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_MAX_FAULTS = 8
"""Syntax errors shown of one text."""
_LONGEST = 4_000
"""A longer text is read once only, even if it has a fault."""

Use = Callable[["Template | Expression", Scalar], None]
"""Called with everything that compiled, to look at the names in it."""


@dataclass(slots=True)
class Compiler:
    """Compiles and remembers. `use` is told about each result; what does not parse is reported and left out."""

    document: Document
    report: Report
    use: Use
    templates: dict[Text, Template] = field(default_factory=dict[Text, Template])
    expressions: dict[Expr, Expression] = field(default_factory=dict[Expr, Expression])
    values: dict[Node, CompiledValue] = field(default_factory=dict[Node, CompiledValue])
    words: set[str] = field(default_factory=set[str])
    """Words in texts that did not compile."""

    def text(self, text: Text, *, message: bool = False, inserts: Mapping[str, str] | None = None) -> Template | None:
        """A template; `message`: it is a whole message, which loses its outer blank lines; `inserts`: names that stand
        for parts of a pattern."""
        template = self._template(text.source, text.node, message=message, inserts=inserts)
        if template is not None:
            self.templates[text] = template
        return template

    def expression(self, expr: Expr) -> Expression | None:
        try:
            compiled = parse_expression(expr.source)
        except ExpressionSyntaxError as error:
            self._syntax(error, expr.node)
            return None
        self.expressions[expr] = compiled
        self.use(compiled, expr.node)
        return compiled

    def value(self, node: Node, visible: Collection[str]) -> CompiledValue | None:
        """A value field. None when a part of it does not compile."""
        compiled = self._value(node, visible, in_list=False)
        if compiled is not None:
            self.values[node] = compiled
        return compiled

    def items(self, items: Items, visible: Collection[str]) -> Expression | ListValue | None:
        """`in` and `from`: an expression, or a literal list whose texts are templates."""
        if items.expr is not None:
            return self.expression(items.expr)
        assert items.literal is not None
        compiled = self._value(items.literal, visible, in_list=False)
        if compiled is not None:
            self.values[items.literal] = compiled
        return compiled if isinstance(compiled, ListValue) else None

    def param(self, param: Param | None) -> Expression | None:
        """A number, boolean or word that may be a template; it keeps its type."""
        if param is None or param.template is None:
            return None
        template = self.text(param.template)
        if template is None:
            return None
        self.values[param.node] = Rendered(template, param.node)
        if template.single is None:
            help = "Write exactly one `{{ … }}`, with nothing around it."
            self.report.add(
                self.document.diagnostic("S203", "this option needs a single value, not a text", param.node, help=help)
            )
        return template.single

    def texts(
        self, texts: Texts | None, visible: Collection[str] = (), inserts: Mapping[str, str] | None = None
    ) -> None:
        """Stops: texts, one of which may be `{{ list }}`."""
        if texts is None:
            return
        for text in texts.items:
            if looks_like_expression(text.source, visible):
                self._looks_like_expression(text.node, in_list=isinstance(texts.node, Sequence))
            template = self.text(text, inserts=inserts)
            if template is not None:
                self.values[text.node] = Rendered(template, text.node)

    def _template(
        self, source: str, node: Scalar, *, message: bool = False, inserts: Mapping[str, str] | None = None
    ) -> Template | None:
        template, whole = None, True
        for _ in range(_MAX_FAULTS):
            try:
                template = parse_template(source, message=message)
                break
            except ExpressionSyntaxError as error:
                self._syntax(error, node)
                whole = False
                worth = len(source) <= _LONGEST and self.report.count < MAX_REPORTED
                rest = without_piece(source, error.start) if worth else None
                if rest is None:
                    return None
                source = rest
        if template is None:
            return None
        if inserts:
            template = insert_patterns(template, inserts)
        self.use(template, node)
        return template if whole else None

    def _syntax(self, error: ExpressionSyntaxError, node: Scalar) -> None:
        self.mentioned(node.text)
        help = error.help
        if help is None and error.end >= len(node.text) and self._cut_by_comment(node):
            help = "The ` #` behind it begins a comment, which cut the text short. Put quotes around all of it."
        self.report.add(self.document.diagnostic_in(error.code, error.message, node, error.start, error.end, help=help))

    def _cut_by_comment(self, node: Scalar) -> bool:
        """Whether a comment follows right behind a text without quotes."""
        line = self.document.source.lines[node.range.end.line - 1]
        return node.style == "plain" and line[node.range.end.column - 1 :].lstrip(" \t").startswith("#")

    def _value(self, node: Node, visible: Collection[str], *, in_list: bool) -> CompiledValue | None:
        if isinstance(node, Scalar):
            return self._scalar(node, visible, in_list)
        if isinstance(node, Sequence):
            items = [self._value(item, visible, in_list=True) for item in node.items]
            return ListValue(tuple(i for i in items if i is not None)) if None not in items else None
        for entry in node.entries:
            help = 'An object whose keys are values is an expression: `"{{ {name: 1} }}"`.'
            braces_in_key(self.document, self.report, entry.key, help)
        entries = [(e.key.text, self._value(e.value, visible, in_list=in_list)) for e in node.entries]
        if any(value is None for _, value in entries):
            return None
        return MapValue(tuple((key, value) for key, value in entries if value is not None))

    def _scalar(self, node: Scalar, visible: Collection[str], in_list: bool) -> CompiledValue | None:
        if not isinstance(node.value, str):
            return Constant(node.value)
        if TEMPLATE_MARK.search(node.text):
            template = self._template(node.text, node)
            return Rendered(template, node) if template is not None else None
        if looks_like_expression(node.text, visible):
            self._looks_like_expression(node, in_list)
        return Constant(node.text)

    def mentioned(self, text: str) -> None:
        """A text with an error of its own still speaks of names: they need no second message."""
        self.words.update(_WORD.findall(text))

    def _looks_like_expression(self, node: Scalar, in_list: bool) -> None:
        text = node.text.strip()
        self.mentioned(text)
        value = f'"{{{{ {text} }}}}"' if '"' not in text else f"'{{{{ {text} }}}}'"
        quoted = "'" + text.replace("'", "\\'") + "'"
        help = f"Write {value} for the value."
        if in_list:
            message = f"`{text}` is taken as the text itself, not as a variable"
            self.report.add(self.document.diagnostic("W202", message, node, severity="warning", help=help))
            return
        if '"' not in text:
            help += f' Write "{{{{ {quoted} }}}}" for the text itself.'
        message = f"`{text}` looks like an expression, but a value without braces is a plain text"
        self.report.add(self.document.diagnostic("S256", message, node, help=help))


Role = Literal["inserted", "condition", "list"]


def expressions_of(body: SequenceABC[ast.Stmt], lookup: Lookup) -> Iterator[tuple[ast.Expr, Lookup, Role]]:
    """Every top-level expression of a template, with the types of the names where it stands, and what it is for."""
    for statement in body:
        match statement:
            case ast.Output(value=value):
                yield value, lookup, "inserted"
            case ast.If(branches=branches):
                for branch in branches:
                    if branch.test is not None:
                        yield branch.test, lookup, "condition"
                    yield from expressions_of(branch.body, lookup)
            case ast.For(items=items, filter=test):
                yield items, lookup, "list"
                inner = _within(statement, lookup)
                if test is not None:
                    yield test, inner, "condition"
                yield from expressions_of(statement.body, inner)
                yield from expressions_of(statement.otherwise, lookup)
            case ast.Text():
                pass


def _within(loop: ast.For, lookup: Lookup) -> Lookup:
    """The types of names inside of a `{% for %}`."""
    listed = infer(loop.items, lookup)
    items = STRING if listed.kind == "object" else (listed.items if listed.kind == "array" else None) or ANY
    targets = {target.name: items if len(loop.targets) == 1 else ANY for target in loop.targets} | {"loop": LOOP}
    return lambda name: targets[name] if name in targets else lookup(name)

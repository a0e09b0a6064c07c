"""From Jinja's syntax tree to ours: an allow-list with places. What is not on it is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from jinja2 import nodes

from sglspec.expressions import ast
from sglspec.expressions.signatures import check_call, check_test, method_help
from sglspec.expressions.tokens import CLOSERS, Token, fail, shown_token

MAX_TREE_DEPTH = 150

_BINARY: dict[type[nodes.Node], ast.BinaryOp] = {
    nodes.Add: "+",
    nodes.Sub: "-",
    nodes.Mul: "*",
    nodes.Div: "/",
    nodes.FloorDiv: "//",
    nodes.Mod: "%",
    nodes.Pow: "**",
}
_COMPARE: dict[str, ast.CompareOp] = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "lteq": "<=",
    "gt": ">",
    "gteq": ">=",
    "in": "in",
    "notin": "not in",
}


class Converter:
    """Jinja's nodes carry the index of a token where it would carry a line (`lineno`); from there come all places."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._match = _match_brackets(tokens)
        self._by_start = {token.start: at for at, token in enumerate(tokens) if token.end > token.start}
        self._by_end = {token.end: at for at, token in enumerate(tokens) if token.end > token.start}
        self._depth = 0

    # Expressions

    def expr(self, node: nodes.Node) -> ast.Expr:
        """One expression."""
        self._depth += 1
        if self._depth > MAX_TREE_DEPTH:
            token = self._tokens[node.lineno]
            message = f"This strings together more than {MAX_TREE_DEPTH} operations."
            raise fail(message, token.start, token.end, "Compute parts of it in a `set` step before.", code="S253")
        handler = _EXPRESSIONS.get(type(node))
        if handler is None:
            token = self._tokens[node.lineno]
            raise fail("Expressions do not have this.", token.start, token.end, code="S252")
        converted = handler(self, node)
        self._depth -= 1
        return converted

    def _outer(self, node: ast.Expr) -> tuple[int, int]:
        """The place of an operand with the parentheses around it."""
        start, end = node.start, node.end
        while True:
            first, last = self._by_start.get(start, 0), self._by_end.get(end, 0)
            if first == 0 or self._tokens[first - 1].kind != "lparen" or self._match.get(first - 1) != last + 1:
                return start, end
            start, end = self._tokens[first - 1].start, self._tokens[last + 1].end

    def name(self, node: nodes.Name) -> ast.Expr:
        token = self._tokens[node.lineno]
        if node.name == "null":
            return ast.Literal(token.start, token.end, None)
        return ast.Name(token.start, token.end, node.name)

    def const(self, node: nodes.Const) -> ast.Expr:
        token = self._tokens[node.lineno]
        return ast.Literal(token.start, token.end, cast("bool | int | float | str | None", node.value))

    def list_(self, node: nodes.List) -> ast.Expr:
        start, end = self._brackets(node.lineno)
        return ast.ListLit(start, end, tuple(map(self.expr, node.items)))

    def tuple_(self, node: nodes.Tuple) -> ast.Expr:
        items = tuple(map(self.expr, node.items))
        if not items:
            opener = next(first for first, last in self._match.items() if last == node.lineno)
            return ast.ListLit(*self._brackets(opener), ())
        return ast.ListLit(self._outer(items[0])[0], self._outer(items[-1])[1], items)

    def map_(self, node: nodes.Dict) -> ast.Expr:
        start, end = self._brackets(node.lineno)
        return ast.MapLit(start, end, tuple((self.expr(p.key), self.expr(p.value)) for p in node.items))

    def attribute(self, node: nodes.Getattr) -> ast.Expr:
        value = self.expr(node.node)
        name = self._tokens[node.lineno + 1]
        return ast.Attribute(self._outer(value)[0], name.end, value, node.attr, name.start)

    def item(self, node: nodes.Getitem) -> ast.Expr:
        value = self.expr(node.node)
        start = self._outer(value)[0]
        opener = self._tokens[node.lineno]
        if opener.kind == "dot":
            number = self._tokens[node.lineno + 1]
            return ast.Index(start, number.end, value, self.expr(node.arg))
        end = self._brackets(node.lineno)[1]
        if isinstance(node.arg, nodes.Slice):
            lower, upper, step = (
                self.expr(part) if part is not None else None for part in (node.arg.start, node.arg.stop, node.arg.step)
            )
            return ast.Slice(start, end, value, lower, upper, step)
        if isinstance(node.arg, nodes.Tuple) and self._tokens[node.lineno + 1].kind != "lparen":
            raise fail("One index stands between `[` and `]`.", opener.start, end, "Write `x[0][1]`.")
        return ast.Index(start, end, value, self.expr(node.arg))

    def call(self, node: nodes.Call) -> ast.Expr:
        opener = self._tokens[node.lineno]
        if isinstance(node.node, nodes.Getattr):
            method = self._tokens[node.lineno - 1]
            owner = node.node.node
            simple = isinstance(owner, nodes.Name) or (isinstance(owner, nodes.Const) and isinstance(owner.value, str))
            receiver = shown_token(self._tokens[owner.lineno]) if simple else "x"
            help = method_help(receiver, str(method.value), self._written(node.lineno))
            message = f"Values have no methods: `.{method.value}()`."
            raise fail(message, method.start, opener.end, help, code="S252")
        if not isinstance(node.node, nodes.Name):
            message = "Only functions of the library can be called."
            raise fail(message, opener.start, opener.end, "Put `~` or `*` before the bracket.", code="S252")
        name = self._tokens[node.lineno - 1]
        args, kwargs = self._arguments(node, opener)
        call = ast.Call(name.start, self._brackets(node.lineno)[1], node.node.name, args, kwargs, name.start, name.end)
        check_call(call, args)
        return call

    def _written(self, opener: int) -> str:
        """The arguments of a call as the author wrote them, with their brackets; "" for none."""
        last = self._match.get(opener, opener)
        inside = self._tokens[opener + 1 : last]
        if not inside or len(inside) > 12:
            return "(…)" if inside else ""
        text, end = "", inside[0].start
        for token in inside:
            text += " " * (token.start > end) + shown_token(token)
            end = token.end
        return f"({text})"

    def filter(self, node: nodes.Filter) -> ast.Expr:
        name = self._tokens[node.lineno]
        following = self._tokens[node.lineno + 1]
        if "." in node.name:
            raise fail(f"`{node.name}` is not a function.", name.start, following.end, code="S252")
        value = self.expr(cast("nodes.Expr", node.node))
        args, kwargs = self._arguments(node, name)
        end = self._brackets(node.lineno + 1)[1] if following.kind == "lparen" else name.end
        start = self._outer(value)[0]
        filtered = ast.Filter(start, end, value, node.name, args, kwargs, name.start, name.end)
        check_call(filtered, (value, *args))
        return filtered

    def test(self, node: nodes.Test, negated: bool = False) -> ast.Expr:
        value = self.expr(node.node)
        at = node.lineno + (2 if negated else 1)
        name, following = self._tokens[at], self._tokens[at + 1]
        args, kwargs = self._arguments(node, name)
        if kwargs:
            raise fail("A test takes no named arguments.", name.start, name.end, code="S406")
        end = name.end
        if following.kind == "lparen":
            end = self._brackets(at + 1)[1]
        elif args:
            end = args[-1].end
        check_test(node.name, len(args), name.start, name.end)
        return ast.Test(self._outer(value)[0], end, value, node.name, args, negated)

    def _arguments(
        self, node: nodes.Call | nodes.Filter | nodes.Test, at: Token
    ) -> tuple[tuple[ast.Expr, ...], tuple[tuple[str, ast.Expr], ...]]:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise fail("Arguments cannot be unpacked with `*`.", at.start, at.end, code="S252")
        kwargs = tuple((pair.key, self.expr(pair.value)) for pair in cast("list[nodes.Keyword]", node.kwargs))
        return tuple(map(self.expr, node.args)), kwargs

    def compare(self, node: nodes.Compare) -> ast.Expr:
        first = self.expr(node.expr)
        rest: list[tuple[ast.CompareOp, ast.Expr]] = []
        for operand in node.ops:
            rest.append((_COMPARE[operand.op], self.expr(operand.expr)))
        return ast.Compare(self._outer(first)[0], self._outer(rest[-1][1])[1], first, tuple(rest))

    def binary(self, node: nodes.BinExpr) -> ast.Expr:
        left, right = self.expr(node.left), self.expr(node.right)
        return ast.Binary(self._outer(left)[0], self._outer(right)[1], _BINARY[type(node)], left, right)

    def concat(self, node: nodes.Concat) -> ast.Expr:
        parts = tuple(map(self.expr, node.nodes))
        return ast.Concat(self._outer(parts[0])[0], self._outer(parts[-1])[1], parts)

    def logical(self, node: nodes.And | nodes.Or) -> ast.Expr:
        # `a or b or c` leans to the left; one flat node keeps long chains shallow.
        parts: list[nodes.Expr] = [node.right]
        left = node.left
        while isinstance(left, nodes.And if isinstance(node, nodes.And) else nodes.Or):
            parts.append(left.right)
            left = left.left
        parts.append(left)
        operands = tuple(map(self.expr, reversed(parts)))
        op = "and" if isinstance(node, nodes.And) else "or"
        return ast.Logical(self._outer(operands[0])[0], self._outer(operands[-1])[1], op, operands)

    def unary(self, node: nodes.Neg | nodes.Pos) -> ast.Expr:
        token = self._tokens[node.lineno]
        operand = self.expr(node.node)
        return ast.Unary(token.start, self._outer(operand)[1], "-" if isinstance(node, nodes.Neg) else "+", operand)

    def not_(self, node: nodes.Not) -> ast.Expr:
        token = self._tokens[node.lineno]
        if token.value == "is" and isinstance(node.node, nodes.Test):
            return self.test(node.node, negated=True)
        operand = self.expr(node.node)
        return ast.Unary(token.start, self._outer(operand)[1], "not", operand)

    def conditional(self, node: nodes.CondExpr) -> ast.Expr:
        test, body = self.expr(node.test), self.expr(node.expr1)
        otherwise = self.expr(node.expr2) if node.expr2 is not None else None
        end = self._outer(otherwise if otherwise is not None else test)[1]
        return ast.Conditional(self._outer(body)[0], end, test, body, otherwise)

    def _brackets(self, at: int) -> tuple[int, int]:
        return self._tokens[at].start, self._tokens[self._match[at]].end

    # Statements

    def body(self, statements: Sequence[nodes.Node]) -> tuple[ast.Stmt, ...]:
        """A run of statements."""
        converted: list[ast.Stmt] = []
        for statement in statements:
            if isinstance(statement, nodes.Output):
                converted.extend(map(self._output, statement.nodes))
            elif isinstance(statement, nodes.If):
                converted.append(self._if(statement))
            elif isinstance(statement, nodes.For):
                converted.append(self._for(statement))
            else:
                token = self._tokens[statement.lineno]
                raise fail("Templates do not have this tag.", token.start, token.end, code="S252")
        return tuple(converted)

    def _output(self, node: nodes.Node) -> ast.Stmt:
        if isinstance(node, nodes.TemplateData):
            token = self._tokens[node.lineno]
            return ast.Text(token.start, token.end, node.data)
        value = self.expr(node)
        return ast.Output(value.start, value.end, value)

    def _if(self, node: nodes.If) -> ast.If:
        branches = [self._branch(part) for part in (node, *node.elif_)]
        if node.else_:
            body = self.body(node.else_)
            branches.append(ast.Branch(body[0].start, body[-1].end, None, body))
        return ast.If(self._tokens[node.lineno].start, branches[-1].end, tuple(branches))

    def _branch(self, node: nodes.If) -> ast.Branch:
        test, body = self.expr(node.test), self.body(node.body)
        return ast.Branch(test.start, body[-1].end if body else test.end, test, body)

    def _for(self, node: nodes.For) -> ast.For:
        items = self.expr(node.iter)
        targets = self._targets(node.target)
        condition = self.expr(node.test) if node.test is not None else None
        body = self.body(node.body)
        otherwise = self.body(node.else_)
        end = max([items.end, *(part.end for part in (*body, *otherwise))])
        uses_loop = any(name.name == "loop" for name in node.find_all(nodes.Name))
        start = self._tokens[node.lineno].start
        return ast.For(start, end, targets, items, condition, body, otherwise, uses_loop)

    def _targets(self, node: nodes.Node) -> tuple[ast.Name, ...]:
        parts = node.items if isinstance(node, nodes.Tuple) else [node]
        targets: list[ast.Name] = []
        for part in parts:
            token = self._tokens[part.lineno]
            if not isinstance(part, nodes.Name):
                raise fail("The variables of a loop are plain names.", token.start, token.end, code="S252")
            if any(part.name == other.name for other in targets):
                raise fail(f"`{part.name}` stands here twice.", token.start, token.end, code="S250")
            targets.append(ast.Name(token.start, token.end, part.name))
        return tuple(targets)


def _match_brackets(tokens: Sequence[Token]) -> dict[int, int]:
    """Index of the opening token → index of the closing one."""
    match: dict[int, int] = {}
    stack: list[int] = []
    for at, token in enumerate(tokens):
        if token.value in CLOSERS and token.kind in ("lparen", "lbracket", "lbrace"):
            stack.append(at)
        elif token.kind in ("rparen", "rbracket", "rbrace"):
            match[stack.pop()] = at
    return match


_Handler = Callable[[Converter, Any], ast.Expr]

_EXPRESSIONS: dict[type[nodes.Node], _Handler] = {
    nodes.Name: Converter.name,
    nodes.Const: Converter.const,
    nodes.List: Converter.list_,
    nodes.Tuple: Converter.tuple_,
    nodes.Dict: Converter.map_,
    nodes.Getattr: Converter.attribute,
    nodes.Getitem: Converter.item,
    nodes.Call: Converter.call,
    nodes.Filter: Converter.filter,
    nodes.Test: Converter.test,
    nodes.Compare: Converter.compare,
    nodes.Concat: Converter.concat,
    nodes.And: Converter.logical,
    nodes.Or: Converter.logical,
    nodes.Neg: Converter.unary,
    nodes.Pos: Converter.unary,
    nodes.Not: Converter.not_,
    nodes.CondExpr: Converter.conditional,
    **dict.fromkeys(_BINARY, Converter.binary),
}

"""Patterns with names (`defs.regexes`) in other patterns: `{{ name }}` is the pattern itself, as a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sglspec.expressions import ast
from sglspec.expressions.names import reads_of_template
from sglspec.expressions.syntax import Template


def insert_patterns(template: Template, patterns: Mapping[str, str]) -> Template:
    """The template with these names replaced by what they stand for; other values stay to be inserted."""
    body = _body(template.body, patterns)
    if body == template.body:
        return template
    reads = reads_of_template(body)
    single = template.single if body and isinstance(body[0], ast.Output) else None
    return replace(template, body=body, names=reads.names, functions=reads.functions, single=single)


def _body(body: tuple[ast.Stmt, ...], patterns: Mapping[str, str]) -> tuple[ast.Stmt, ...]:
    return tuple(_statement(statement, patterns) for statement in body)


def _statement(statement: ast.Stmt, patterns: Mapping[str, str]) -> ast.Stmt:
    match statement:
        case ast.Output(value=ast.Name(name=name)) if name in patterns:
            return ast.Text(statement.start, statement.end, f"(?:{patterns[name]})")
        case ast.If(branches=branches):
            return replace(statement, branches=tuple(replace(b, body=_body(b.body, patterns)) for b in branches))
        case ast.For(targets=targets):
            shadowed = {target.name for target in targets}
            inner = {name: pattern for name, pattern in patterns.items() if name not in shadowed}
            otherwise = _body(statement.otherwise, patterns)
            return replace(statement, body=_body(statement.body, inner), otherwise=otherwise)
        case _:
            return statement


__all__ = ["insert_patterns"]

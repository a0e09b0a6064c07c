"""A scope made of plain values, for the tests of this folder."""

from __future__ import annotations

from sglspec.expressions import Origin, Value, evaluate, parse_expression, parse_template, render


class PlainScope:
    """Variables by name; `origins` says who wrote them ("input" unless told)."""

    def __init__(self, values: dict[str, Value] | None = None, origins: dict[str, Origin] | None = None) -> None:
        self.values = values or {}
        self.origins = origins or {}

    def lookup(self, name: str) -> tuple[Value, Origin]:
        return self.values[name], self.origins.get(name, "input")

    def meta(self, name: str) -> Value:
        return {"finish": "stop", "value": self.values[name]}

    def messages(self) -> Value:
        return [{"role": "user", "content": "hello"}]

    def transcript(self) -> str:
        return "USER: hello"


def text_of(template: str, values: dict[str, Value] | None = None, *, message: bool = False) -> str:
    """The text that a template makes of some values."""
    parsed = parse_template(template, message=message)
    return "".join(segment.text for segment in render(parsed, PlainScope(values)))


def value_of(expression: str, values: dict[str, Value] | None = None) -> Value:
    """The value of an expression."""
    return evaluate(parse_expression(expression), PlainScope(values))

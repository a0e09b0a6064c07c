"""Rendering a model's own chat template, in a sandbox.

The template comes with the model and is not trusted: Jinja2's immutable sandbox, a bound on its size and on what it
may produce, no clock (a template that prints today's date would make results depend on the day; such templates fall
back to the date they carry themselves).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sglspec_engine.types import EngineError

MAX_SOURCE = 256 * 1024
MAX_RENDERED = 1024 * 1024


class Refused(Exception):
    """The template rejects this conversation (it called raise_exception, or failed on it)."""


class Renderer:
    """A compiled chat template."""

    def __init__(self, source: str, special_text: Mapping[str, str]) -> None:
        """Raises EngineError("template") if the source does not compile."""
        if len(source) > MAX_SOURCE:
            raise EngineError("template", f"the chat template is longer than {MAX_SOURCE} characters")
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise EngineError("template", f"the chat template does not parse: {error}") from None
        self.special_text: Mapping[str, str] = dict(special_text)

    def render(self, messages: Sequence[tuple[str, str]], *, generate: bool = False) -> str:
        """The conversation as text, with `generate` up to where the assistant's reply begins. Raises Refused."""
        rows = [{"role": role, "content": content} for role, content in messages]
        pieces: list[str] = []
        length = 0
        try:
            for piece in self._template.generate(
                messages=rows, tools=None, documents=None, add_generation_prompt=generate, **self.special_text
            ):
                length += len(piece)
                if length > MAX_RENDERED:
                    raise Refused("it produces too much text")
                pieces.append(piece)
        except Refused:
            raise
        except Exception as error:  # a template is foreign code: whatever it does wrong is its refusal
            raise Refused(str(error) or type(error).__name__) from None
        return "".join(pieces)


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}` marks what the assistant wrote; its content is just rendered."""

    tags = {"generation"}  # noqa: RUF012  (Jinja2's declared attribute)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    filters = cast("dict[str, Any]", environment.filters)  # pyright: ignore[reportUnknownMemberType]
    names = cast("dict[str, Any]", environment.globals)  # pyright: ignore[reportUnknownMemberType]
    filters["tojson"] = _tojson
    names["raise_exception"] = _raise_exception
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Plain JSON; Jinja2's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

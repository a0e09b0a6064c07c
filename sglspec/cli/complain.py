"""Diagnostics on their way to the user, and the texts they point into."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING

from sglspec.cli.streams import note, wants_color, width_of

if TYPE_CHECKING:
    from sglspec.diagnostics import Diagnostic, Report
    from sglspec.document.nodes import Source


class Refused(Exception):
    """The command cannot go on. `code` is the exit code."""

    def __init__(self, code: int, diagnostics: Iterable[Diagnostic]) -> None:
        self.code = code
        self.diagnostics = tuple(diagnostics)
        super().__init__("; ".join(d.message for d in self.diagnostics))


def once(problems: Iterable[Diagnostic]) -> list[Diagnostic]:
    """What is wrong with a document that several use, for the first of these only."""
    found: dict[Diagnostic, Diagnostic] = {}
    for problem in problems:
        found.setdefault(replace(problem, related=()), problem)
    return list(found.values())


@dataclass(slots=True)
class Texts:
    """Every text that was read, by the name it has in messages: snippets are cut from here."""

    by_name: dict[str, str] = field(default_factory=dict[str, str])

    def keep(self, source: Source) -> Source:
        self.by_name[source.name] = source.text
        return source

    def keep_all(self, report: Report) -> None:
        """The other files that a document uses."""
        self.by_name.update(report.texts)

    def render(self, diagnostics: Iterable[Diagnostic], stream: IO[str]) -> str:
        """The text face, made for where it is going."""
        from sglspec.diagnostics.render import render_text

        return render_text(diagnostics, self.by_name, color=wants_color(stream), width=width_of(stream))

    def complain(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Print to standard error."""
        note(self.render(diagnostics, sys.stderr), end="")

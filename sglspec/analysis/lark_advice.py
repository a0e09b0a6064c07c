"""What is wrong with a grammar, in words for authors: llguidance's reasons are written for its own."""

from __future__ import annotations

import re
from collections.abc import Callable

from sglspec.analysis.declarations import nearest

NOTATION = 'A rule is a line `name: "text" other_rule | /pattern/`. That of the whole text is `start`.'
_NAME = re.compile(r"^[ \t]*[?!]?([A-Za-z_]\w*)", re.MULTILINE)

_Words = Callable[[re.Match[str], str], tuple[str, str]]


def _unknown(found: re.Match[str], source: str) -> tuple[str, str]:
    name = found[1]
    others = [one for one in _NAME.findall(source) if one != name]
    close = nearest(name, others)
    return f"there is no rule `{name}`", f"Did you mean `{close}`?" if close else f'Add a line `{name}: "…"`.'


def _missing(found: re.Match[str], source: str) -> tuple[str, str]:
    there = found[2]
    what = "the line ends too early" if there in ("\\n", "") else f"`{there}` cannot stand here"
    wanted = found[1].removesuffix("...")
    if there == "=":
        return what, "A colon stands between a rule's name and what it is: `name: …`."
    return what, f"`{wanted}` is missing here." if wanted in tuple(")]}:") else NOTATION


def _common(found: re.Match[str], source: str) -> tuple[str, str]:
    known = [name.removeprefix("common.") for name in found[2].split(", ")]
    return f"there is no `common.{found[1]}`", f"There are: {', '.join(known)}."


def _says(message: str, help: str) -> _Words:
    return lambda found, source: (message.format(*found.groups()), help.format(*found.groups()))


_PLACE = r"(?: \(at .*)?$"
_REASONS: tuple[tuple[re.Pattern[str], _Words], ...] = tuple(
    (re.compile(pattern, re.DOTALL), words)
    for pattern, words in (
        (r'^unknown name: "(\w+)"', _unknown),
        (
            r"^lexer error",
            _says(
                "something is no part of the notation, or not closed", 'Texts stand between `"`, patterns between `/`.'
            ),
        ),
        (r"^no start rule found", _says("the grammar has no rule `start`", "Name the rule of the whole text `start`.")),
        (r"^Empty grammar", _says("the grammar is empty", 'Write at least `start: "text"`.')),
        (
            r'^duplicate (?:rule|token): "(\w+)"',
            _says("`{0}` is defined twice", "Put both into one line: `{0}: … | …`."),
        ),
        (
            r'^circular reference in token "(\w+)"',
            _says(
                "the token `{0}` contains itself",
                "Tokens, in capitals, are patterns. A rule, in small letters, may contain itself.",
            ),
        ),
        (r"^Expected token ['\"](.*?)['\"], found ['\"](.*?)['\"]" + _PLACE, _missing),
        (r"^Expected value" + _PLACE, _says("something is missing here", NOTATION)),
        (r"^Unexpected expression '(.*?)'" + _PLACE, _says("`{0}` cannot stand here", NOTATION)),
        (
            r"^range end must be >= start, got \((\d+), (\d+)\)",
            _says("a repetition from {0} to {1} ends before it starts", "Write the smaller number first: `~{1}..{0}`."),
        ),
        (
            r"^invalid range order: '(.*?)'..'(.*?)'",
            _says(
                "the range from `{0}` to `{1}` ends before it starts",
                'Write the earlier character first: `"{1}".."{0}"`.',
            ),
        ),
        (
            r"^[&~] is only supported for tokens",
            _says("`&` and `~` combine tokens, not rules", "Give the rule a name in capitals, which makes it a token."),
        ),
        (r"^Unknown common regex: common\.(\w+); following are available: (.*)", _common),
        (
            r"^(?:params|priority|templates?) not supported yet",
            _says("rules have no parameters and no priorities here", "Write the rule out for each use."),
        ),
        (
            r"^failed to parse %regex",
            _says(
                "what follows `%regex` is not understood",
                'It takes `{{"substring_words": "…"}}` or `{{"substring_chunks": ["…"]}}`.',
            ),
        ),
    )
)


def advice(reason: str, source: str) -> tuple[str, str]:
    """A message and its help for llguidance's reason against the grammar `source`."""
    for pattern, words in _REASONS:
        found = pattern.search(reason)
        if found is not None:
            return words(found, source)
    return f"the grammar cannot be used: {' '.join(reason.split())[:200]}", NOTATION

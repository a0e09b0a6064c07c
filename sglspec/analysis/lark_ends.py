"""Whether a grammar can come to an end: a rule that contains itself in every alternative describes no text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<leaf>"(?:\\.|[^"\\\n])*"i?|/(?:\\.|[^/\\\n])+/[a-zA-Z]*)
  | (?P<remark>//[^\n]*|\#[^\n]*)
  | (?P<json>%json|%regex)
  | (?P<directive>%[a-z]+[^\n]*)
  | (?P<alias>->\s*\w+)
  | (?P<header>(?:^|(?<=\n))[ \t]*[?!]?(?P<rule>[A-Za-z_]\w*)(?:\[[^\]\n]*\])?[ \t]*:)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<times>~[ \t]*(?P<least>\d+)(?:[ \t]*\.\.[ \t]*\d+)?|\{[ \t]*(?P<low>\d*)[ \t]*(?:,[ \t]*\d*[ \t]*)?\})
  | (?P<range>\.\.)
  | (?P<sign>[|()\[\]?*+&~])
  | (?P<blank>\s+)
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Name:
    """A use of a rule."""

    name: str


@dataclass(slots=True)
class _Group:
    """Alternatives, each a series of parts; None is a part that always has a text."""

    alternatives: list[list[_Name | _Group | None]]

    @staticmethod
    def new() -> _Group:
        return _Group([[]])

    @property
    def series(self) -> list[_Name | _Group | None]:
        """The one that is being read."""
        return self.alternatives[-1]


class _Unknown(Exception):
    """Notation that is not known here."""


def endless_rule(grammar: str) -> tuple[str, int] | None:
    """A rule without any text that `start` needs, and the offset of its name; None when `start` has a text, or when the
    notation is not known here."""
    try:
        rules, places = _rules(grammar)
    except _Unknown:
        return None
    ending = _ending(rules)
    if "start" not in rules or "start" in ending:
        return None
    needs = {name: [n for n in _used(body) if n in rules and n not in ending] for name, body in rules.items()}
    name = next((one for one in ["start", *_reached("start", needs)] if one in _reached(one, needs)), "start")
    return name, places[name]


def _reached(name: str, needs: Mapping[str, list[str]]) -> list[str]:
    """The rules that a rule needs, and those that these need, nearest first."""
    found = list(needs[name])
    for one in found:  # grows while it is walked
        found += [other for other in needs[one] if other not in found]
    return found


def _ending(rules: Mapping[str, _Group]) -> set[str]:
    """The rules that have a text."""
    ending: set[str] = set()
    while True:
        more = {name for name, body in rules.items() if name not in ending and _ends(body, rules, ending)}
        if not more:
            return ending
        ending |= more


def _ends(part: _Name | _Group | None, rules: Mapping[str, _Group], ending: set[str]) -> bool:
    match part:
        case None:
            return True
        case _Name(name=name):
            return name not in rules or name in ending
        case _Group(alternatives=alternatives):
            return any(all(_ends(one, rules, ending) for one in series) for series in alternatives)


def _used(body: _Group) -> Iterator[str]:
    for part in (part for series in body.alternatives for part in series):
        if isinstance(part, _Name):
            yield part.name
        elif part is not None:
            yield from _used(part)


def _rules(grammar: str) -> tuple[dict[str, _Group], dict[str, int]]:
    """The rules by name, and where their names stand."""
    rules: dict[str, _Group] = {}
    places: dict[str, int] = {}
    levels: list[_Group] = []
    at = 0
    while at < len(grammar):
        found = _TOKEN.match(grammar, at)
        if found is None:
            raise _Unknown
        at = found.end()
        if found["header"]:
            name, levels = found["rule"], [_Group.new()]
            rules[name], places[name] = levels[0], found.start("rule")
            continue
        if found["json"]:
            at = _after_json(grammar, at)
        if found["remark"] or found["directive"] or found["alias"] or found["blank"] or found["range"]:
            continue
        if not levels:
            raise _Unknown
        series = levels[-1].series
        if found["leaf"] or found["json"]:
            series.append(None)
        elif found["name"]:
            series.append(_Name(found["name"]))
        elif found["times"]:
            if int(found["least"] or found["low"] or 0) == 0:
                _optional(series)
        else:
            _sign(found["sign"], levels)
    return rules, places


def _sign(sign: str, levels: list[_Group]) -> None:
    match sign:
        case "|":
            levels[-1].alternatives.append([])
        case "(" | "[":
            levels.append(_Group.new())
        case ")" | "]":
            if len(levels) < 2:
                raise _Unknown
            group = levels.pop()
            levels[-1].series.append(group if sign == ")" else None)
        case "?" | "*":
            _optional(levels[-1].series)
        case "+":
            pass
        case _:
            raise _Unknown  # `&` and `~` speak of tokens, which are patterns


def _optional(series: list[_Name | _Group | None]) -> None:
    if not series:
        raise _Unknown
    series[-1] = None


def _after_json(grammar: str, at: int) -> int:
    start = at + len(grammar[at:]) - len(grammar[at:].lstrip())
    try:
        return json.JSONDecoder().raw_decode(grammar, start)[1]
    except (ValueError, RecursionError):
        raise _Unknown from None

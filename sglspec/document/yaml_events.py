"""The event stream of libyaml (through PyYAML), as small typed records with offsets into the text.

libyaml reads YAML 1.1; the differences that matter are levelled here: NEL, LS and PS are ordinary characters
in YAML 1.2, and a byte order mark may stand inside a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import yaml

from sglspec.document.nodes import Style

Kind = Literal["scalar", "alias", "sequence", "mapping", "end", "document"]

_STYLES: dict[str | None, Style] = {
    None: "plain",
    "": "plain",
    "'": "single",
    '"': "double",
    "|": "literal",
    ">": "folded",
}
_KINDS: dict[type[Any], Kind] = {
    yaml.ScalarEvent: "scalar",
    yaml.AliasEvent: "alias",
    yaml.SequenceStartEvent: "sequence",
    yaml.MappingStartEvent: "mapping",
    yaml.SequenceEndEvent: "end",
    yaml.MappingEndEvent: "end",
    yaml.DocumentStartEvent: "document",
}
_FOREIGN_BREAKS = "\x85\u2028\u2029\ufeff"
_PRIVATE = range(0xF0000, 0xFFFFE)


@dataclass(slots=True)
class Event:
    """One step of the parser. `start` and `end` are offsets; `start` includes an anchor and a tag."""

    kind: Kind
    start: int
    end: int
    value: str = ""
    style: Style = "plain"
    anchor: str | None = None
    tag: str | None = None
    flow: bool = False


@dataclass(slots=True)
class SyntaxFault(Exception):
    """What the parser stopped at: its own words, and offsets of the problem and of what it was reading."""

    problem: str
    context: str
    index: int
    context_index: int | None


def read_events(text: str) -> Iterator[Event]:
    """The events of all documents in `text`, lazily: who stops asking stops the parser.

    `text` must hold YAML's characters only. Raises SyntaxFault at the first thing that is not YAML.
    """
    stand_ins = _stand_ins(text)
    back = {ord(stand_in): original for original, stand_in in stand_ins.items()}
    for original, stand_in in stand_ins.items():
        text = text.replace(original, stand_in)
    for event in _raw_events(text):
        if back and event.value:
            event.value = event.value.translate(back)
        yield event


def _raw_events(text: str) -> Iterator[Event]:
    library = cast("Any", yaml)  # its type stubs leave the parser open
    stream: Iterator[Any] = library.parse(text, Loader=getattr(library, "CSafeLoader", library.SafeLoader))
    try:
        for raw in stream:
            kind = _KINDS.get(cast("type[Any]", type(raw)))
            if kind is None:
                continue
            event = Event(kind, raw.start_mark.index, raw.end_mark.index)
            if kind == "scalar":
                event.value, event.style = raw.value, _STYLES[raw.style]
            elif kind in ("sequence", "mapping"):
                event.flow = bool(raw.flow_style)
            if kind not in ("end", "document"):
                event.anchor, event.tag = raw.anchor, getattr(raw, "tag", None)
            yield event
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        context_mark: Any = error.context_mark
        raise SyntaxFault(
            str(error.problem or ""),
            str(error.context or ""),
            mark.index if mark is not None else 0,
            context_mark.index if context_mark is not None else None,
        ) from None
    except yaml.YAMLError as error:
        raise SyntaxFault(str(error), "", 0, None) from None
    except RecursionError:
        raise SyntaxFault("nesting", "", 0, None) from None


def _stand_ins(text: str) -> dict[str, str]:
    """Private characters to send in place of those that libyaml would take for line breaks.

    A stand-in must neither occur in the text nor be spelled by an escape in it.
    """
    found = [character for character in _FOREIGN_BREAKS if character in text]
    if not found:
        return {}
    lowered = text.lower()
    free = (code for code in _PRIVATE if chr(code) not in text and f"{code:x}" not in lowered)
    return {character: chr(next(free)) for character in found}

"""`reasoning` of a gen: the name of a parser, or a mapping with tags and a budget (language.md § 5)."""

from __future__ import annotations

from collections.abc import Sequence

from sglspec.backends.base import Reasoning
from sglspec.diagnostics.suggest import nearest
from sglspec.document.fields import TEMPLATE_MARK
from sglspec.document.nodes import Mapping, Node, Scalar
from sglspec.document.reasoning import KEYS, PARSERS, Tags


class ReasoningError(Exception):
    """What is wrong with it: where, the message, and help."""

    def __init__(self, node: Node, message: str, help: str) -> None:
        super().__init__(message)
        self.node, self.message, self.help = node, message, help


def read_reasoning(node: Node) -> Reasoning | None:
    """What a gen asks for; None for null. Raises ReasoningError."""
    if isinstance(node, Scalar):
        return None if node.value is None else _reasoning(_parser(node), None)
    if not isinstance(node, Mapping):
        raise ReasoningError(node, "`reasoning` is the name of a parser, or a mapping", _known())
    for entry in node.entries:
        if entry.key.text not in KEYS:
            raise ReasoningError(entry.key, f"`reasoning` has no `{entry.key.text}`", _advice(entry.key.text, KEYS))
    parser, open, close = (node.get(key) for key in ("parser", "open", "close"))
    if parser is not None and (open is not None or close is not None):
        raise ReasoningError(node, "`parser` says what the tags are", "Leave out `open` and `close`, or `parser`.")
    tags = _parser(parser) if parser is not None else _tags(node, open, close)
    return _reasoning(tags, _budget(node.get("budget")))


def _reasoning(tags: Tags, budget: int | None) -> Reasoning:
    return Reasoning(tags.open, tags.close, tags.lead, tags.tail, tags.gap, budget)


def _parser(node: Node) -> Tags:
    name = node.value if isinstance(node, Scalar) else None
    if not isinstance(name, str) or name not in PARSERS:
        shown = node.text if isinstance(node, Scalar) else "this"
        raise ReasoningError(node, f"`{shown}` is no reasoning parser", _advice(shown, list(PARSERS)))
    return PARSERS[name]


def _tags(whole: Mapping, open: Node | None, close: Node | None) -> Tags:
    if open is None or close is None:
        raise ReasoningError(whole, "`reasoning` needs `open` and `close`, or a `parser`", _known())
    texts: list[str] = []
    for node in (open, close):
        text = node.value if isinstance(node, Scalar) else None
        if not isinstance(text, str) or not text.strip():
            raise ReasoningError(node, "a tag is a text", "For example `open: <think>` and `close: </think>`.")
        if TEMPLATE_MARK.search(text):
            raise ReasoningError(node, "a tag is a fixed text, not a template", "Write the tag itself.")
        texts.append(text.strip())
    if texts[0] == texts[1]:
        raise ReasoningError(close, "the tags are the same", "The closing tag must differ from the opening one.")
    return Tags(*texts)


def _budget(node: Node | None) -> int | None:
    value = node.value if isinstance(node, Scalar) else None
    if node is None or (isinstance(node, Scalar) and value is None):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        help = "It is the most tokens that the model may think."
        raise ReasoningError(node, "`budget` is a whole number of at least 0", help)
    return value


def _advice(word: str, known: Sequence[str]) -> str:
    close = nearest(word, known)
    return f"Did you mean `{close}`?" if close else f"Known: {', '.join(f'`{one}`' for one in known)}."


def _known() -> str:
    return f"Write a parser ({', '.join(PARSERS)}), or `{{open: <think>, close: </think>}}`."

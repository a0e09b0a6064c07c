"""Chat templates that write a message differently depending on the others.

Some drop the thinking of earlier replies, put the system message into a user message, or open a reply to generate in
another way than they write a finished one. What surrounds a message is then no property of its role, so a conversation
is rendered anew whenever a message begins or ends. Contents are rendered as marks, and the contents themselves take
the places of the marks: they stay data, and sampled tokens stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sglspec_engine.text.jinja import Refused, Renderer
from sglspec_engine.types import EngineError, Role

_MARK = re.compile(r"Qx(\d+)content\1xQ")
# Around the marks, to see what is stripped. The counts of line breaks differ so that no two outcomes look the same.
_LEFT, _RIGHT = "\n\n\x0c", "\x0b\n"
_KEPT_LAYOUTS = 128
_PROBES = ("<tool_call>{}</tool_call>", "{{ x }} {% y %} & < > \" '", "<b>A</b>  c", "<think>a</think>b", "a</think>b")
_CHECKED: tuple[tuple[tuple[Role, ...], bool], ...] = (
    (("user",), False),
    (("user",), True),
    (("user", "assistant"), False),
    (("user", "assistant", "user"), False),
    (("user", "assistant", "user"), True),
    (("user", "assistant", "user", "assistant"), False),
    (("user", "assistant", "user", "assistant", "user"), True),
)


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the content of message `index` stands. left, right: what is stripped off its ends: "" nothing, "\\n" line
    breaks, " " white space."""

    index: int
    left: str = ""
    right: str = ""

    def strip(self, text: str, *, left: bool, right: bool) -> str:
        """A text of the content with its ends stripped; `left`, `right`: whether it stands at that end."""
        if left and self.left:
            text = text.lstrip(None if self.left == " " else self.left)
        if right and self.right:
            text = text.rstrip(None if self.right == " " else self.right)
        return text


Layout = list[str | Slot]


class Layouts:
    """Renders conversations of given roles."""

    def __init__(self, renderer: Renderer) -> None:
        """Raises EngineError("template") with the reason for a template that cannot be used so either."""
        self._renderer = renderer
        # While a message is written piece by piece, and in branches, the same layout is asked for again and again.
        self._known = lru_cache(_KEPT_LAYOUTS)(self._render)
        for roles, generate in _CHECKED:
            self.of(roles, generate=generate)
        self._check_contents(("user",), 0)
        self._check_contents(("user", "assistant"), 1)
        self._system = self._takes_system()
        if self._system:
            self._check_contents(("system", "user"), 0)
        self.roles: frozenset[Role] = frozenset(("user", "assistant", *(("system",) if self._system else ())))

    def of(self, roles: Sequence[Role], *, generate: bool = False) -> Layout:
        """The conversation, with `generate` up to where the reply begins. Raises EngineError("template") if the
        template refuses it or leaves out a content (but for one that only waits for the next user message)."""
        found = self._try(roles, generate)
        if isinstance(found, Refused):
            raise EngineError("template", f"this model's chat template refuses {_named(roles)}: {found}")
        kept = {part.index for part in found if isinstance(part, Slot)}
        lost = next((i for i in range(len(roles)) if i not in kept), None)
        if lost is not None and (generate or roles[-1] != "assistant" or roles[lost] != "system"):
            raise EngineError("template", f"this model's chat template leaves out a {roles[lost]} message")
        return found

    def closed(self, roles: Sequence[Role]) -> Layout:
        """A conversation that goes on. A template may write a system message only together with a user message: then
        up to where that message's content will stand."""
        if roles and roles[-1] == "system" and self._system:
            alone = self._try(roles, False)
            if isinstance(alone, Refused) or not _holds(alone, len(roles) - 1):
                found = self.of([*roles, "user"])
                return found[: _place(found, len(roles))]
        return self.of(roles) if roles else []

    def opened(self, roles: Sequence[Role]) -> Layout:
        """A conversation whose last message is not finished, up to that message's content and with it."""
        found = self.of([*roles, "user"]) if roles[-1] == "system" and self._system else self.of(roles)
        if not all(_holds(found, index) for index in range(len(roles))):
            return self.reply(roles)
        return found[: _place(found, len(roles) - 1) + 1]

    def reply(self, roles: Sequence[Role]) -> Layout:
        """A conversation whose last message is a reply that is to be generated."""
        return [*self.of(roles[:-1], generate=True), Slot(len(roles) - 1)]

    def _try(self, roles: Sequence[Role], generate: bool) -> Layout | Refused:
        return self._known(tuple(roles), generate)

    def _render(self, roles: tuple[Role, ...], generate: bool) -> Layout | Refused:
        try:
            plain = _split(self._renderer.render(_marked(roles, "", ""), generate=generate))
            padded = _split(self._renderer.render(_marked(roles, _LEFT, _RIGHT), generate=generate))
        except Refused as refused:
            return refused
        marks = [part for part in plain if isinstance(part, int)]
        if len(set(marks)) < len(marks) or [part for part in padded if isinstance(part, int)] != marks:
            raise EngineError("template", "the chat template writes a content twice, or depends on what it is")
        return _slots(plain, padded)

    def _takes_system(self) -> bool:
        found = self._try(("system", "user"), True)
        return not isinstance(found, Refused) and _holds(found, 0)

    def _check_contents(self, roles: Sequence[Role], index: int) -> None:
        """The content of a message is left as it is, but that a reply's thinking may be dropped."""
        messages = _marked(roles, "", "")
        role = roles[index]
        for probe in _PROBES[: 3 if role == "assistant" else None]:
            try:
                marked = self._renderer.render(messages)
                shown = self._renderer.render([*messages[:index], (role, probe), *messages[index + 1 :]])
            except Refused as refused:
                raise EngineError("template", f"the chat template refuses an ordinary content: {refused}") from None
            if shown != marked.replace(_mark(index), probe):
                raise EngineError(
                    "template", f"the chat template rewrites the content of {role} messages (tried {probe!r})"
                )


def _named(roles: Sequence[Role]) -> str:
    shown = [*roles[:2], "…", *roles[-2:]] if len(roles) > 5 else list(roles)
    return f"a conversation of {', '.join(shown)}"


def _mark(n: int) -> str:
    return f"Qx{n}content{n}xQ"


def _marked(roles: Sequence[Role], left: str, right: str) -> list[tuple[str, str]]:
    return [(role, left + _mark(n) + right) for n, role in enumerate(roles)]


def _split(text: str) -> list[str | int]:
    """A rendered text, cut at the marks: texts (possibly empty) with the marks' numbers between them."""
    pieces = _MARK.split(text)
    return [int(piece) if i % 2 else piece for i, piece in enumerate(pieces)]


def _slots(plain: Sequence[str | int], padded: Sequence[str | int]) -> Layout:
    """The layout, from the texts between the marks without and with padding."""
    gaps = [(str(plain[i]), str(padded[i])) for i in range(0, len(plain), 2)]
    ends = [_ends(*gap, first=i == 0, last=i == len(gaps) - 1) for i, gap in enumerate(gaps)]
    found: Layout = []
    for i, (text, _) in enumerate(gaps):
        found += [text] if text else []
        if i < len(gaps) - 1:
            found.append(Slot(int(plain[2 * i + 1]), left=ends[i][1], right=ends[i + 1][0]))
    return found


def _ends(plain: str, padded: str, *, first: bool, last: bool) -> tuple[str, str]:
    """What is stripped off the right end of the content before this text, and off the left end of the one after."""
    rights = {"": ""} if first else {"": _RIGHT, "\n": _RIGHT.rstrip("\n"), " ": ""}
    lefts = {"": ""} if last else {"": _LEFT, "\n": _LEFT.lstrip("\n"), " ": ""}
    for right, before in rights.items():
        for left, after in lefts.items():
            if padded == before + plain + after:
                return right, left
    raise EngineError("template", "the chat template changes the white space around a content")


def _holds(layout: Layout, index: int) -> bool:
    return any(isinstance(part, Slot) and part.index == index for part in layout)


def _place(layout: Layout, index: int) -> int:
    return next(i for i, part in enumerate(layout) if isinstance(part, Slot) and part.index == index)

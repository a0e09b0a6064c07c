"""Chat templates as segments.

A program opens and closes messages one at a time and generates inside them, so the engine needs what the model's
template puts before and after the content of each role, not whole conversations. That is read off the template by
rendering conversations of placeholder contents and cutting at the placeholders; then every rule the engine relies on
is checked on more conversations: rendering one message more only appends, a message looks the same wherever it
stands, and content is left as it is. With a template that breaks one of the first two rules conversations are rendered
anew with every message (`text.layout`); one that changes content is refused with a reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from sglspec_engine.text.files import read_json
from sglspec_engine.text.jinja import MAX_SOURCE, Renderer
from sglspec_engine.text.layout import Layouts, Slot
from sglspec_engine.text.segments import Segments, derive
from sglspec_engine.text.tokens import Control, Part, Vocabulary
from sglspec_engine.types import EngineError, Role

State = Literal["closed", "open", "reply"]
"""How a conversation stands: its last message is finished; it is not; it is a reply that begins with generated text."""


class ChatTemplate:
    """What surrounds the content of each role.

    Attributes:
        turn_end_ids: control tokens that end an assistant message. One that a generation sampled does not enter the
            context; `close("assistant")` writes it.
        default_system: what the template puts before a first message that is not a system message (its default
            system message), None if nothing. `open(role, first=True)` includes it.
        sha256: of the template's source.
        roles: the roles the template offers; opening another raises.
        alternates: whether the template itself refuses two messages of one role in a row (they still work here, but in
            conversations that are rendered anew).
    """

    def __init__(self, source: str, vocabulary: Vocabulary) -> None:
        renderer = Renderer(source, vocabulary.special_text)
        segments, layouts = _read(renderer)
        split = vocabulary.split_scaffold
        self.sha256: str = hashlib.sha256(source.encode()).hexdigest()
        self.roles: frozenset[Role] = frozenset(segments.suffix) | (
            layouts.roles if layouts is not None else frozenset()
        )
        self.alternates: bool = segments.alternates
        self._segments: Segments = segments
        self._layouts: Layouts | None = layouts
        self._scaffold: Callable[[str], list[Part]] = split
        self._lead: dict[Role, list[Part]] = {role: split(text) for role, text in segments.lead.items()}
        self._prefix: dict[Role, list[Part]] = {role: split(text) for role, text in segments.prefix.items()}
        self._suffix: dict[Role, list[Part]] = {role: split(text) for role, text in segments.suffix.items()}
        self.default_system: list[Part] | None = split(segments.head) if segments.head else None
        self.turn_end_ids: frozenset[int] = frozenset(self._turn_end())

    @classmethod
    def load(cls, path: Path, vocabulary: Vocabulary) -> ChatTemplate:
        """The template of a model folder.

        Raises EngineError("no_template") if there is none, EngineError("template") if it cannot be used.
        """
        source = read_template(path)
        if source is None:
            raise EngineError("no_template", "this model has no chat template: use a prompt without roles")
        return cls(source, vocabulary)

    def anew(self, role: Role) -> bool:
        """Whether a conversation that begins with a message of this role is rendered anew with every message; `layout`
        then says what surrounds its contents, else `open` and `close` do."""
        return self._layouts is not None and role not in self._suffix

    def layout(self, roles: Sequence[Role], state: State) -> list[Part | Slot]:
        """A conversation of messages of these roles, their contents as slots. Raises EngineError("template") if the
        template refuses it."""
        layouts = self._layouts
        assert layouts is not None
        parts: list[Part | Slot] = []
        for part in {"closed": layouts.closed, "open": layouts.opened, "reply": layouts.reply}[state](roles):
            parts += [part] if isinstance(part, Slot) else self._scaffold(part)
        return parts

    def open(self, role: Role, *, first: bool) -> list[Part]:
        """What stands before a message's content. `first`: nothing is in the context yet; the result then includes
        BOS if the template writes it, and the default system message unless `role` is "system".

        Raises EngineError("template") if the template has no such message there.
        """
        table = self._lead if first else self._prefix
        if role not in self._suffix and role in self.roles:
            raise EngineError("template", "with this model's chat template messages cannot follow plain text")
        if role not in table:
            raise EngineError("template", self._segments.missing(role))
        return list(table[role])

    def close(self, role: Role) -> list[Part]:
        """What stands after a message's content, the turn-end token included."""
        if role not in self._suffix:
            raise EngineError("template", self._segments.missing(role))
        return list(self._suffix[role])

    def trims(self, role: Role) -> tuple[bool, bool]:
        """Whether the template strips white space off the left and the right end of this role's content.

        `parts` does the same with whole messages. A caller that builds a message piece by piece can strip what the
        author wrote at its ends; generated text stays as it was sampled (its tokens are already in the context).
        """
        return self._segments.trims.get(role, (False, False))

    def parts(self, messages: Sequence[tuple[Role, str]], *, generate: bool = False) -> list[Part]:
        """A whole conversation, ready for `Vocabulary.encode`; with `generate` the reply's opening at the end.

        The ids equal those of rendering and tokenizing by the template itself, except that content never becomes a
        control token.
        """
        if messages and self.anew(messages[0][0]):
            return self._parts_anew(messages, generate)
        out: list[Part] = []
        for n, (role, content) in enumerate(messages):
            left, right = self.trims(role)
            content = content.lstrip() if left else content
            out += [*self.open(role, first=n == 0), content.rstrip() if right else content, *self.close(role)]
        return [*out, *self.open("assistant", first=not messages)] if generate else out

    def _parts_anew(self, messages: Sequence[tuple[Role, str]], generate: bool) -> list[Part]:
        roles: list[Role] = [role for role, _ in messages]
        layout = self.layout([*roles, "assistant"], "reply")[:-1] if generate else self.layout(roles, "closed")
        return [
            part.strip(messages[part.index][1], left=True, right=True) if isinstance(part, Slot) else part
            for part in layout
        ]

    def _turn_end(self) -> list[int]:
        """The id of the first control token after a reply, if there is one."""
        after = self._suffix.get("assistant")
        if after is None:
            found = self.layout(("user", "assistant"), "closed")
            slot = next(i for i, part in enumerate(found) if isinstance(part, Slot) and part.index == 1)
            after = found[slot + 1 :]
        return [part.id for part in after if isinstance(part, Control)][:1]


def _read(renderer: Renderer) -> tuple[Segments, Layouts | None]:
    """A template's segments, and its layouts where segments do not do. Raises EngineError("template")."""
    try:
        segments = derive(renderer)
    except EngineError as error:
        try:
            return Segments(), Layouts(renderer)
        except EngineError as last:
            raise EngineError("template", str(last)) from error
    if "system" in segments.suffix:
        return segments, None
    try:
        layouts = Layouts(renderer)
    except EngineError:
        return segments, None
    return segments, layouts if "system" in layouts.roles else None


def read_template(path: Path) -> str | None:
    """A folder's chat template: chat_template.jinja, else the tokenizer's settings, else None.

    Several templates may be listed by name; the one called "default" counts.
    """
    file = path / "chat_template.jinja"
    if file.is_file():
        if file.stat().st_size > 4 * MAX_SOURCE:
            raise EngineError("template", f"the chat template is longer than {MAX_SOURCE} characters")
        return file.read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        found: object = read_json(path / name, optional=True).get("chat_template")
        if isinstance(found, list):
            rows = cast("list[Mapping[str, object]]", found)
            found = next((row.get("template") for row in rows if row.get("name") == "default"), None)
        if isinstance(found, str):
            return found
    return None

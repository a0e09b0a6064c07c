"""Chat templates as segments.

A program opens and closes messages one at a time and generates inside them, so the engine needs what the model's
template puts before and after the content of each role, not whole conversations. That is read off the template by
rendering conversations of placeholder contents and cutting at the placeholders; then every rule the engine relies on
is checked on more conversations: rendering one message more only appends, a message looks the same wherever it
stands, and content is left as it is. A template that breaks a rule is refused with a reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from sglspec_engine.text.files import read_json
from sglspec_engine.text.jinja import MAX_SOURCE, Renderer
from sglspec_engine.text.segments import Segments, derive
from sglspec_engine.text.tokens import Control, Part, Vocabulary
from sglspec_engine.types import EngineError, Role


class ChatTemplate:
    """What surrounds the content of each role.

    Attributes:
        turn_end_ids: control tokens that end an assistant message. One that a generation sampled does not enter the
            context; `close("assistant")` writes it.
        default_system: what the template puts before a first message that is not a system message (its default
            system message), None if nothing. `open(role, first=True)` includes it.
        sha256: of the template's source.
        roles: the roles the template offers; opening another raises.
        alternates: whether the template itself refuses two messages of one role in a row (they still work here).
    """

    def __init__(self, source: str, vocabulary: Vocabulary) -> None:
        segments = derive(Renderer(source, vocabulary.special_text))
        split = vocabulary.split_scaffold
        self.sha256: str = hashlib.sha256(source.encode()).hexdigest()
        self.roles: frozenset[Role] = frozenset(segments.suffix)
        self.alternates: bool = segments.alternates
        self._segments: Segments = segments
        self._lead: dict[Role, list[Part]] = {role: split(text) for role, text in segments.lead.items()}
        self._prefix: dict[Role, list[Part]] = {role: split(text) for role, text in segments.prefix.items()}
        self._suffix: dict[Role, list[Part]] = {role: split(text) for role, text in segments.suffix.items()}
        self.default_system: list[Part] | None = split(segments.head) if segments.head else None
        first_control = next((p for p in self._suffix["assistant"] if isinstance(p, Control)), None)
        self.turn_end_ids: frozenset[int] = frozenset([first_control.id] if first_control else [])

    @classmethod
    def load(cls, path: Path, vocabulary: Vocabulary) -> ChatTemplate:
        """The template of a model folder.

        Raises EngineError("no_template") if there is none, EngineError("template") if it cannot be used.
        """
        source = read_template(path)
        if source is None:
            raise EngineError("no_template", "this model has no chat template: use a prompt without roles")
        return cls(source, vocabulary)

    def open(self, role: Role, *, first: bool) -> list[Part]:
        """What stands before a message's content. `first`: nothing is in the context yet; the result then includes
        BOS if the template writes it, and the default system message unless `role` is "system".

        Raises EngineError("template") if the template has no such message there.
        """
        table = self._lead if first else self._prefix
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
        out: list[Part] = []
        for n, (role, content) in enumerate(messages):
            left, right = self.trims(role)
            content = content.lstrip() if left else content
            out += [*self.open(role, first=n == 0), content.rstrip() if right else content, *self.close(role)]
        return [*out, *self.open("assistant", first=not messages)] if generate else out


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

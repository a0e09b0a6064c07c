"""Messages whose surroundings are rendered anew with each of them (`text.layout`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sglspec_engine.context import Entry, Written, answers
from sglspec_engine.text.chat import ChatTemplate, State
from sglspec_engine.text.layout import Slot
from sglspec_engine.text.tokens import Vocabulary
from sglspec_engine.types import Role


@dataclass(frozen=True, slots=True)
class Message:
    """A message's role and content, as it was written and sampled."""

    role: Role
    content: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, as an immutable value. open: the last one is not finished."""

    messages: tuple[Message, ...] = ()
    open: bool = False

    def begin(self, role: Role) -> Conversation:
        """With a message opened."""
        return Conversation((*self.messages, Message(role)), True)

    def write(self, entries: Sequence[Entry]) -> Conversation:
        """With entries at the end of the open message."""
        last = self.messages[-1]
        return replace(self, messages=(*self.messages[:-1], replace(last, content=(*last.content, *entries))))

    def end(self, vocabulary: Vocabulary) -> Conversation:
        """With the open message finished. Its thinking is gone."""
        last = self.messages[-1]
        kept = tuple(answers(last.content, vocabulary))
        return Conversation((*self.messages[:-1], replace(last, content=kept)), False)

    def join(self, branch: Conversation, base: Conversation) -> Conversation:
        """With what `branch` wrote since it was `base`."""
        count = len(base.messages)
        found = self
        if base.open:
            content = branch.messages[count - 1].content
            found = found.write(content[len(base.messages[-1].content) :])
        return Conversation((*found.messages, *branch.messages[count:]), branch.open)

    def entries(self, chat: ChatTemplate, *, text: bool = False) -> list[Entry]:
        """The history of a context that holds these messages. `text`: text follows, so a reply that is empty yet is not
        one to generate. Raises EngineError("template") if the template refuses them."""
        roles: list[Role] = [message.role for message in self.messages]
        found: list[Entry] = []
        for part in chat.layout(roles, self._state(text)):
            if isinstance(part, Slot):
                found += _stripped(self.messages[part.index].content, part, open=self._is_open(part.index))
            else:
                found.append(Written(part, "scaffold"))
        return found

    def _is_open(self, index: int) -> bool:
        return self.open and index == len(self.messages) - 1

    def _state(self, text: bool) -> State:
        if not self.open:
            return "closed"
        last = self.messages[-1]
        first = last.content[0] if last.content else None
        written = isinstance(first, Written) and first.origin != "generated"
        return "open" if last.role != "assistant" or written or (text and first is None) else "reply"


def _stripped(content: Sequence[Entry], slot: Slot, *, open: bool) -> list[Entry]:
    """A content with what was written at its ends stripped, as the template does; what was sampled stays as it is."""
    found = _stripped_left(content, lambda text: slot.strip(text, left=True, right=False))
    if not open:
        found = _stripped_left(found[::-1], lambda text: slot.strip(text, left=False, right=True))[::-1]
    return found


def _stripped_left(content: Sequence[Entry], strip: Callable[[str], str]) -> list[Entry]:
    for index, entry in enumerate(content):
        if not isinstance(entry, Written) or entry.origin == "generated" or not isinstance(entry.part, str):
            return list(content[index:])
        text = strip(entry.part)
        if text:
            return [replace(entry, part=text), *content[index + 1 :]]
    return []

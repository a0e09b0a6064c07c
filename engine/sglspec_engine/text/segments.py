"""Cutting a chat template into what it puts around each role's content, and checking that this is the whole truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sglspec_engine.text.jinja import Refused, Renderer
from sglspec_engine.types import EngineError, Role

ROLES: tuple[Role, ...] = ("system", "user", "assistant")

_REQUIRED: tuple[str, ...] = ("u", "ua", "uau", "uaua", "uauau")
_OPTIONAL: tuple[str, ...] = (
    "a",
    "au",
    "uu",
    "uua",
    "aa",
    "uaa",
    "s",
    "su",
    "sua",
    "suaua",
    "suu",
    "usu",
    "uasua",
    "ss",
)
_BY_LETTER: dict[str, Role] = {"s": "system", "u": "user", "a": "assistant"}

_Messages = Sequence[tuple[Role, str]]


def _new_dict() -> dict[Role, str]:
    return {}


def _new_trims() -> dict[Role, tuple[bool, bool]]:
    return {}


@dataclass(slots=True)
class Segments:
    """Text around content, by role: `lead` before it when the message is the first of all, `prefix` before it later,
    `suffix` after it. `head` is the default system message that stands before a first user message. `trims`: whether
    content is stripped on the left, on the right. `alternates`: the template refuses two messages of one role in a
    row. `refusals`: why a role is not offered."""

    lead: dict[Role, str] = field(default_factory=_new_dict)
    prefix: dict[Role, str] = field(default_factory=_new_dict)
    suffix: dict[Role, str] = field(default_factory=_new_dict)
    trims: dict[Role, tuple[bool, bool]] = field(default_factory=_new_trims)
    head: str = ""
    alternates: bool = False
    refusals: dict[Role, str] = field(default_factory=_new_dict)

    def missing(self, role: Role) -> str:
        """Why a message of this role cannot stand there."""
        if role in self.suffix:
            return f"this model's chat template takes a {role} message only " + (
                "after another message" if role not in self.lead else "at the beginning"
            )
        reason = self.refusals.get(role)
        return f"this model's chat template has no {role} messages" + (f" ({reason})" if reason else "")


def derive(renderer: Renderer) -> Segments:
    """Read the segments off a template. Raises EngineError("template") with the reason if it cannot be used."""
    segments = Segments()
    for role in ROLES:
        _read_role(renderer, role, segments)
    _check_generation_prompt(renderer, segments)
    for role in segments.suffix:
        segments.trims[role] = _trims(renderer, segments, role)
    _check_sequences(renderer, segments)
    segments.head = _head(segments, renderer.special_text.get("bos_token", ""))
    return segments


def _mark(n: int) -> str:
    """A content no template does anything special with."""
    return f"Qx{n}content{n}xQ"


def _conversation(letters: str) -> list[tuple[Role, str]]:
    return [(_BY_LETTER[letter], _mark(n)) for n, letter in enumerate(letters)]


def _render(renderer: Renderer, messages: _Messages) -> str:
    """Raises EngineError if the template refuses a conversation that every chat has."""
    try:
        return renderer.render(messages)
    except Refused as refused:
        raise EngineError("template", f"the chat template refuses an ordinary conversation: {refused}") from None


def _read_role(renderer: Renderer, role: Role, segments: Segments) -> None:
    """Fill in one role: alone for `lead` and `suffix`, after an ordinary conversation for `prefix`."""
    before = {"system": "u", "user": "ua", "assistant": "u"}[role]
    letter = role[0]
    alone: tuple[str, str] | None = None
    later: tuple[str, str] | None = None
    try:
        alone = _around(renderer.render(_conversation(letter)), "", 0)
    except Refused as refused:
        segments.refusals[role] = str(refused)
    context = _render(renderer, _conversation(before))
    try:
        later = _around(renderer.render(_conversation(before + letter)), context, len(before))
    except Refused as refused:
        segments.refusals.setdefault(role, str(refused))
    if role != "system" and later is None:
        raise EngineError(
            "template", f"the chat template rewrites earlier messages when a later {role} message is added"
        )
    if role == "system" and (alone is None or not _takes_user(renderer, alone)):
        # Refused, dropped, or moved into the next user message: what a template then makes of a later system
        # message is an accident.
        segments.refusals.setdefault(role, "it merges the system text into a user message, or drops it")
        return
    if alone is not None:
        segments.lead[role] = alone[0]
    elif role == "user":
        raise EngineError("template", f"the chat template refuses a single user message: {segments.refusals.get(role)}")
    if later is not None:
        segments.prefix[role] = later[0]
    found = later or alone
    if found is not None:
        segments.suffix[role] = found[1]


def _around(text: str, context: str, n: int) -> tuple[str, str] | None:
    """What surrounds content n in `text`, beyond `context`; None if it is not there once, after the context."""
    if not text.startswith(context) or text.count(_mark(n)) != 1:
        return None
    prefix, _, suffix = text[len(context) :].partition(_mark(n))
    return prefix, suffix


def _takes_user(renderer: Renderer, alone: tuple[str, str]) -> bool:
    """Whether a conversation that starts with a system message goes on by appending."""
    try:
        return renderer.render(_conversation("su")).startswith(alone[0] + _mark(0) + alone[1])
    except Refused:
        return False


def _check_generation_prompt(renderer: Renderer, segments: Segments) -> None:
    """The opening of a reply to generate has to be that of a finished one, since a message may hold both."""
    try:
        text = renderer.render(_conversation("u"), generate=True)
    except Refused as refused:
        raise EngineError("template", f"the chat template cannot open a reply: {refused}") from None
    prompt = text.removeprefix(_render(renderer, _conversation("u")))
    if prompt != segments.prefix["assistant"]:
        raise EngineError(
            "template",
            f"the chat template opens a reply with {prompt!r} but writes finished replies after "
            f"{segments.prefix['assistant']!r}",
        )


def _trims(renderer: Renderer, segments: Segments, role: Role) -> tuple[bool, bool]:
    """Whether content is stripped. Raises EngineError if content is changed in any other way."""
    before = "" if role == "system" and role in segments.lead else {"assistant": "u", "user": "ua", "system": "u"}[role]
    around = _expected(segments, _conversation(before))

    def shown(content: str) -> str | None:
        messages = _conversation(before)
        messages.append((role, content))
        text = _render(renderer, messages)
        prefix = (segments.prefix if before else segments.lead)[role]
        start, end = around + prefix, segments.suffix[role]
        if not (text.startswith(start) and text.endswith(end)) or len(text) < len(start) + len(end):
            return None
        return text[len(start) : len(text) - len(end)]

    blank = " \n\t x \n\n y \t\n "
    seen = shown(blank)
    options = {
        blank: (False, False),
        blank.strip(): (True, True),
        blank.lstrip(): (True, False),
        blank.rstrip(): (False, True),
    }
    if seen not in options:
        raise EngineError("template", f"the chat template changes the white space inside a {role} message")
    for probe in ("<think>a</think>b", "a</think>b", "<tool_call>{}</tool_call>", "{{ x }} {% y %} & < > \" '"):
        if shown(probe) != probe:
            raise EngineError(
                "template", f"the chat template rewrites the content of {role} messages (tried {probe!r})"
            )
    return options[seen]


def _expected(segments: Segments, messages: _Messages) -> str:
    """The conversation by the segments. Every message has to be one they have at its place."""
    tables = [segments.prefix if n else segments.lead for n in range(len(messages))]
    return "".join(
        table[role] + content + segments.suffix[role] for table, (role, content) in zip(tables, messages, strict=True)
    )


def _check_sequences(renderer: Renderer, segments: Segments) -> None:
    """Every conversation must be the segments of its messages, one after the other."""
    for letters in (*_REQUIRED, *_OPTIONAL):
        messages = _conversation(letters)
        try:
            text = renderer.render(messages)
        except Refused as refused:
            if letters in _REQUIRED:
                raise EngineError(
                    "template", f"the chat template refuses an ordinary conversation: {refused}"
                ) from None
            segments.alternates = segments.alternates or letters in ("uu", "uaa")
            continue
        tables = [segments.prefix if n else segments.lead for n in range(len(messages))]
        if any(role not in table for (role, _), table in zip(messages, tables, strict=True)):
            continue
        if text != _expected(segments, messages):
            roles = ", ".join(role for role, _ in messages)
            raise EngineError(
                "template", f"the chat template writes a message differently depending on the others (tried {roles})"
            )


def _head(segments: Segments, bos: str) -> str:
    """The default system message: what a first user message has before it beyond BOS and its own prefix."""
    return segments.lead["user"].removesuffix(segments.prefix["user"]).removeprefix(bos)

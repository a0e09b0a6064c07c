"""Replies from a script instead of a model: deterministic, no weights.

Replies are keyed by variable or step id. A text serves every use; a list gives successive replies, and running out is
an error. A reply that is no text is the value itself (language.md § 11).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from sglspec.backends.base import (
    Capabilities,
    Concat,
    Delta,
    EngineError,
    Finish,
    GenRequest,
    Method,
    Reasoning,
    RoleClose,
    RoleOpen,
    Scores,
    Segment,
    Session,
    TextSegment,
    TraceToken,
    Usage,
    ValueFinish,
)
from sglspec.diagnostics import Diagnostic, Report, SpecError
from sglspec.document.nodes import Mapping as MappingNode
from sglspec.document.nodes import to_python
from sglspec.document.read import parse, read_source
from sglspec.expressions.values import value_to_text


class Script:
    """The replies of one run, and how many of each were used. A program that another one calls has the same ones under
    the alias: `alias.name`."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        self._replies = replies
        self._used: dict[str, int] = {}
        self._candidates: dict[str, list[Any]] = {}
        self._prefix = ""

    def within(self, alias: str) -> Script:
        """The script of a program that is called."""
        inner = Script(self._replies)
        inner._used, inner._candidates = self._used, self._candidates
        inner._prefix = f"{self._prefix}{alias}."
        return inner

    def has(self, key: str) -> bool:
        return self._prefix + key in self._replies

    def take(self, key: str, candidate: tuple[int, int] | None = None) -> Any:
        """The next reply for a key; of a list of candidates the one that is asked for (index, how many).
        EngineError("no_reply") when there is none, EngineError("bad_reply") for candidates that are not that many."""
        if candidate is None:
            return self._next(key)
        index, count = candidate
        if index == 0:
            found = self._next(key)
            if not isinstance(found, list) or len(cast("list[Any]", found)) != count:
                raise EngineError(
                    "bad_reply",
                    f"the reply for `{self._prefix}{key}` must be a list of {count} for each time, as in [[…]]: "
                    f"`n` is {count}",
                )
            self._candidates[self._prefix + key] = cast("list[Any]", found)
        return self._candidates[self._prefix + key][index]

    def take_any(self, keys: Sequence[str]) -> Any:
        """The next reply for the first of these keys that the script has; as `take` for the first when it has none."""
        return self._next(next((key for key in keys if self.has(key)), keys[0]))

    def _next(self, name: str) -> Any:
        key = self._prefix + name
        if key not in self._replies:
            raise EngineError("no_reply", f"the script has no reply for `{key}`" if name else "a step has no name")
        reply = self._replies[key]
        if not isinstance(reply, list):
            return reply
        replies = cast("list[Any]", reply)
        used = self._used.get(key, 0)
        if used >= len(replies):
            raise EngineError("no_reply", f"the script has {len(replies)} replies for `{key}`, one more was needed")
        self._used[key] = used + 1
        return replies[used]


def script_of(replies: Mapping[str, Any], label: str, caller: Session | None) -> Script:
    """The script of a context that is opened: a new one, or that of the program that calls this one."""
    return caller.script.within(label) if isinstance(caller, ScriptedSession) else Script(replies)


class ScriptedBackend:
    """Every session that is opened starts its script from the beginning; forks and called programs share it."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        self.replies = dict(replies)

    @property
    def model_name(self) -> str:
        return "scripted"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(grammar=False, concat_kv=True, concurrent=False, tools=False)

    def require_chat(self) -> None:
        return

    def prepare(self, grammars: Sequence[str]) -> None:
        return

    async def open(self, label: str = "", caller: Session | None = None) -> Session:
        return ScriptedSession(script_of(self.replies, label, caller))

    async def close(self) -> None:
        return


class ScriptedSession:
    """A context that is only text. Roles are marked so that `text()` can be read."""

    def __init__(self, script: Script, text: str = "") -> None:
        self.script = script
        self._text = text
        self._forked_at = len(text)

    @property
    def usage(self) -> Usage:
        return Usage()

    async def extend(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            match segment:
                case TextSegment():
                    self._text += segment.text
                case RoleOpen():
                    self._text += f"<{segment.role}>"
                case RoleClose():
                    self._text += "</>\n"

    async def generate(self, request: GenRequest) -> AsyncIterator[Delta]:
        reply = self.script.take(request.label, request.candidate)
        if reply is None:
            raise EngineError("no_reply", f"the reply for `{request.label}` is null")
        if not isinstance(reply, str):
            text = value_to_text(reply)
            self._text += text
            reasoning = None if request.reasoning is None else ""
            yield Delta(text, finish=ValueFinish("end", text, value=reply, reasoning=reasoning))
            return
        thinking, reply = _split(reply, request.reasoning)
        stops = (*(re.escape(stop) for stop in request.stop), *request.stop_patterns)
        held = next((found for stop in stops if (found := re.search(stop, reply))), None)
        if held is not None:
            raise EngineError("bad_reply", f"the reply for `{request.label}` holds the stop {held[0]!r}")
        self._text += reply
        if thinking:
            yield Delta("", thinking=thinking)
        yield Delta(reply, finish=Finish("end", reply, reasoning=thinking))

    async def score(self, choices: Sequence[str], method: Method, label: str = "") -> Scores:
        reply = value_to_text(self.script.take(label))
        if reply not in choices:
            raise EngineError("bad_reply", f"the reply {reply!r} for `{label}` is none of the choices")
        index = list(choices).index(reply)
        flat = tuple(1.0 if i == index else 0.0 for i in range(len(choices)))
        return Scores(index, flat, flat)

    def has_reply(self, labels: Sequence[str]) -> bool:
        return any(self.script.has(label) for label in labels)

    def tool_reply(self, labels: Sequence[str]) -> object:
        return self.script.take_any(labels)

    async def fork(self, n: int) -> list[Session]:
        return [ScriptedSession(self.script, self._text) for _ in range(n)]

    async def concat(self, branches: Sequence[Session], mode: Concat) -> None:
        """Text is all there is here, and both modes give the same."""
        for branch in branches:
            assert isinstance(branch, ScriptedSession)
            self._text += branch._text[branch._forked_at :]

    def text(self) -> str:
        return self._text

    def trace(self) -> list[TraceToken]:
        return []

    def retire(self) -> None:
        return

    async def close(self) -> None:
        return


def _split(reply: str, reasoning: Reasoning | None) -> tuple[str | None, str]:
    """Thinking and answer of a reply. Without tags it is all answer; the opening tag may be missing, as with models
    whose template writes it, and without the closing one it is all thinking."""
    if reasoning is None:
        return None, reply
    text = reply.lstrip()
    opened = text.startswith(reasoning.open)
    thinking, closed, answer = text.removeprefix(reasoning.open).partition(reasoning.close)
    if not opened and not closed:
        return "", reply
    return thinking.strip(), answer.lstrip()


def read_replies(path: Path) -> dict[str, Any]:
    """Replies from a YAML or JSON file: a mapping of variable or step id to replies."""
    report = Report(str(path))
    node = parse(read_source(path), report)
    report.raise_errors()
    if not isinstance(node, MappingNode):
        raise SpecError(Diagnostic("S203", "Replies are a mapping of names to replies.", file=str(path)))
    return to_python(node)

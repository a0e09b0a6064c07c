"""One line of execution: a session with its variables, its transcript and its place in the program."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import sglspec.expressions as ev
from sglspec.analysis.program import CompiledValue, Constant, ListValue, Program, Rendered
from sglspec.backends.base import Backend, EngineError, Segment, Session, TextSegment, Token, TraceToken, Usage
from sglspec.diagnostics import Diagnostic, Related, SpecError
from sglspec.document.fields import Expr, Items, Param, Text
from sglspec.document.model import AnyStep, Sampling
from sglspec.document.nodes import Node, Scalar
from sglspec.expressions import Budget, EvaluationError, Expression, Origin, Template
from sglspec.runtime.context import Transcript
from sglspec.runtime.events import EventLog
from sglspec.runtime.limits import LimitReached, LimitTracker
from sglspec.runtime.profile import Key, Recorder
from sglspec.runtime.scope import Bound, Scope, Value, characters, list_of
from sglspec.runtime.threads import ToolThreads
from sglspec.runtime.unit import Unit
from sglspec.tools import Tools

ENGINE_CODES = {
    "template": "S603",
    "no_template": "S604",
    "unsupported": "S606",
    "sampling": "S507",
    "constraint": "S709",
    "limit": "S712",
    "internal": "S713",
    "no_reply": "S710",
    "bad_reply": "S711",
}
"""EngineError.kind → diagnostic code."""
_SIMPLER = "Let the constraint allow more texts, or make it simpler: fewer alternatives, shorter repetitions."
MASK = "***"
"""What stands in place of a secret."""


@dataclass(slots=True, eq=False)
class Shared:
    """What all lines of a run have in common. secrets: texts that must not be shown; recorder: who takes notes of what
    is spent, if anybody does."""

    backend: Backend
    log: EventLog
    seed: int
    options: Sampling | None = None
    trace: bool = False
    usage: Usage = field(default_factory=Usage)
    tools: Tools = field(default_factory=Tools)
    threads: ToolThreads = field(default_factory=ToolThreads)
    secrets: tuple[str, ...] = ()
    recorder: Recorder | None = None
    branch_traces: dict[str, tuple[TraceToken, ...]] = field(default_factory=dict[str, tuple[TraceToken, ...]])

    def add_usage(self, usage: Usage) -> None:
        self.usage = self.usage + usage

    def masked(self, value: Value) -> Value:
        """A value with the secrets in its texts replaced."""
        if isinstance(value, str):
            for secret in self.secrets:
                value = value.replace(secret, MASK)
            return value
        if isinstance(value, list):
            return [self.masked(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {self.masked(key): self.masked(item) for key, item in cast("dict[str, Any]", value).items()}
        return value


class Closing(Protocol):
    """A fork that this line opened (fork.Join)."""

    async def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class Frame:
    """`unit` is the program whose steps run; `path` is "" for the main line and "3.1" for the second branch of its
    third fork ("3.1/1.0" deeper); `rounds` are the running rounds of the loops around the current step; `tasks` is
    where forks put their branches; `forks` counts those that this line opened (never those of others: paths must not
    depend on timing), `joins` holds them; `site` are the calls and includes that lead to its steps, `step` is the one
    that is at work."""

    shared: Shared
    unit: Unit
    session: Session
    scope: Scope
    transcript: Transcript
    tasks: asyncio.TaskGroup
    path: str = ""
    depth: int = 0
    rounds: tuple[int, ...] = ()
    lenient: bool = False
    forks: int = 0
    joins: list[Closing] = field(default_factory=list[Closing])
    site: Key = ()
    step: AnyStep | None = None

    @property
    def program(self) -> Program:
        return self.unit.program

    @property
    def limits(self) -> LimitTracker:
        return self.unit.limits

    async def close_joins(self) -> None:
        """Let go of what this line's forks still hold."""
        while self.joins:
            await self.joins.pop().close()

    @contextmanager
    def span(self, kind: str, name: str, beside: str = "") -> Generator[dict[str, Any]]:
        """Time that the step takes from here to the end of the block, for whoever takes notes; see `profile.Span`."""
        recorder = self.shared.recorder
        if recorder is None:
            yield {}
            return
        key = self.site if self.step is None else (*self.site, id(self.step))
        with recorder.span(kind, name, self.path + beside, key) as data:
            yield data

    async def ready(self, names: Iterable[str]) -> None:
        """Wait until none of these names is still to come."""
        names = list(names)
        if pending := self.scope.awaited(names):
            with self.span("wait", ", ".join(pending)):
                await self.scope.ready(pending)
        await self.scope.ready(names)

    # -- diagnostics ---------------------------------------------------------------------------------------------

    def error(self, code: str, message: str, node: Node, **more: Any) -> SpecError:
        return SpecError(self.program.document.diagnostic(code, message, node, **more))

    def data_error(self, cause: str, message: str, node: Node, help: str | None = None) -> SpecError:
        """A failure that data caused: S707 with the code that `check` would have given (language.md § 11)."""
        return self.error("S707", message, node, help=help, cause=cause)

    def authored(self, code: str, message: str, node: Node) -> SpecError:
        """An error in the author's own words, kept as they are."""
        return SpecError(replace(self.at(node), code=code, message=message))

    def within(self, problem: SpecError, node: Node, message: str) -> SpecError:
        """An error of included or called steps, with the place that they were named at."""
        first, *rest = problem.diagnostics
        document = self.program.document
        related = Related(message, node.range, document.source.name)
        return type(problem)(replace(first, related=(*first.related, related)), *rest)

    def engine_error(self, problem: EngineError, node: Node) -> SpecError:
        help = _SIMPLER if problem.kind == "constraint" else None
        error = self.error(ENGINE_CODES.get(problem.kind, "S713"), str(problem), node, help=help)
        return LimitReached(*error.diagnostics) if problem.kind == "limit" else error

    def at(self, node: Node) -> Diagnostic:
        """A blank diagnostic that carries a place, for limits."""
        return self.program.document.diagnostic("S705", "", node)

    def emit(self, type: str, node: Node | None = None, tokens: tuple[Token, ...] = (), **data: Any) -> None:
        step = self.program.document.pointer(node) if node is not None else ""
        if self.unit.file and step:
            data["file"] = self.unit.file
        if self.unit.label:
            data["call"] = self.unit.label
        self.shared.log.add(type, self.path, step, tokens, **data)

    # -- evaluation ----------------------------------------------------------------------------------------------

    async def template(self, text: Text) -> list[ev.Segment]:
        return await self._render(self.program.templates[text], text.node)

    async def plain(self, text: Text) -> str:
        """A template's text without its origins."""
        return "".join(segment.text for segment in await self.template(text))

    async def expression(self, expr: Expr) -> tuple[Value, Origin]:
        compiled = self.program.expressions[expr]
        await self._ready(compiled)
        try:
            return ev.evaluate_traced(compiled, self._view(), Budget())
        except EvaluationError as problem:
            raise self._evaluation(problem, expr.node) from None

    async def condition(self, expr: Expr) -> bool:
        value, _ = await self.expression(expr)
        return ev.truthy(value)

    async def value(self, compiled: CompiledValue) -> tuple[Value, Origin]:
        """A value field: literals as they are, a lone `{{ expr }}` with its type, other templates as text."""
        if isinstance(compiled, Constant):
            return compiled.value, "author"
        if isinstance(compiled, Rendered):
            return await self._rendered(compiled)
        origin: Origin = "author"
        if isinstance(compiled, ListValue):
            items: list[Value] = []
            for item in compiled.items:
                value, one = await self.value(item)
                items.append(value)
                origin = ev.least_trusted(origin, one)
            return items, origin
        entries: dict[str, Value] = {}
        for key, item in compiled.entries:
            entries[key], one = await self.value(item)
            origin = ev.least_trusted(origin, one)
        return entries, origin

    async def value_at(self, node: Node) -> tuple[Value, Origin]:
        return await self.value(self.program.values[node])

    async def lenient_value(self, node: Node) -> tuple[Value, Origin]:
        """A value field in which names that this run did not bind are null (outputs)."""
        self.lenient = True
        try:
            return await self.value_at(node)
        finally:
            self.lenient = False

    async def option(self, param: Param, name: str) -> Any:
        """A number, boolean or word; None for an explicit null."""
        if param.template is None:
            return param.value
        value, _ = await self.value_at(param.node)
        try:
            return param.check(value)
        except ValueError as problem:
            raise self.data_error("S408", f"`{name}`: {problem}", param.node) from None

    async def items(self, items: Items) -> tuple[Value, Origin]:
        """What `in` and `from` give: the value of the expression, or the literal list with its templates rendered."""
        if items.expr is not None:
            return await self.expression(items.expr)
        return await self.value_at(items.node)

    async def _rendered(self, compiled: Rendered) -> tuple[Value, Origin]:
        if compiled.template.single is None:
            segments = await self._render(compiled.template, compiled.node)
            origin: Origin = "author"
            for segment in segments:
                origin = ev.least_trusted(origin, segment.origin)
            return "".join(segment.text for segment in segments), origin
        await self._ready(compiled.template.single)
        try:
            return ev.evaluate_traced(compiled.template.single, self._view(), Budget())
        except EvaluationError as problem:
            raise self._evaluation(problem, compiled.node) from None

    async def _render(self, template: Template, node: Scalar) -> list[ev.Segment]:
        await self._ready(template)
        try:
            return ev.render(template, self._view(), Budget())
        except EvaluationError as problem:
            raise self._evaluation(problem, node) from None

    async def _ready(self, compiled: Template | Expression) -> None:
        await self.ready(use.name for use in compiled.names)

    def _view(self) -> View:
        return View(self)

    def _evaluation(self, problem: EvaluationError, node: Scalar) -> SpecError:
        document = self.program.document
        more = {"help": problem.help, "cause": problem.cause}
        return SpecError(document.diagnostic_in("S707", problem.message, node, problem.start, problem.end, **more))

    # -- context -------------------------------------------------------------------------------------------------

    async def append(self, segments: Iterable[ev.Segment], node: Node) -> None:
        """Append text to the context."""
        added: list[Segment] = []
        for segment in segments:
            if segment.text:
                self.limits.add_characters(len(segment.text), lambda: self.at(node))
                self.transcript.append(segment.text)
                added.append(TextSegment(segment.text, segment.origin))
                self.emit("text", node, text=segment.text, origin=segment.origin)
        if added:
            await self.extend(added, node)

    async def extend(self, segments: list[Segment], node: Node) -> None:
        try:
            await self.session.extend(segments)
        except EngineError as problem:
            raise self.engine_error(problem, node) from None

    # -- variables and randomness --------------------------------------------------------------------------------

    async def bind(self, name: str, append: bool, bound: Bound, node: Node) -> None:
        """Bind a variable, or append to a list variable."""
        self.limits.add_characters(characters(bound.value), lambda: self.at(node))
        if append:
            bound = await self.appended(name, bound)
        else:
            self.scope.anew.add(name)
        self.scope.bind(name, bound)
        self.emit("bound", node, name=name, value=bound.value)

    async def appended(self, name: str, bound: Bound) -> Bound:
        """What a list variable is with one more item."""
        await self.ready([name])
        return list_of([bound], self.scope.get(name))

    def noise_key(self, step_seed: int, attempt: int | tuple[int, int] = 0) -> int:
        """64 bits from run seed, step seed, branch path, loop rounds and attempt (language.md § 5)."""
        parts = (self.shared.seed, step_seed, self.path, self.rounds, attempt)
        return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


class View:
    """The scope as expressions see it."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def lookup(self, name: str) -> tuple[Value, Origin]:
        if name == "texts":
            return dict(self._frame.program.texts), "author"
        bound = self._frame.scope.get(name)
        if bound is None:
            if self._frame.lenient:
                return None, "author"
            raise KeyError(name)
        return bound.value, bound.origin

    def meta(self, name: str) -> Value:
        bound = self._frame.scope.get(name)
        if bound is None:
            raise KeyError(name)
        return bound.meta

    def messages(self) -> Value:
        return list(self._frame.transcript.messages())

    def transcript(self) -> str:
        return self._frame.session.text()

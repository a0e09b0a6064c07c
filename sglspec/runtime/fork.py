"""Fork and join: branches start from a snapshot, run at the same time, and come back through the join only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import sglspec.expressions as ev
from sglspec.analysis.bindings import BoundNames, bound_names
from sglspec.backends.base import EngineError, Session
from sglspec.diagnostics import SpecError
from sglspec.document.fields import Param, Target
from sglspec.document.model import AnyStep, Fork
from sglspec.document.nodes import Node
from sglspec.runtime.frame import Frame
from sglspec.runtime.limits import LimitReached
from sglspec.runtime.needs import FALLBACK
from sglspec.runtime.scope import Bound, Gathered, list_of, record_of
from sglspec.runtime.signals import NextRound

RunSteps = Callable[[Frame, "list[AnyStep]"], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Branch:
    """One branch: its steps, its frame, and how it ended. `item` is the fork variable's value."""

    steps: list[AnyStep]
    frame: Frame
    name: str | None = None
    item: Bound | None = None
    error: SpecError | None = None

    @property
    def title(self) -> str:
        """Its name, or the item that it is for, as a text."""
        return self.name or ("" if self.item is None else ev.value_to_text(self.item.value))


async def run_fork(frame: Frame, step: Fork, run_steps: RunSteps) -> None:
    names = bound_names([one for branch in _bodies(step) for one in branch])
    await frame.ready([*names.appended, *([step.into.name] if step.into else [])])
    # Nothing is awaited from here until the join is registered, so that no cancellation can lose a session.
    branches = await _open(frame, step)
    starts = {name: held for name in names.appended if (held := frame.scope.get(name))}
    records = frame.scope.get(step.into.name) if step.into is not None and step.into.append else None
    gathered = Gathered()
    frame.scope.expect(_outer_names(step, names), gathered)
    fork_id = branches[0].frame.path.rsplit(".", 1)[0] if branches else ""
    frame.emit("fork.opened", step.verb_node, fork=fork_id, width=len(branches))
    job = Join(frame, branches, gathered, run_steps, step, names, starts, records)
    frame.joins.append(job)
    if step.join in ("concat", "concat_kv"):
        await job.run()
        await _concat(frame, step, branches)
        await job.close()
    else:
        await job.begin()


def _bodies(step: Fork) -> list[list[AnyStep]]:
    return list(step.branches.values()) if step.branches is not None else [step.do or []]


def _outer_names(step: Fork, names: BoundNames) -> list[str]:
    """The names that the parent gets."""
    if step.into is None:
        return [*names.plain, *names.appended]
    return [step.into.name, *names.appended]


async def _open(frame: Frame, step: Fork) -> list[Branch]:
    """Evaluate the width, and open that many branches."""
    named = step.branches
    items: list[Bound | None]
    bodies: list[list[AnyStep]]
    if named is not None:
        items, bodies = [None] * len(named), list(named.values())
        count = len(named)
    elif isinstance(step.spec, Param):
        items, bodies = [], []
        count = int(await frame.option(step.spec, "fork") or 0)
    else:
        items, bodies = await _fork_items(frame, step), []
        count = len(items)
    lines = await open_lines(frame, count, step.verb_node)
    items = items or [None] * count
    bodies = bodies or [step.do or []] * count
    branches: list[Branch] = []
    for index, child in enumerate(lines):
        child.scope.bind("loop", Bound(loop_record(index, count)))
        item = items[index]
        if isinstance(step.spec, Target) and item is not None:
            child.scope.bind(step.spec.name, item)
        branches.append(Branch(bodies[index], child, list(named)[index] if named else None, item))
    return branches


async def open_lines(frame: Frame, count: int, node: Node) -> list[Frame]:
    """Check the bounds and fork: that many lines, which start from what is here."""
    # Before anything of that size is made.
    frame.limits.add_branches(count, frame.depth + 1, frame.at(node))
    frame.forks += 1
    prefix = f"{frame.path}/{frame.forks}" if frame.path else str(frame.forks)
    try:
        with frame.span("fork", f"{count}") as spent:
            before = frame.session.usage.computed_tokens
            sessions = await frame.session.fork(count) if count else []
            spent["computed_tokens"] = frame.session.usage.computed_tokens - before
    except EngineError as problem:
        raise frame.engine_error(problem, node) from None
    return [
        Frame(
            frame.shared, frame.unit, session, frame.scope.snapshot(), frame.transcript.snapshot(), frame.tasks,
            path=f"{prefix}.{index}", depth=frame.depth + 1, rounds=frame.rounds, site=frame.site, step=frame.step,
        )
        for index, session in enumerate(sessions)
    ]  # fmt: skip


def loop_record(index: int, length: int | None) -> dict[str, Any]:
    """`loop` in loops and forks; a `while` does not know its length."""
    record: dict[str, Any] = {"index": index + 1, "index0": index, "first": index == 0}
    if length is not None:
        record |= {"last": index == length - 1, "length": length}
    return record


async def _fork_items(frame: Frame, step: Fork) -> list[Bound | None]:
    assert step.items is not None
    value, origin = await frame.items(step.items)
    if not isinstance(value, list):
        raise frame.data_error("S408", f"`in` must be a list, found {ev.describe(value)}", step.at("in"))
    return [Bound(item, origin) for item in cast("list[Any]", value)]


@dataclass(slots=True, eq=False)
class Branching:
    """Branches that were opened. `close` is called when they are done, and again by whoever ends the parent's line: a
    task that is cancelled before its first step never gets to close anything."""

    frame: Frame
    branches: list[Branch]
    gathered: Gathered
    run_steps: RunSteps
    closing: asyncio.Future[None] | None = field(default=None, init=False)

    @property
    def node(self) -> Node:
        """The verb that opened them."""
        raise NotImplementedError

    @property
    def on_error(self) -> str:
        return "fail"

    @property
    def keeps_text(self) -> bool:
        """Whether the parent takes over what the branches write."""
        return False

    def values(self) -> dict[str, Bound]:
        """What the parent gets, by name."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Run the branches while the parent goes on; before that where branches are not to run beside it."""
        if self.frame.shared.backend.capabilities.concurrent:
            self.frame.tasks.create_task(self.run_and_close())
        else:
            await self.run_and_close()

    async def run_and_close(self) -> None:
        await self.run()
        await self.close()

    async def close(self) -> None:
        """Take the branches' usage and let go of what they hold, once. A cancelled caller does not stop it."""
        if self.closing is None:
            self.closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self.closing)

    async def _close(self) -> None:
        for branch in self.branches:
            frame, shared = branch.frame, branch.frame.shared
            await frame.close_joins()
            if shared.trace:
                shared.branch_traces[frame.path] = tuple(frame.session.trace())
            await frame.session.close()
            # Only now is a cancelled request's usage known.
            shared.add_usage(frame.session.usage)
        if self in self.frame.joins:
            self.frame.joins.remove(self)

    async def run(self) -> None:
        """Run every branch to its end, then settle the names. Sessions are closed when anything goes wrong."""
        try:
            if self.frame.shared.backend.capabilities.concurrent:
                async with asyncio.TaskGroup() as group:
                    for branch in self.branches:
                        group.create_task(self._run(branch))
            else:
                for branch in self.branches:
                    await self._run(branch)
        except BaseException:
            # What finished branches bound is part of a partial result.
            self.gathered.settle(self.values())
            await self.close()
            raise
        values = self.values()
        self.gathered.settle(values)
        self.frame.emit("join.finished", self.node, values={k: v.value for k, v in values.items()})

    async def _run(self, branch: Branch) -> None:
        frame = branch.frame
        item = None if branch.item is None else branch.item.value
        frame.emit("branch.started", self.node, name=branch.name, item=item)
        try:
            with frame.span("branch", branch.title):
                async with asyncio.TaskGroup() as group:
                    frame.tasks = group
                    with suppress(NextRound):
                        await self.run_steps(frame, branch.steps)
                    if not self.keeps_text:
                        frame.session.retire()
                await frame.scope.all_ready()
            await frame.close_joins()
        except* SpecError as problems:
            error = first_error(problems)
            if self.on_error == "fail" or isinstance(error, LimitReached):
                raise error from None
            branch.error = error
            await frame.close_joins()
        failed = branch.error.diagnostics[0].as_dict() if branch.error else None
        frame.emit("branch.finished", self.node, name=branch.name, error=failed)


@dataclass(slots=True, eq=False)
class Join(Branching):
    """A fork: what its branches bind is gathered."""

    step: Fork
    names: BoundNames
    starts: dict[str, Bound]
    records_before: Bound | None

    @property
    def node(self) -> Node:
        return self.step.verb_node

    @property
    def on_error(self) -> str:
        return self.step.on_error or "fail"

    @property
    def keeps_text(self) -> bool:
        return self.step.join in ("concat", "concat_kv")

    def values(self) -> dict[str, Bound]:
        values = self._appended()
        if self.step.into is not None:
            values[self.step.into.name] = self._records(self.step.into)
        elif self.step.branches is not None:
            for branch in self.branches:
                for name in bound_names(branch.steps).plain:
                    values[name] = self._of(branch, name)
        else:
            for name in self.names.plain:
                values[name] = list_of(self._of(branch, name) for branch in self.branches)
        return values

    def _of(self, branch: Branch, name: str) -> Bound:
        if branch.error is not None:
            return Bound(error_value(branch.error) if self.step.on_error == "keep" else None)
        # A name that the branch only inherited (from an earlier round of this fork) was not bound by it.
        scope = branch.frame.scope
        return (scope.get(name) if name in scope.written else None) or Bound(None)

    def _records(self, into: Target) -> Bound:
        """What `into` gets: a record of each branch, by name for named ones."""
        each = [self._record(branch) for branch in self.branches]
        if self.step.branches is not None:
            named = record_of(dict(zip(self.step.branches, each, strict=True)))
            return list_of([named], self.records_before) if into.append else named
        return list_of(each, self.records_before)

    def _record(self, branch: Branch) -> Bound:
        if branch.error is not None:
            return Bound(error_value(branch.error) if self.step.on_error == "keep" else None)
        record: dict[str, Bound] = {}
        if isinstance(self.step.spec, Target) and branch.item is not None:
            record[self.step.spec.name] = branch.item
        for name in bound_names(branch.steps).plain:
            record[name] = self._of(branch, name)
        return record_of(record)

    def _appended(self) -> dict[str, Bound]:
        """Additions to `name[]` lists, in branch order after what the parent held at the fork."""
        out: dict[str, Bound] = {}
        for name in self.names.appended:
            start = self.starts.get(name, Bound([]))
            added: list[Bound] = []
            for branch in self.branches:
                held = branch.frame.scope.get(name)
                if branch.error is not None or held is None:
                    continue
                # A branch that emptied the list emptied its own: what it added since comes behind what was there.
                first = 0 if name in branch.frame.scope.anew else len(start.value)
                metas = held.meta or [None] * len(held.value)
                pairs = zip(held.value[first:], metas[first:], strict=True)
                added += [Bound(value, held.origin, meta) for value, meta in pairs]
            out[name] = list_of(added, start)
        return out


def error_value(error: SpecError) -> dict[str, Any]:
    """What `on_error: keep` keeps."""
    first = error.diagnostics[0]
    return {"error": {"code": first.code, "message": first.message}}


async def _concat(frame: Frame, step: Fork, branches: list[Branch]) -> None:
    """Append the branches' new text in order, as if it had been written here."""
    kept = [branch for branch in branches if branch.error is None]
    sessions = [branch.frame.session for branch in kept]
    try:
        with frame.span("join", step.join or "gather") as spent:
            before = frame.session.usage.computed_tokens
            if step.join == "concat_kv":
                await _concat_kv(frame, step, sessions)
            else:
                await frame.session.concat(sessions, "concat")
            spent["computed_tokens"] = frame.session.usage.computed_tokens - before
    except EngineError as problem:
        raise frame.engine_error(problem, step.verb_node) from None
    for branch in kept:
        frame.transcript.join(branch.frame.transcript)
        text = branch.frame.transcript.added()
        if text:
            frame.emit("text", step.verb_node, text=text, origin="generated", joined=True)


APART = (
    "Let the branches begin with white space and the text before them end without, or let that text end with a new "
    "line and the branches begin with a word."
)


async def _concat_kv(frame: Frame, step: Fork, sessions: list[Session]) -> None:
    """Join what was computed for the branches, or, with `fallback: concat`, their text where that cannot be done."""
    if frame.shared.backend.capabilities.concat_kv:
        try:
            divergence = await frame.session.concat(sessions, "concat_kv")
        except EngineError as problem:
            if problem.kind != "unsupported":
                raise
            if step.fallback is None:
                raise frame.error("S606", str(problem), step.at("join"), help=f"{APART} {FALLBACK}") from None
        else:
            frame.emit("context.joined", step.at("join"), mode="concat_kv", divergence=divergence)
            return
    await frame.session.concat(sessions, "concat")
    frame.emit("context.joined", step.at("join"), mode="concat", divergence=None)


def first_error(problems: BaseExceptionGroup[SpecError]) -> SpecError:
    """The error to report of several: a reached limit before others, otherwise the first."""
    flat: list[SpecError] = []

    def collect(group: BaseExceptionGroup[Any]) -> None:
        for one in group.exceptions:
            if isinstance(one, BaseExceptionGroup):
                collect(cast("BaseExceptionGroup[Any]", one))
            elif isinstance(one, SpecError):
                flat.append(one)

    collect(problems)
    return next((one for one in flat if isinstance(one, LimitReached)), flat[0])

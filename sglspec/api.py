"""Programs from Python: load, bind, run, stream, batch. Every call has a form for `await` and one that waits itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict, TypeVar, Unpack, cast

from sglspec.analysis import Program as CheckedProgram
from sglspec.analysis import load_program
from sglspec.analysis.inputs import bind_some
from sglspec.analysis.runoptions import sampling_of
from sglspec.backends import Backend, open_backend
from sglspec.backends.base import Token
from sglspec.backends.scripted import ScriptedBackend
from sglspec.batches import (
    CONCURRENCY,
    Batch,
    BatchOptions,
    Columns,
    Metrics,
    OnError,
    Order,
    RawRow,
    RowResult,
    given_rows,
    read_rows,
)
from sglspec.batches.columns import bound_twice
from sglspec.diagnostics import Diagnostic, Report, SpecError
from sglspec.document.model import Gen, Select
from sglspec.document.nodes import Source
from sglspec.document.read import read_source, source_from_text
from sglspec.runtime.events import Event, keyed
from sglspec.runtime.requests import label_of
from sglspec.runtime.result import Result
from sglspec.runtime.run import Run, RunOptions, start
from sglspec.runtime.warm import warm
from sglspec.tools import Tool, Tools, make_tool

T = TypeVar("T")


class Model:
    """A model that stays loaded: `with Model() as model:`, or `async with`.

    name: what `sglspec models ls` shows, or a folder; the default model if None. backend, engine: as for
    `sglspec run`. Entering it raises SpecError when the model cannot be opened.
    """

    def __init__(
        self, name: str | None = None, *, backend: str | None = None, engine: Mapping[str, object] | None = None
    ) -> None:
        self._wanted = name, backend, dict(engine or {})
        self._backend: Backend | None = None

    @property
    def backend(self) -> Backend:
        """RuntimeError where it is not open."""
        if self._backend is None:
            raise RuntimeError("the model is not open: use it in a `with` block")
        return self._backend

    @property
    def name(self) -> str:
        return self.backend.model_name

    async def __aenter__(self) -> Model:
        name, backend, engine = self._wanted
        self._backend = await open_backend(backend, name, engine)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            await backend.close()

    def __enter__(self) -> Model:
        return _wait(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _wait(self.__aexit__(kind, error, trace))


On = Model | Backend | Mapping[str, Any] | str | None
"""Where to run: a model that is open, the name of one that is opened for this call, scripted replies by variable or
step id, or None for the program's own model."""


Rows = Iterable[Mapping[str, Any]] | str | Path
"""Rows as mappings, or a file of them."""


Offered = Tools | Iterable[Tool | Callable[..., Any]]
"""What a host offers: functions, or tools that were made already."""


Sampling = Mapping[str, Any] | None
"""Options of `gen` by name, as a document has them below `defaults`."""


class LoadSettings(TypedDict, total=False):
    """The options of `load`."""

    tools: Offered | None
    roots: Iterable[str | Path]


class RunSettings(TypedDict, total=False):
    """The options of `Program.run`."""

    on: On
    seed: int | None
    trace: bool
    sampling: Sampling


class BatchSettings(TypedDict, total=False):
    """The options of `Program.batch`."""

    on: On
    columns: Mapping[str, str] | None
    keep: Iterable[str]
    few_shot: tuple[str, int] | None
    few_shot_from: Rows | None
    concurrency: int
    order: Order
    on_error: OnError
    max_errors: int | None
    limit: int | None
    shard: tuple[int, int]
    output: str | Path | None
    fresh: bool
    retry_failed: bool
    seed: int
    metrics: Metrics | None


class LoadAndRunSettings(RunSettings, LoadSettings, total=False):
    """The options of `run`."""


class LoadAndBatchSettings(BatchSettings, LoadSettings, total=False):
    """The options of `batch`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of a stream, and the tokens of what was generated of it, each with its log-probability. Tokens that end a
    text without adding to it are in the result's `meta` only."""

    text: str
    tokens: tuple[Token, ...] = ()


class Stream:
    """A run in progress. Any number of readers; one that comes late first gets what it missed."""

    def __init__(self, program: CheckedProgram, run: Run) -> None:
        self._program = program
        self._run = run

    async def events(self, var: str | None = None, branch: str | None = None) -> AsyncIterator[Event]:
        """All events, or those of one variable (or step id), of one branch (its path, or its name)."""
        chosen = _Filter(self._program, var, branch)
        async for event in self._run.events():
            if chosen.takes(event):
                yield event

    async def text(self, var: str | None = None, branch: str | None = None) -> AsyncIterator[str]:
        """The text of a variable as it is generated; without `var` all of the main line's text, or of a branch's."""
        async for piece in self.pieces(var, branch):
            yield piece.text

    async def pieces(self, var: str | None = None, branch: str | None = None) -> AsyncIterator[Piece]:
        """As `text`, with the tokens of what was generated."""
        chosen = _Filter(self._program, var, branch if branch is not None or var is not None else "")
        async for events in self._run.log.batches():
            taken = [event for event in events if chosen.takes(event) and event.type in _TEXTS]
            if text := "".join(event.data["text"] for event in taken):
                yield Piece(text, tuple(token for event in taken for token in event.tokens))

    async def result(self) -> Result:
        """The result, when the run has ended."""
        return await asyncio.shield(self._run.wait())

    def cancel(self) -> None:
        """Ask the run to stop."""
        self._run.cancel()


_TEXTS = ("text", "delta", "selected")


class _Filter:
    """Which events a reader wants. Learns the paths of named branches as they begin."""

    def __init__(self, program: CheckedProgram, var: str | None, branch: str | None) -> None:
        self._var = var
        self._branch = branch
        self._paths = {branch}
        self._labels = {var, *_labels(program, var)} if var is not None else set[str | None]()

    def takes(self, event: Event) -> bool:
        if event.type == "branch.started" and self._branch and event.data["name"] == self._branch:
            self._paths.add(event.branch)
        if self._branch is not None and event.branch not in self._paths:
            return False
        if self._var is None:
            return True
        name = keyed(event)
        return name == self._var if event.type == "bound" else event.type in _NAMED and name in self._labels


_NAMED = ("delta", "generated", "selected")


def _labels(program: CheckedProgram, var: str) -> Iterator[str]:
    """The ids of the steps that bind a variable: events have the id where there is one."""
    for _, step in program.expanded():
        target = step.gen if isinstance(step, Gen) else step.select if isinstance(step, Select) else None
        if isinstance(step, Gen | Select) and target is not None and target.name == var:
            yield label_of(step)


class SyncStream:
    """A `Stream` for code without `await`. Readers may be on several threads."""

    def __init__(self, stream: Stream, portal: _Portal) -> None:
        self._stream = stream
        self._portal = portal

    def events(self, var: str | None = None, branch: str | None = None) -> Iterator[Event]:
        """As `Stream.events`."""
        return self._portal.iterate(self._stream.events(var, branch))

    def text(self, var: str | None = None, branch: str | None = None) -> Iterator[str]:
        """As `Stream.text`."""
        return self._portal.iterate(self._stream.text(var, branch))

    def pieces(self, var: str | None = None, branch: str | None = None) -> Iterator[Piece]:
        """As `Stream.pieces`."""
        return self._portal.iterate(self._stream.pieces(var, branch))

    def result(self) -> Result:
        """As `Stream.result`."""
        return self._portal.wait(self._stream.result())

    def cancel(self) -> None:
        """Ask the run to stop."""
        self._portal.post(self._stream.cancel)


class Program:
    """A checked program, with inputs that may be bound already. Programs are never changed: `bind` gives a new one."""

    def __init__(
        self, checked: CheckedProgram, bound: Mapping[str, Any] | None = None, tools: Tools | None = None
    ) -> None:
        self.checked = checked
        self.bound: Mapping[str, Any] = dict(bound or {})
        self.tools = tools

    def __repr__(self) -> str:
        return f"<Program {self.name}({', '.join(self.inputs)})>"

    @property
    def name(self) -> str:
        return self.checked.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that are not bound."""
        return tuple(name for name in self.checked.inputs if name not in self.bound)

    def bind(self, /, **inputs: Any) -> Program:
        """A program with values for some inputs. SpecError: S401, S403, and S410 for one that is bound already."""
        bound = self._with(inputs)
        if problems := bind_some(self.checked.spec, inputs):
            raise SpecError(*problems)
        return Program(self.checked, bound, self.tools)

    async def arun(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        on: On = None,
        seed: int | None = None,
        trace: bool = False,
        sampling: Sampling = None,
    ) -> Result:
        """Run to the end. What the program did is in the result, an error too; SpecError for inputs that do not fit
        and for a model that cannot be opened. `sampling`: options that win over the document's `defaults`, and not
        over its steps."""
        async with self._started(inputs, on, seed, trace, sampling) as run:
            return await run.wait()

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        on: On = None,
        seed: int | None = None,
        trace: bool = False,
        sampling: Sampling = None,
    ) -> Result:
        """As `arun`."""
        return _wait(self.arun(inputs, on=on, seed=seed, trace=trace, sampling=sampling))

    @asynccontextmanager
    async def astream(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        on: On = None,
        seed: int | None = None,
        trace: bool = False,
        sampling: Sampling = None,
    ) -> AsyncGenerator[Stream, None]:
        """Run while the block is entered; leaving it cancels what still runs. Raises what `arun` raises."""
        async with self._started(inputs, on, seed, trace, sampling) as run:
            yield Stream(self.checked, run)

    @contextmanager
    def stream(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        on: On = None,
        seed: int | None = None,
        trace: bool = False,
        sampling: Sampling = None,
    ) -> Generator[SyncStream, None, None]:
        """As `astream`."""
        with _Portal() as portal:
            streaming = self.astream(inputs, on=on, seed=seed, trace=trace, sampling=sampling)
            with portal.entered(streaming) as stream:
                yield SyncStream(stream, portal)

    async def abatch(
        self,
        rows: Rows,
        *,
        on: On = None,
        columns: Mapping[str, str] | None = None,
        keep: Iterable[str] = (),
        few_shot: tuple[str, int] | None = None,
        few_shot_from: Rows | None = None,
        concurrency: int = CONCURRENCY,
        order: Order = "input",
        on_error: OnError = "collect",
        max_errors: int | None = None,
        limit: int | None = None,
        shard: tuple[int, int] = (1, 1),
        output: str | Path | None = None,
        fresh: bool = False,
        retry_failed: bool = False,
        seed: int = 0,
        metrics: Metrics | None = None,
    ) -> AsyncGenerator[RowResult, None]:
        """Run every row: mappings of inputs, or a file of JSON Lines, CSV or Parquet.

        columns: input → column of another name. keep: columns that go into the results. few_shot: an input that is
        filled with so many other rows, of the same kind or from `few_shot_from`. shard: (part, parts). output: a file
        that results are appended to; rows that are in it are not run, and not given. metrics: counts all rows, those
        too. The rest as for `sglspec batch`. ValueError for numbers that no batch can have.
        """
        chosen = Columns(self.checked.inputs, self.bound, dict(columns or {}), tuple(keep))
        options = BatchOptions(
            concurrency, order, on_error, max_errors, limit, shard, None if output is None else Path(output),
            fresh, retry_failed, seed, metrics,
        )  # fmt: skip
        if few_shot is not None:
            pool = rows if few_shot_from is None else few_shot_from
            if isinstance(pool, Iterator):
                raise ValueError("rows that can be read once only cannot be examples too: give `few_shot_from`")
            file = str(pool) if isinstance(pool, str | Path) else None
            chosen = chosen.with_examples(*few_shot, _raw(pool), seed, file)
        raw = _raw(rows)
        batch = Batch(self.checked, chosen, options, self.tools)
        async with _open(on, self.checked) as backend, aclosing(batch.results(raw, backend)) as results:
            async for result in results:
                yield result

    def batch(self, rows: Rows, **options: Unpack[BatchSettings]) -> Iterator[RowResult]:
        """As `abatch`. Rows run until the iterator is used up or closed."""
        with _Portal() as portal:
            yield from portal.iterate(self.abatch(rows, **options))

    async def awarm(self, *, on: On) -> int:
        """Compute what every run begins with: the text before the first input that is not bound, or before the first
        generation; and have constraints compiled, as far as they are known. Runs on the same model then reuse both.
        Gives the number of tokens that were computed."""
        async with _open(on, self.checked) as backend:
            return await warm(self.checked, self.bound, backend)

    def warm(self, *, on: On) -> int:
        """As `awarm`."""
        return _wait(self.awarm(on=on))

    def _with(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Bound inputs and more. SpecError (S410) for one that is given twice."""
        if clashes := [bound_twice(name) for name in inputs if name in self.bound]:
            raise SpecError(*clashes)
        return {**self.bound, **inputs}

    @asynccontextmanager
    async def _started(
        self, inputs: Mapping[str, Any] | None, on: On, seed: int | None, trace: bool, sampling: Sampling
    ) -> AsyncGenerator[Run, None]:
        given = self._with(inputs or {})
        options = RunOptions(seed, sampling_of(sampling or {}), trace=trace, tools=self.tools)
        async with _open(on, self.checked) as backend:
            run = start(self.checked, given, backend, options)
            try:
                yield run
            finally:
                run.cancel()
                await run.wait()


def _raw(rows: Rows) -> Iterator[RawRow]:
    return read_rows(Path(rows)) if isinstance(rows, str | Path) else given_rows(rows)


@asynccontextmanager
async def _open(on: On, program: CheckedProgram) -> AsyncGenerator[Backend, None]:
    """The backend that is meant; one that this opened is closed in the end."""
    if isinstance(on, Model):
        yield on.backend
    elif isinstance(on, Mapping):
        yield ScriptedBackend(on)
    elif isinstance(on, str) or on is None:
        async with Model(on or program.spec.model) as model:
            yield model.backend
    else:
        yield on


class _Portal:
    """An event loop on a thread of its own, for callers that do not await: works inside of another loop (notebooks)
    too, and lets several threads read one stream."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="sglspec", daemon=True)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()

    def __enter__(self) -> _Portal:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stop is not None
        self.post(self._stop.set)
        self._thread.join()

    def post(self, action: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(action)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of `work`. Ctrl-C while waiting cancels it."""
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous generator."""
        generator = cast("AsyncGenerator[T, None]", items)

        async def following() -> tuple[T] | None:
            try:
                return (await anext(generator),)
            except StopAsyncIteration:
                return None

        async def close() -> None:
            await generator.aclose()

        try:
            while (item := self.wait(following())) is not None:
                yield item[0]
        finally:
            self.wait(close())

    @contextmanager
    def entered(self, manager: Any) -> Generator[Any, None, None]:
        """What an asynchronous context manager gives, entered and left on the loop."""

        async def enter() -> Any:
            return await manager.__aenter__()

        async def leave() -> None:
            await manager.__aexit__(None, None, None)

        value = self.wait(enter())
        try:
            yield value
        finally:
            self.wait(leave())


def _wait(work: Coroutine[Any, Any, T]) -> T:
    with _Portal() as portal:
        return portal.wait(work)


def _source(document: str | Path) -> Source:
    """A path, or the text of a document: a text of several lines is no path."""
    if isinstance(document, str) and "\n" in document:
        is_json = document.lstrip().startswith("{")
        return source_from_text(document, "program", "json" if is_json else "yaml")
    return read_source(document)


def load(document: str | Path, *, tools: Offered | None = None, roots: Iterable[str | Path] = ()) -> Program:
    """The program in a file, or in a text of several lines. SpecError with every mistake there is.

    tools: functions that it may call beside `calculator`; see `sglspec.tools`. ToolsFault for what cannot be a tool.
    roots: folders whose files it may use, beside its own folder; a text has none, and stands in the first of them.
    """
    source = _source(document)
    report = Report(source.name)
    host = _host(tools)
    program = load_program(source, report, host, [Path(root) for root in roots])
    report.raise_errors()
    assert program is not None
    return Program(program, tools=host)


def check(document: str | Path, *, tools: Offered | None = None, roots: Iterable[str | Path] = ()) -> list[Diagnostic]:
    """Everything that is wrong with a document, and warnings. tools, roots: as for `load`."""
    try:
        source = _source(document)
    except SpecError as error:
        return list(error.diagnostics)
    report = Report(source.name)
    load_program(source, report, _host(tools), [Path(root) for root in roots])
    return report.sorted()


def _host(tools: Offered | None) -> Tools | None:
    if tools is None or isinstance(tools, Tools):
        return tools
    return Tools(one if isinstance(one, Tool) else make_tool(one) for one in tools)


def _program(program: Program | str | Path, settings: LoadSettings) -> Program:
    """TypeError for settings of a program that is loaded already."""
    if not isinstance(program, Program):
        return load(program, **settings)
    if settings:
        raise TypeError(f"{', '.join(settings)} cannot be given for a program that is loaded already")
    return program


def _split(options: Any) -> tuple[LoadSettings, Any]:
    own: Any = {name: value for name, value in options.items() if name in LoadSettings.__annotations__}
    return own, {name: value for name, value in options.items() if name not in own}


def run(
    program: Program | str | Path, inputs: Mapping[str, Any] | None = None, **options: Unpack[LoadAndRunSettings]
) -> Result:
    """Run a program, a file or a text; see `Program.run`."""
    own, rest = _split(options)
    return _program(program, own).run(inputs, **rest)


async def arun(
    program: Program | str | Path, inputs: Mapping[str, Any] | None = None, **options: Unpack[LoadAndRunSettings]
) -> Result:
    """As `run`."""
    own, rest = _split(options)
    return await _program(program, own).arun(inputs, **rest)


def stream(
    program: Program | str | Path, inputs: Mapping[str, Any] | None = None, **options: Unpack[LoadAndRunSettings]
) -> AbstractContextManager[SyncStream]:
    """Stream a program, a file or a text; see `Program.stream`."""
    own, rest = _split(options)
    return _program(program, own).stream(inputs, **rest)


def batch(program: Program | str | Path, rows: Rows, **options: Unpack[LoadAndBatchSettings]) -> Iterator[RowResult]:
    """Run a program, a file or a text over rows; see `Program.batch`."""
    own, rest = _split(options)
    return _program(program, own).batch(rows, **rest)

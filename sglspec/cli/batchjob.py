"""One `sglspec batch`, from the document to the exit code."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sglspec import backends
from sglspec.analysis.program import Program
from sglspec.backends import Backend
from sglspec.backends.switches import split_switches
from sglspec.batches import Batch, BatchOptions, Columns, Measured, NotAJournal, RawRow, RowResult, read_rows
from sglspec.batches.rows import count_rows, head_of, json_lines
from sglspec.cli.columns import NamedColumns
from sglspec.cli.complain import Refused, Texts
from sglspec.cli.documents import load
from sglspec.cli.exits import FAULT, INTERRUPTED, NO, OK, USAGE, backend_code
from sglspec.cli.fault import report_fault
from sglspec.cli.inputs import read_settings
from sglspec.cli.interrupt import Interrupts
from sglspec.cli.job import close
from sglspec.cli.live import StatusLine
from sglspec.cli.options import host_tools, wrong
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import note, output, printable, put, to_json
from sglspec.diagnostics import SpecError
from sglspec.tools import Tools


@dataclass(frozen=True, slots=True)
class BatchJob:
    """The options of one batch."""

    spec: str
    rows: str
    mapping: tuple[str, ...]
    keep: tuple[str, ...]
    inputs: tuple[str, ...]
    settings: tuple[str, ...]
    examples: tuple[str, int, Path] | None
    options: BatchOptions
    backend: str | None
    model: str | None
    engine: tuple[str, ...]
    tools: tuple[str, ...]
    servers: tuple[str, ...]
    json: bool
    roots: tuple[Path, ...] = ()


def perform(job: BatchJob) -> int:
    """Run, write, and return the exit code."""
    texts, stdin = Texts(), StandardInput()
    try:
        engine = _engine(job)
        with host_tools(job.tools, job.servers) as tools:
            # a script answers for tools that are not here
            offered = None if (job.backend or "").startswith("scripted") else tools
            program = load(job.spec, stdin, texts, offered, job.roots)
            bound = read_settings(program, job.inputs, job.settings, stdin, texts)
            columns = _columns(job, program, bound)
            _check_metrics(job, program)
            named = _named_columns(job)
            with Interrupts() as interrupts:
                batch = _Batch(job, program, columns, tools, engine, texts, named)
                try:
                    return asyncio.run(batch.run(named.watched(_raw_rows(job, stdin)), interrupts))
                except asyncio.CancelledError:
                    going_on = "; the same command goes on" if job.options.output is not None else ""
                    batch.say(f"stopped{going_on}")
                    return interrupts.code or INTERRUPTED
    except NotAJournal as problem:
        raise wrong(f"{str(job.options.output)!r} cannot be gone on with: {problem}.", "--output") from None
    except Refused as refusal:
        texts.complain(refusal.diagnostics)
        return refusal.code


def _engine(job: BatchJob) -> dict[str, Any]:
    try:
        return backends.check_engine(job.backend, split_switches(job.engine))
    except SpecError as error:
        raise Refused(backend_code(error.diagnostics), error.diagnostics) from None


def _columns(job: BatchJob, program: Program, bound: dict[str, Any]) -> Columns:
    columns = Columns(program.inputs, bound, _mapping(job, program, bound), job.keep)
    if job.examples is None:
        return columns
    name, count, file = job.examples
    try:
        return columns.with_examples(name, count, read_rows(file), job.options.seed, str(file))
    except SpecError as error:
        raise Refused(USAGE, error.diagnostics) from None


def _check_metrics(job: BatchJob, program: Program) -> None:
    outputs = program.spec.outputs
    known = [target.name for target in outputs.names] if outputs is not None else list(program.bindable)
    for metric in job.options.metrics.metrics if job.options.metrics is not None else ():
        name = metric.output.split(".")[0]
        if name not in known:
            raise wrong(f"The program has no output `{name}`; it has {', '.join(known) or 'none'}.", "--metric")


def _named_columns(job: BatchJob) -> NamedColumns:
    """The columns that options name, those of a file with a head looked up in it."""
    metrics = job.options.metrics
    named = [("--map", item.partition("=")[2]) for item in job.mapping]
    named += [("--keep", column) for column in job.keep]
    if metrics is not None:
        named += [("--metric", one.column) for one in metrics.metrics if one.column is not None]
        named += [("--by", column) for column in metrics.by]
    columns = NamedColumns(named)
    try:
        head = head_of(Path(job.rows)) if job.rows != "-" else None
    except SpecError as error:
        raise Refused(USAGE, error.diagnostics) from None
    if head is not None:
        columns.check(head)
    return columns


def _mapping(job: BatchJob, program: Program, bound: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in job.mapping:
        name, equals, column = item.partition("=")
        if not equals or not name or not column:
            raise wrong(f"{item!r} is not of the form INPUT=COLUMN.", "--map")
        if name not in program.inputs:
            raise wrong(f"The program has no input `{name}`.", "--map")
        if name in bound:
            raise wrong(f"The input `{name}` has a value for all rows already.", "--map")
        found[name] = column
    return found


def _raw_rows(job: BatchJob, stdin: StandardInput) -> Iterator[RawRow]:
    if job.rows == "-":
        return json_lines(stdin.open("ROWS"), StandardInput.NAME)
    return read_rows(Path(job.rows))


def _total(job: BatchJob) -> int | None:
    """How many rows the batch has; None where that is not known beforehand."""
    options = job.options
    if job.rows == "-" or options.shard != (1, 1):
        return None
    found = count_rows(Path(job.rows))
    return found if found is None or options.limit is None else min(found, options.limit)


class _Batch:
    def __init__(
        self,
        job: BatchJob,
        program: Program,
        columns: Columns,
        tools: Tools,
        engine: dict[str, Any],
        texts: Texts,
        named: NamedColumns,
    ) -> None:
        self._named = named
        self._job = job
        self._program = program
        self._batch = Batch(program, columns, job.options, tools)
        self._engine = engine
        self._texts = texts
        self._status = StatusLine(sys.stderr)
        self._began = 0.0
        self._total: int | None = None
        self._ran = 0
        self._failed = 0
        self._fault: Exception | None = None

    @property
    def _all_failed(self) -> int:
        return self._failed + self._batch.kept_failed

    async def run(self, raw: Iterator[RawRow], interrupts: Interrupts) -> int:
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            task.cancel()

        try:
            backend = await self._open()
        finally:
            self._status.clear()
        try:
            with interrupts.cancelling(stop):
                self._begin()
                async with aclosing(self._batch.results(raw, backend)) as results:
                    async for result in results:
                        self._take(result)
        except SpecError as error:  # the file of rows
            raise Refused(USAGE, error.diagnostics) from None
        except OSError as error:
            message = f"{str(self._job.options.output)!r} cannot be written: {error.strerror}."
            raise wrong(message, "--output") from None
        finally:
            self._status.clear()
            await close(backend)
        return self._end()

    async def _open(self) -> Backend:
        model = self._job.model or self._program.spec.model
        if (self._job.backend or "local") == "local":
            self._status.show(f"loading {model or backends.DEFAULT_MODEL} …")
        try:
            return await backends.open_backend(self._job.backend, model, self._engine)
        except SpecError as error:
            raise Refused(backend_code(error.diagnostics), error.diagnostics) from None

    def _take(self, result: RowResult) -> None:
        if self._job.options.output is None:
            if output().isatty():
                self._status.clear()
            put(to_json(result.as_dict(), indent=None))
        self._ran += 1
        if result.status != "succeeded":
            if not self._failed and result.error is not None:
                self._status.clear()
                note(f"sglspec: row {result.row}, the first that failed:")
                self._texts.complain([result.error])
            self._failed += 1
            self._fault = self._fault or result.fault
        if self._status.due:
            self._show_progress()

    def _begin(self) -> None:
        self._began = time.monotonic()
        if self._status.active:
            self._total = _total(self._job)
            self._show_progress()

    def _show_progress(self) -> None:
        """How many rows have a result, those from before included; the rate is that of this start."""
        kept = self._batch.kept
        parts = [f"{self._ran + kept:,}{'' if self._total is None else f'/{self._total:,}'} rows"]
        parts += [f"{kept:,} of them from before"] if kept else []
        parts += [f"{self._all_failed:,} failed"] if self._all_failed else []
        parts += [f"{self._ran / (time.monotonic() - self._began):.3g} rows/s"] if self._ran else []
        self._status.show(f"{', '.join(parts)} …")

    def _end(self) -> int:
        if self._fault is not None:
            report_fault(self._fault)
        self.say(self._why_stopped() if self._batch.stopped else "")
        for line in (*self._named.warnings(), *self._no_numbers()):
            note(f"sglspec: warning: {line}")
        return FAULT if self._fault is not None else NO if self._all_failed else OK

    def _no_numbers(self) -> Iterator[str]:
        """For means of outputs that are never a number, though some rows succeeded."""
        metrics = self._job.options.metrics
        if metrics is None or self._ran + self._batch.kept <= self._all_failed:
            return
        for one in metrics.results():
            if one.metric.startswith("mean:") and not one.by and one.value is None:
                yield f"--metric {one.metric}: It is a number in no row."

    def _why_stopped(self) -> str:
        allowed = self._job.options.errors_allowed
        return f"stopped: more than {allowed:,} failed" if allowed else "stopped by a row that failed"

    def say(self, remark: str) -> None:
        """The last line."""
        kept = self._batch.kept
        total = self._ran + kept
        parts = [f"{total:,} row{'' if total == 1 else 's'}"]
        parts += [f"{kept:,} of them from before"] if kept else []
        parts += [f"{self._all_failed:,} failed"] if self._all_failed else []
        parts += [remark] if remark else []
        note(f"sglspec: {', '.join(parts)}")
        metrics = self._job.options.metrics.results() if self._job.options.metrics is not None else []
        for line in _lines(metrics):
            note(line)
        if self._job.json:
            counts = {"rows": total, "from_before": kept, "failed": self._all_failed}
            put(to_json(counts | {"metrics": [one.as_dict() for one in metrics]}))


_GROUPS = 20
"""Groups of a metric that are printed."""


def _lines(metrics: list[Measured]) -> Iterator[str]:
    """Metrics for people: each over all rows, and some of its groups below."""
    groups = 0
    for one, following in zip_longest(metrics, metrics[1:]):
        groups = groups + 1 if one.by else 0
        if groups <= _GROUPS:
            value = "none" if one.value is None else f"{one.value:.4g}"
            choice = f" {to_json(one.choice, indent=None)}" if one.choice is not None else ""
            left = f", {one.left_out:,} left out" if one.left_out else ""
            name = "  " + ", ".join(f"{k}={v}" for k, v in one.by.items()) if one.by else one.metric
            yield printable(f"{name} {value}{choice} ({one.rows:,} row{'' if one.rows == 1 else 's'}{left})")
        elif following is None or not following.by:
            yield f"  … and {groups - _GROUPS:,} more groups; --json prints all"

"""One batch, from raw rows to results, and to the file that they are written to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sglspec.analysis.program import Program
from sglspec.backends.base import Backend
from sglspec.batches.columns import Columns
from sglspec.batches.journal import Journal
from sglspec.batches.options import BatchOptions
from sglspec.batches.rows import RawRow
from sglspec.batches.run import RowResult, RowRunner
from sglspec.batches.source import Row, RowSource, tools_digest
from sglspec.tools import Tools


class Batch:
    """Runs once. kept, kept_failed: rows that were in the output before, and those of them that had not succeeded;
    stopped: more rows failed than are allowed."""

    def __init__(self, program: Program, columns: Columns, options: BatchOptions, tools: Tools | None = None) -> None:
        """tools: what the host offers, as for a run."""
        self._program = program
        self._columns = columns
        self._options = options
        self._tools = tools
        self._journal: Journal | None = None
        self._measured: dict[int, Mapping[str, Any]] = {}
        self.stopped = False

    @property
    def kept(self) -> int:
        return self._journal.kept if self._journal is not None else 0

    @property
    def kept_failed(self) -> int:
        return self._journal.kept_failed if self._journal is not None else 0

    async def results(self, raw: Iterable[RawRow], backend: Backend) -> AsyncGenerator[RowResult, None]:
        """Run the rows that are not in the output yet, and give their results. Close the generator to stop.

        Raises SpecError for a file of rows that cannot be read, NotAJournal and OSError for the output.
        """
        options = self._options
        # a script answers for tools
        tools = tools_digest(self._program, self._tools) if backend.capabilities.tools else ""
        source = RowSource(self._program, self._columns, (backend.model_name, tools), options)
        rows = self._noted(source.rows(raw))
        if options.output is None:
            runner = RowRunner(self._program, backend, options, self._tools)
            async with aclosing(runner.run(rows)) as results:
                async for result in results:
                    self._count(result)
                    yield result
            self.stopped = runner.stopped
            return
        # results are written as they come: none is lost that was computed
        runner = RowRunner(self._program, backend, replace(options, order="completed"), self._tools)
        with Journal(options.output, options.runs_failed_again, options.fresh) as journal:
            self._journal = journal
            left = journal.left(rows, self._count_done if options.metrics is not None else None)
            async with aclosing(runner.run(left, lambda: journal.kept_failed)) as results:
                async for result in results:
                    journal.append(result.as_dict())
                    self._count(result)
                    yield result
            self.stopped = runner.stopped
            if not self.stopped:
                journal.finish(options.order == "input", options.partial)

    def _noted(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Remember what metrics read of the rows that run."""
        for row in rows:
            if self._options.metrics is not None:
                self._measured[row.number] = row.measured
            yield row

    def _count(self, result: RowResult) -> None:
        if (metrics := self._options.metrics) is not None:
            columns = self._measured.pop(result.row)
            metrics.add(result.row, result.status == "succeeded", result.outputs, columns)

    def _count_done(self, row: Row, record: dict[str, Any]) -> None:
        if (metrics := self._options.metrics) is not None:
            columns = self._measured.pop(row.number)
            metrics.add(row.number, record["status"] == "succeeded", record["outputs"], columns)

"""A program over many rows: reading them, running them, and an output that a next start goes on with.

The package is not named `batch`, because `sglspec.batch` is the function.
"""

from sglspec.batches.journal import Journal, NotAJournal
from sglspec.batches.rows import Columns, RawRow, given_rows, read_rows
from sglspec.batches.run import CONCURRENCY, BatchOptions, OnError, Order, Row, RowResult, RowSource, run_rows

__all__ = [
    "CONCURRENCY",
    "BatchOptions",
    "Columns",
    "Journal",
    "NotAJournal",
    "OnError",
    "Order",
    "RawRow",
    "Row",
    "RowResult",
    "RowSource",
    "given_rows",
    "read_rows",
    "run_rows",
]

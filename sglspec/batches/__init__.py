"""A program over many rows: reading them, running them, and an output that a next start goes on with.

The package is not named `batch`, because `sglspec.batch` is the function.
"""

from sglspec.batches.batch import Batch
from sglspec.batches.columns import Columns
from sglspec.batches.journal import NotAJournal
from sglspec.batches.metrics import Measured, Metrics
from sglspec.batches.options import CONCURRENCY, BatchOptions, OnError, Order
from sglspec.batches.rows import RawRow, given_rows, read_rows
from sglspec.batches.run import RowResult

__all__ = [
    "CONCURRENCY",
    "Batch",
    "BatchOptions",
    "Columns",
    "Measured",
    "Metrics",
    "NotAJournal",
    "OnError",
    "Order",
    "RawRow",
    "RowResult",
    "given_rows",
    "read_rows",
]

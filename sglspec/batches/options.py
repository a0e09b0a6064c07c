"""What a batch is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sglspec.batches.metrics import Metrics

CONCURRENCY = 32
"""Rows at a time. The local engine lets in those that it has memory for, and more rows than this bring a CPU nothing:
a step then holds all the tokens that pay."""

Order = Literal["input", "completed"]
OnError = Literal["collect", "fail_fast"]


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """concurrency: rows at a time at most; order: of the results; on_error: "fail_fast" ends the batch with the first
    row that does not succeed; max_errors: the batch ends with the first one after so many.

    limit: of how many rows; shard: which part of how many, (1, 1) for all. output: a file that results are appended to
    and that a next start goes on with; fresh: what is in it is thrown away first; retry_failed: rows in it that did not
    succeed are run again. seed: what the seeds of all rows come from. metrics: what to count.
    """

    concurrency: int = CONCURRENCY
    order: Order = "input"
    on_error: OnError = "collect"
    max_errors: int | None = None
    limit: int | None = None
    shard: tuple[int, int] = (1, 1)
    output: Path | None = None
    fresh: bool = False
    retry_failed: bool = False
    seed: int = 0
    metrics: Metrics | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for numbers that no batch can have."""
        part, parts = self.shard
        if not 1 <= part <= parts:
            raise ValueError("shard is a part from 1 to the number of parts")
        if self.concurrency < 1:
            raise ValueError("concurrency is at least 1")
        if min(self.limit or 0, self.max_errors or 0) < 0:
            raise ValueError("limit and max_errors are not negative")

    @property
    def errors_allowed(self) -> int | None:
        """How many rows may fail before the batch ends; None for any number."""
        return 0 if self.on_error == "fail_fast" else self.max_errors

    @property
    def runs_failed_again(self) -> bool:
        """A batch that ends with the first failure would never get past one that stays."""
        return self.retry_failed or self.on_error == "fail_fast"

    @property
    def partial(self) -> bool:
        """Whether the rows that are run may be some of the file's only."""
        return self.limit is not None or self.shard != (1, 1)

"""Rows of a table under one few-shot prefix."""

from __future__ import annotations

from benchmarks.workloads.base import Generation, Texts, Workload, common


class Prefix(Workload):
    """What is gained where requests arrive together and turn out to begin alike."""

    name = "prefix32"
    title = "32 rows over a shared 1,000-token prefix, 40 own tokens, 8 new tokens each"

    def case(self, texts: Texts, variant: int, quick: bool) -> Generation:
        """See `Workload.case`."""
        length, rows = (300, 8) if quick else (1000, 32)
        prefix = texts.exactly(length, f"{variant}. Examples of short notes.")
        found = tuple(texts.exactly(length + 40, f"{prefix}\n\nNote number {i}:") for i in range(rows))
        prompts = tuple(map(texts.ids, found))
        return Generation(found, prompts, 8, common(prompts), 8 * rows)

"""One stream."""

from __future__ import annotations

from benchmarks.workloads.base import Generation, Texts, Workload


class Single(Workload):
    """How fast one continuation comes."""

    name = "single"
    title = "one stream, 50-token prompt, 128 new tokens"
    unit = "tok/s"

    def case(self, texts: Texts, variant: int, quick: bool) -> Generation:
        """See `Workload.case`."""
        text = texts.exactly(50, f"{variant}. A story about a harbour.")
        new = 32 if quick else 128
        return Generation((text,), (texts.ids(text),), new, tokens=new)

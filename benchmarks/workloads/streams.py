"""Many distinct streams at once."""

from __future__ import annotations

from benchmarks.workloads.base import Generation, Texts, Workload


class Streams(Workload):
    """What batching brings where nothing is shared."""

    unit = "tok/s"

    def __init__(self, count: int) -> None:
        self.count = count
        self.name = f"streams{count}"
        self.title = f"{count} distinct streams, 50-token prompts, 64 new tokens each"

    def case(self, texts: Texts, variant: int, quick: bool) -> Generation:
        """See `Workload.case`."""
        found = tuple(texts.exactly(50, f"{variant}. Volume {i} of the stories:") for i in range(self.count))
        new = 16 if quick else 64
        return Generation(found, tuple(map(texts.ids, found)), new, tokens=new * self.count)

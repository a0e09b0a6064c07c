"""Reading a long prompt."""

from __future__ import annotations

from benchmarks.workloads.base import Generation, Texts, Workload


class Prefill(Workload):
    """How fast a prompt is read that nobody has read before."""

    name = "prefill"
    title = "prefill of a cold 1,500-token prompt, 1 new token"
    unit = "tok/s"

    def case(self, texts: Texts, variant: int, quick: bool) -> Generation:
        """See `Workload.case`."""
        length = 400 if quick else 1500
        text = texts.exactly(length, f"{variant}. A long report.")
        return Generation((text,), (texts.ids(text),), 1, tokens=length)

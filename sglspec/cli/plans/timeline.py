"""A run as trace events, which Perfetto and Chrome's `about:tracing` open.

The format is the JSON object form of "Trace Event Format" (Google): complete events ("X") on one track for each branch,
flow events ("s", "f") from where branches and calls begin to their own tracks, and metadata ("M") that names tracks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglspec.runtime.profile import Span

PROCESS = 1
NAMES = {"gen": "generation", "select": "selection", "run": "run", "branch": "branch", "call": "call"}


def trace_events(program: str, spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Events in order of time; times are whole microseconds since the first thing that happened."""
    start = min((span.began for span in spans), default=0.0)
    tracks = sorted({span.track for span in spans}, key=_order)
    ids = {track: at for at, track in enumerate(tracks, 1)}
    events = [_complete(span, ids[span.track], start) for span in spans]
    events += _flows(spans, ids, start)
    # of events at one time the longer ones first, and a flow after what it belongs to
    events.sort(key=lambda event: (event["ts"], -event.get("dur", 0), event["ph"] != "X"))
    named = [_meta("process_name", 0, {"name": program})]
    for track, id in ids.items():
        named += [_meta("thread_name", id, {"name": _title(track)}), _meta("thread_sort_index", id, {"sort_index": id})]
    return named + events


def _complete(span: Span, track: int, start: float) -> dict[str, Any]:
    begin, end = _micros(span.began, start), _micros(span.ended, start)
    name = f"{NAMES.get(span.kind, span.kind)} {span.name}".rstrip()
    place = {"pid": PROCESS, "tid": track, "ts": begin, "dur": end - begin}
    return {"name": name, "cat": span.kind, "ph": "X", **place, "args": dict(span.data)}


def _flows(spans: Sequence[Span], ids: dict[str, int], start: float) -> list[dict[str, Any]]:
    """Arrows from a line to those that it started."""
    found: list[dict[str, Any]] = []
    for number, span in enumerate(span for span in spans if span.kind in ("branch", "call")):
        parent = _parent(span.track)
        if parent not in ids:
            continue
        at = _micros(span.began, start)
        common = {"name": "starts", "cat": "flow", "id": number, "pid": PROCESS, "ts": at}
        found += [
            {**common, "ph": "s", "tid": ids[parent]},
            {**common, "ph": "f", "bp": "e", "tid": ids[span.track]},
        ]
    return found


def _parent(track: str) -> str:
    """The line that a branch was started from: that of "3.1/1.0" is "3.1"."""
    return track.rpartition("/")[0]


def _meta(kind: str, track: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": track, "args": args}


def _micros(seconds: float, start: float) -> int:
    return int((seconds - start) * 1e6)


def _title(track: str) -> str:
    if track.startswith("compile"):
        return "constraints"
    path, _, beside = track.partition("~")
    return (path or "main") + (f", text {int(beside) + 1}" if beside else "")


def _order(track: str) -> tuple[bool, list[int], str]:
    """The main line, then branches by their numbers, then what is compiled."""
    return (track.startswith("compile"), [int(part) for part in re.findall(r"\d+", track)], track)


__all__ = ["trace_events"]

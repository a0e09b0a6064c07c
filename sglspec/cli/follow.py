"""The events of a run as a server streams them, gone on with when the connection breaks."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any

from sglspec.cli.exits import UNAVAILABLE
from sglspec.cli.refusal import mapping, read_json, refusal, refused
from sglspec.cli.remote import Remote
from sglspec.cli.streams import note, require_reader

ENDS = frozenset({"run.succeeded", "run.failed", "run.cancelled", "run.expired", "run.aborted"})
TRIES = 5
"""Connections without a single event before it is given up."""
PAUSE = 2.0
"""Seconds before the next one, unless the stream says otherwise."""

_MAX_LINE = 32_000_000
_MAX_PAUSE = 30.0


@dataclass(slots=True)
class Follower:
    """One run's events. seen: the number of the last event that was read, -1 for none."""

    place: Remote
    run: str
    seen: int = -1
    _pause: float = PAUSE

    def events(self) -> Iterator[dict[str, Any]]:
        """Each event once, in order, the terminal one last. Raises Refused."""
        failures, over = 0, False
        while True:
            before = self.seen
            broken: Exception | None = None
            try:
                for event in self._once():
                    yield event
                    if event.get("type") in ENDS:
                        return
            except (OSError, HTTPException) as error:
                broken = error
            if over and self.seen == before and broken is None:  # all of them were read before
                return
            over = self._has_ended() if broken is None else False
            failures = 1 if self.seen > before else failures + 1
            if failures >= TRIES or (before < 0 and self.seen < 0 and broken is not None):
                raise self._given_up(broken)
            if not over:
                note("sglspec: the connection broke, going on")
                time.sleep(self._pause)

    def _has_ended(self) -> bool:
        return self.place.json("GET", f"/v1/runs/{self.run}").get("status") not in ("queued", "running")

    def _given_up(self, error: Exception | None) -> Exception:
        if error is not None:
            return self.place.unreachable(error)
        return refused(UNAVAILABLE, "The stream of events ends again and again before the run does.")

    def _once(self) -> Generator[dict[str, Any]]:
        """What one connection brings. Raises OSError, HTTPException, Refused."""
        headers = {"Accept": "text/event-stream"}
        if self.seen >= 0:
            headers["Last-Event-ID"] = str(self.seen)
        with self.place.connection() as connection:
            answer = self.place.send(connection, "GET", f"/v1/runs/{self.run}/events", headers)
            if answer.status in (429, 502, 503, 504) and self.seen >= 0:  # it is being started again
                return
            if answer.status != 200:
                raise refusal(answer.status, answer.read(100_000), answer.headers.get("Location"))
            if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                raise refused(UNAVAILABLE, "The server's answer is not that of a server of sglspec.")
            yield from self._read(answer)

    def _read(self, answer: HTTPResponse) -> Generator[dict[str, Any]]:
        number, data = -1, list[bytes]()
        while line := answer.readline(_MAX_LINE):
            if not line.endswith(b"\n"):  # cut off, or longer than any event
                return
            name, _, value = line.rstrip(b"\r\n").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"id" and re.fullmatch(rb"[0-9]{1,15}", value):
                number = int(value)
            elif name == b"data":
                data.append(value)
            elif name == b"retry" and re.fullmatch(rb"[0-9]{1,6}", value):
                self._pause = min(int(value) / 1000, _MAX_PAUSE)
            elif name == b"":  # the end of an event, or a comment that says that the server is there
                event = mapping(read_json(b"\n".join(data))) if data else {}
                data = [] if line in (b"\n", b"\r\n") else data
                if not event:
                    require_reader(sys.stdout)
                elif not data and number > self.seen:
                    self.seen = number
                    yield event

"""A run as it happens, for people: prompt and generation told apart, roles as headings, branches as boxes.

The main line is printed as it comes. Branches run at the same time, so each is shown when it and those before it are
done: a box for each, in their order. Until the last one the main line waits, and a line on standard error says how
many are done. So what is shown is always in the order of the document.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from sglspec.cli.painter import DIM, Canvas, Painter, inside, paint
from sglspec.cli.streams import printable, require_reader, to_json, wants_color, width_of

if TYPE_CHECKING:
    from sglspec.runtime.events import Event
    from sglspec.runtime.result import Result

_REDRAW = 0.1
"""Seconds between two drawings of the status line."""
_LONGEST_ITEM = 60
"""Characters of a branch's item in its title."""


class StatusLine:
    """One line on standard error that is drawn over; nothing where nobody looks."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._active = wants_color(stream)
        self._shown = False
        self._drawn = 0.0

    @property
    def active(self) -> bool:
        """Whether anybody looks."""
        return self._active

    @property
    def due(self) -> bool:
        return self._active and time.monotonic() - self._drawn >= _REDRAW

    def show(self, text: str) -> None:
        if self._active:
            self._write(f"\r\x1b[2K\x1b[2m{printable(text)}\x1b[0m")
            self._shown, self._drawn = True, time.monotonic()

    def clear(self) -> None:
        if self._shown:
            self._write("\r\x1b[2K")
            self._shown = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # nobody can see it any more
            self._active = False


@dataclass(slots=True)
class _Fork:
    """A fork, or a call, at its place in a line. `branches` are those that have started, by their index; `shown` counts
    those that have their box."""

    width: int
    shown: int = 0
    branches: dict[int, _Line] = field(default_factory=dict[int, "_Line"])

    def ready(self) -> bool:
        """Whether the next branch can be shown."""
        line = self.branches.get(self.shown)
        return line is not None and line.done


@dataclass(slots=True)
class _Line:
    """A branch, a called program or the main line: what it has done and what has not been shown of it."""

    title: str = ""
    waiting: deque[Event | _Fork] = field(default_factory=deque["Event | _Fork"])
    remark: str = "not finished"
    done: bool = False


class Live:
    """Listens to the events of one run."""

    def __init__(self, out: IO[str], status: StatusLine, color: bool) -> None:
        self._out = out
        self._status = status
        self._painter = Painter(paint(out, color))
        self._main = _Line()
        self._lines: dict[str, _Line] = {"": self._main}
        self._forks: dict[str, _Fork] = {}
        self._current = ""
        self._last = ""

    def __call__(self, event: Event) -> None:
        self._file(event)
        while self._main.waiting:
            first = self._main.waiting[0]
            if isinstance(first, _Fork):
                self._show_ready(first)
                if first.shown < first.width:
                    break
                self._main.waiting.popleft()
            else:
                self._show(self._main.waiting.popleft())
        self._draw()
        self._out.flush()

    def finish(self, result: Result) -> None:
        """After the last event: branches that were cut off, and the outputs."""
        self._status.clear()
        while self._main.waiting:
            self._show(self._main.waiting.popleft())
        self._painter.fresh_line()
        known = result.status == "succeeded" or any(value is not None for value in result.outputs.values())
        if result.outputs and known and not self._seen(result.outputs):
            self._painter.heading("outputs")
            self._painter.put(to_json(result.outputs) + "\n")
        self._out.flush()

    def _seen(self, outputs: dict[str, Any]) -> bool:
        """Whether the only output is the text that was generated last, right above."""
        values = list(outputs.values())
        return len(values) == 1 and isinstance(values[0], str) and values[0].strip() == self._last.strip()

    def _file(self, event: Event) -> None:
        """Put an event where it belongs."""
        line = self._lines.get(event.branch)
        match event.type:
            case "fork.opened":
                if line is not None and event.data["width"]:
                    fork = self._forks[event.data["fork"]] = _Fork(event.data["width"])
                    line.waiting.append(fork)
            case "branch.started":
                of, _, index = event.branch.rpartition(".")
                if of in self._forks:
                    fork = self._forks[of]
                    line = _Line(_title(int(index), fork.width, event))
                    fork.branches[int(index)] = self._lines[event.branch] = line
            case "call.started":
                if line is not None:
                    called = _Line(f"call {event.data['program']}")
                    fork = self._forks[event.data["path"]] = _Fork(1, branches={0: called})
                    self._lines[event.data["path"]] = called
                    line.waiting.append(fork)
            case "branch.finished" | "call.finished":
                ended = self._lines.get(event.data.get("path", event.branch))
                if ended is not None:
                    error = event.data.get("error")
                    ended.done, ended.remark = True, f"failed: {error['message']}" if error else ""
            case _:
                if line is not None:
                    line.waiting.append(event)

    def _show_ready(self, fork: _Fork) -> None:
        """Print the branches whose turn it is."""
        while fork.ready():
            self._status.clear()
            _paint_branch(self._painter, fork.branches[fork.shown], width_of(self._out))
            fork.shown += 1

    def _show(self, item: Event | _Fork) -> None:
        """Print something of the main line."""
        if isinstance(item, _Fork):
            self._status.clear()
            _paint_fork(self._painter, item, width_of(self._out))
            return
        match item.type:
            case "text" | "selected" | "message.opened":
                self._status.clear()
            case "thinking":
                self._status.show("thinking …")
            case "delta":
                self._status.clear()
                self._current += item.data["text"]
            case "generated":
                self._last, self._current = self._current, ""
            case _:
                pass
        if item.type == "selected":
            self._last = item.data["text"]
        _paint(self._painter, item)

    def _draw(self) -> None:
        """The status line, while branches run."""
        if not self._main.waiting:
            return
        require_reader(self._out)
        if not self._status.due:
            return
        self._painter.fresh_line()
        self._out.flush()
        done = sum(line.done for line in self._lines.values())
        self._status.show(f"{done} of {sum(fork.width for fork in self._forks.values())} branches done …")


def _title(index: int, width: int, event: Event) -> str:
    """ "branch 2 of 3: originality": the name of the branch, or the item it is for."""
    what = event.data.get("name")
    if what is None:
        what = event.data.get("item")
    title = f"branch {index + 1} of {width}"
    if what is None:
        return title
    text = " ".join((what if isinstance(what, str) else to_json(what, indent=None)).split())
    if len(text) > _LONGEST_ITEM:
        text = text[: _LONGEST_ITEM - 1].rstrip() + "…"
    return f"{title}: {text}" if text else title


def _paint_fork(painter: Painter, fork: _Fork, room: int | None) -> None:
    """What is left of a fork: a box for every branch that has something to show."""
    for index, line in sorted(fork.branches.items()):
        if index >= fork.shown and (line.waiting or line.done):
            _paint_branch(painter, line, room)


def _paint_branch(painter: Painter, line: _Line, room: int | None) -> None:
    """A branch as a box, with the forks inside of it as boxes in it."""
    canvas = Canvas()
    inner = Painter(canvas)
    for item in line.waiting:
        if isinstance(item, _Fork):
            _paint_fork(inner, item, None if room is None else inside(room))
        else:
            _paint(inner, item)
    painter.box(line.title, canvas.cells, room, line.remark)


def _paint(painter: Painter, event: Event) -> None:
    """What an event adds to the text of its line."""
    match event.type:
        case "message.opened":
            painter.heading(event.data["role"])
        case "message.closed":
            painter.fresh_line()
        case "text" if event.data.get("joined"):
            return  # the branches' own boxes have shown it
        case "text":
            painter.put(event.data["text"], None if event.data.get("origin") == "generated" else DIM)
        case "delta" | "selected":
            painter.put(event.data["text"])
        case _:
            return

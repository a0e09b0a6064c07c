"""A run as it happens, for people: prompt and generation told apart, roles as headings, branches as blocks.

Branches run at the same time, so their text is held back until a branch is done; a line on standard error says how
many are. The main line is printed as it comes, blocks only between its generations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from sglspec.cli.streams import printable, to_json, wants_color

if TYPE_CHECKING:
    from sglspec.runtime.events import Event
    from sglspec.runtime.result import Result

_BOLD, _DIM, _RED = "1", "2", "31"
_REDRAW = 0.1
"""Seconds between two drawings of the status line."""


class StatusLine:
    """One line on standard error that is drawn over; nothing where nobody looks."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._active = wants_color(stream)
        self._shown = False
        self._drawn = 0.0

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


class Painter:
    """Writes text that knows whether it is at the start of a line. Colours end with each line."""

    def __init__(self, write: Callable[[str], object], color: bool) -> None:
        self._write = write
        self._color = color
        self._empty = True
        self._gap = False
        self.at_start = True

    def put(self, text: str, style: str | None = None) -> None:
        text = printable(text)
        if not text:
            return
        self._close_gap()
        self._write("\n".join(self._paint(line, style) for line in text.split("\n")))
        self._empty = False
        self.at_start = text.endswith("\n")

    def raw(self, line: str) -> None:
        """A line that was painted already, without its end."""
        self._close_gap()
        self._write(line)
        self._empty = False
        self.at_start = False

    def fresh_line(self) -> None:
        if not self.at_start:
            self.put("\n")

    def gap(self) -> None:
        """An empty line, if anything follows."""
        self.fresh_line()
        self._gap = not self._empty

    def heading(self, text: str) -> None:
        """A line of its own, with an empty one before it."""
        self.gap()
        self.put(text, _BOLD)
        self.put("\n")

    def _close_gap(self) -> None:
        if self._gap:
            self._write("\n")
            self._gap = False

    def _paint(self, line: str, style: str | None) -> str:
        return f"\x1b[{style}m{line}\x1b[0m" if self._color and style and line else line


@dataclass(slots=True)
class _Branch:
    """A branch's text until it can be printed."""

    label: str
    parts: list[str] = field(default_factory=list[str])
    painter: Painter = field(init=False)
    color: bool = False

    def __post_init__(self) -> None:
        self.painter = Painter(self.parts.append, self.color)


class Live:
    """Listens to the events of one run."""

    def __init__(self, out: IO[str], status: StatusLine, color: bool) -> None:
        self._out = out
        self._status = status
        self._color = color
        self._main = Painter(out.write, color)
        self._open: dict[str, _Branch] = {}
        self._held: list[tuple[_Branch, str]] = []
        self._widths: dict[str, int] = {}
        self._finished = 0
        self._busy = False
        self._current = ""
        self._last = ""

    def __call__(self, event: Event) -> None:
        if event.type == "fork.opened":
            self._widths[event.data["fork"]] = event.data["width"]
        elif event.branch:
            self._on_branch(event)
        else:
            self._on_main(event)
        if not self._busy:
            self._print_held()
        self._draw()
        self._out.flush()

    def finish(self, result: Result) -> None:
        """After the last event: branches that were cut off, and the outputs."""
        self._status.clear()
        self._busy = False
        self._held += [(branch, "not finished") for branch in self._open.values() if branch.parts]
        self._open.clear()
        self._print_held()
        self._main.fresh_line()
        known = result.status == "succeeded" or any(value is not None for value in result.outputs.values())
        if result.outputs and known and not self._seen(result.outputs):
            self._main.heading("outputs")
            self._main.put(to_json(result.outputs) + "\n")
        self._out.flush()

    def _seen(self, outputs: dict[str, Any]) -> bool:
        """Whether the only output is the text that was generated last, right above."""
        values = list(outputs.values())
        return len(values) == 1 and isinstance(values[0], str) and values[0].strip() == self._last.strip()

    def _on_main(self, event: Event) -> None:
        if event.type in ("text", "delta", "selected", "message.opened"):
            self._status.clear()
        if event.type == "delta":
            self._busy = True
            self._current += event.data["text"]
        elif event.type == "generated":
            self._busy = False
            self._last, self._current = self._current, ""
        elif event.type == "selected":
            self._last = event.data["text"]
        _paint(self._main, event)

    def _on_branch(self, event: Event) -> None:
        if event.type == "branch.started":
            self._open[event.branch] = _Branch(self._label(event), color=self._color)
            return
        branch = self._open.get(event.branch)
        if branch is None:
            return
        if event.type == "branch.finished":
            del self._open[event.branch]
            self._finished += 1
            error = event.data.get("error")
            self._held.append((branch, f"failed: {error['message']}" if error else ""))
        else:
            _paint(branch.painter, event)

    def _label(self, event: Event) -> str:
        """ "branch 2 of 3", inside "branch 1 of 2" where forks are nested."""
        parts: list[str] = []
        fork = ""
        for step in event.branch.split("/"):
            number, _, index = step.rpartition(".")
            fork = f"{fork}/{number}" if fork else number
            width = self._widths.get(fork)
            parts.append(f"{int(index) + 1} of {width}" if width else str(int(index) + 1))
            fork = f"{fork}.{index}"
        name = event.data.get("name")
        return "branch " + " › ".join(parts) + (f" · {name}" if name else "")

    def _print_held(self) -> None:
        if not self._held:
            return
        self._status.clear()
        for branch, remark in self._held:
            self._main.heading(f"┌ {branch.label}")
            text = "".join(branch.parts).strip("\n")
            for line in text.split("\n"):
                self._main.fresh_line()
                self._main.raw(f"│ {line}".rstrip())
            self._main.fresh_line()
            self._main.put("└", _BOLD)
            self._main.put(f" {remark}\n" if remark else "\n", _RED)
        self._held.clear()
        self._main.gap()

    def _draw(self) -> None:
        """The status line, only while branches run and the main line rests."""
        if not self._open or self._busy or not self._status.due:
            return
        self._main.fresh_line()
        self._out.flush()
        self._status.show(f"{self._finished} of {sum(self._widths.values())} branches done …")


def _paint(painter: Painter, event: Event) -> None:
    """What an event adds to the text of its line."""
    match event.type:
        case "message.opened":
            painter.heading(event.data["role"])
        case "message.closed":
            painter.fresh_line()
        case "text" if event.data.get("joined"):
            return  # the branches' own blocks have shown it
        case "text":
            painter.put(event.data["text"], None if event.data.get("origin") == "generated" else _DIM)
        case "delta" | "selected":
            painter.put(event.data["text"])
        case _:
            return

"""`sglspec run --server`: the run is on a server, what is shown of it is here."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sglspec.analysis import load_program
from sglspec.cli.bundle import DocumentBundle, read_bundle
from sglspec.cli.complain import Refused, Texts
from sglspec.cli.exits import INTERRUPTED, UNAVAILABLE, USAGE, document_code
from sglspec.cli.follow import Follower
from sglspec.cli.inputs import read_given, text_source
from sglspec.cli.interrupt import Interrupts
from sglspec.cli.job import refused_face
from sglspec.cli.live import Live, StatusLine
from sglspec.cli.names import is_reference
from sglspec.cli.refusal import diagnostics, mapping, refused
from sglspec.cli.remote import Remote, object_of
from sglspec.cli.run import Stream
from sglspec.cli.runs import ended_code
from sglspec.cli.stdin import StandardInput
from sglspec.cli.streams import note, outputs_text, printable, put, to_json, wants_color
from sglspec.diagnostics import Diagnostic, Report, SpecError
from sglspec.document.files import Bundle
from sglspec.runtime.events import Event
from sglspec.runtime.result import Result

if TYPE_CHECKING:
    from sglspec.document.model import Decl

_STOPPED = frozenset({"S705", "S706", "S714", "S718"})
"""What ends a run whose outputs so far are worth something."""
_MISSING = "Give it with `--set NAME=…`, or in a file with `--input`."
_HEAD = ("seq", "type", "time", "branch", "step", "run_id")


@dataclass(frozen=True, slots=True)
class Order:
    """The options of one run; see `sglspec.cli.job.Job`."""

    spec: str
    inputs: tuple[str, ...]
    settings: tuple[str, ...]
    json: bool
    stream: Stream | None
    seed: int | None
    roots: tuple[Path, ...]

    @property
    def mode(self) -> Stream:
        if self.stream is not None:
            return self.stream
        return Stream.text if sys.stdout.isatty() and not self.json else Stream.none


def perform_on(place: Remote, order: Order) -> int:
    """Run there, print here, and return the exit code."""
    texts, stdin = Texts(), StandardInput()
    try:
        with Interrupts() as interrupts:
            return _Performance(place, order, texts).run(stdin, interrupts)
    except Refused as refusal:
        if order.json:
            put(to_json(refused_face(refusal)))
        texts.complain(refusal.diagnostics)
        return refusal.code


class _Performance:
    def __init__(self, place: Remote, order: Order, texts: Texts) -> None:
        self._place = place
        self._order = order
        self._texts = texts
        self._names: Mapping[str, str] = {}
        self._status = StatusLine(sys.stderr)
        self._live = Live(sys.stdout, self._status, wants_color(sys.stdout)) if order.mode is Stream.text else None

    def run(self, stdin: StandardInput, interrupts: Interrupts) -> int:
        path, body = self._request(stdin)
        follower = Follower(self._place, self._begin(path, body))
        address = f"/v1/runs/{follower.run}"
        interrupts.last_words = lambda: note(f"sglspec: the run goes on: `sglspec runs cancel {follower.run}` ends it")
        try:
            with interrupts.raising():
                self._follow(follower)
        except KeyboardInterrupt:
            self._place.ask("POST", f"{address}/cancel")
            self._follow(follower)
        interrupts.last_words = None
        self._status.clear()
        result = self._place.json("GET", f"{address}/result")
        self._print(result)
        if interrupts.code is not None and result.get("status") == "cancelled":
            note(f"sglspec: {'interrupted' if interrupts.code == INTERRUPTED else 'terminated'}")
            return interrupts.code
        self._texts.complain(diagnostics([result.get("error")], self._names))
        return ended_code(result.get("status"), result.get("error"))

    def _request(self, stdin: StandardInput) -> tuple[str, dict[str, Any]]:
        """The address, and the body without what every run has. Raises Refused."""
        spec = self._order.spec
        if is_reference(spec):
            return f"/v1/programs/{spec}/runs", self._settings(self._declared(spec), stdin)
        bundle = read_bundle(spec, stdin, self._texts, self._order.roots)
        if bundle.program is None:
            raise Refused(document_code(bundle.found), bundle.found)
        self._names = bundle.names
        return "/v1/runs", self._settings(bundle.program.inputs, stdin) | _program(bundle)

    def _declared(self, reference: str) -> Mapping[str, Decl]:
        """The inputs of a stored program: what `--set` is read as. Not asked for where there is none."""
        if not self._order.settings:
            return {}
        bundle = self._place.json("GET", f"/v1/programs/{reference}/bundle")
        text, files = bundle.get("spec"), mapping(bundle.get("files"))
        if not isinstance(text, str) or not all(isinstance(file, str) for file in files.values()):
            raise refused(UNAVAILABLE, "The server's answer is not that of a server of sglspec.")
        name = reference.partition("@")[0]
        program = None
        with suppress(SpecError):
            source = text_source(text.encode("utf-8", "surrogatepass"), name)
            program = load_program(source, Report(name), files=Bundle(source, files))
        if program is None:
            help = "Give inputs with `--input FILE`: they are not looked at here."
            raise refused(UNAVAILABLE, f"This sglspec cannot read the program `{name}` of the server.", help)
        return program.inputs

    def _settings(self, declared: Mapping[str, Decl], stdin: StandardInput) -> dict[str, Any]:
        given, problems = read_given(declared, self._order.inputs, self._order.settings, stdin, self._texts)
        if problems:
            raise Refused(USAGE, problems)
        return {"inputs": given} | ({} if self._order.seed is None else {"seed": str(self._order.seed)})

    def _begin(self, path: str, body: dict[str, Any]) -> str:
        """Post the run. Its id."""
        self._status.show("waiting for the server …")
        try:
            _, answer = self._place.ask(
                "POST", path, headers={"Prefer": "respond-async"}, names=self._names,
                body=("application/json", to_json(body, indent=None).encode()),
            )  # fmt: skip
        except Refused as refusal:
            raise Refused(refusal.code, [_for_the_command_line(item) for item in refusal.diagnostics]) from None
        finally:
            self._status.clear()
        run = object_of(answer).get("id")
        if not isinstance(run, str) or not re.fullmatch("run_[0-9a-f]{28}", run):
            raise refused(UNAVAILABLE, "The server's answer is not that of a server of sglspec.")
        return run

    def _follow(self, follower: Follower) -> None:
        """Show what happens until the run has ended."""
        for event in follower.events():
            if self._order.mode is Stream.events:
                put(to_json(event, indent=None))
            elif self._live is not None:
                try:
                    self._live(_event(event))
                except (KeyError, TypeError, ValueError, AttributeError):
                    raise refused(UNAVAILABLE, "The server's events are not those of a server of sglspec.") from None

    def _print(self, face: dict[str, Any]) -> None:
        """The result, as `sglspec run` prints its own."""
        outputs = mapping(face.get("outputs"))
        if self._order.json:
            text = to_json(face)
            put(printable(text) if sys.stdout.isatty() else text)
        elif self._live is not None:
            self._live.finish(Result("succeeded" if face.get("status") == "succeeded" else "failed", outputs))
        elif self._order.mode is Stream.none and _worth_printing(face, outputs):
            text = outputs_text(outputs)
            put(printable(text) if sys.stdout.isatty() else text)


def _for_the_command_line(item: Diagnostic) -> Diagnostic:
    """The help of a missing input speaks of the request; here it is the command line."""
    return replace(item, help=_MISSING) if item.code == "S402" and item.range is None else item


def _program(bundle: DocumentBundle) -> dict[str, Any]:
    return {"spec": bundle.source.text} | ({"files": bundle.files} if bundle.files else {})


def _event(face: dict[str, Any]) -> Event:
    data = {name: value for name, value in face.items() if name not in _HEAD}
    return Event(int(face["seq"]), str(face["type"]), float(face["time"]), str(face["branch"]), data=data)


def _worth_printing(face: dict[str, Any], outputs: dict[str, Any]) -> bool:
    if face.get("status") == "succeeded":
        return True
    stopped = cast("Any", mapping(face.get("error")).get("code")) in _STOPPED
    return stopped and any(value is not None for value in outputs.values())

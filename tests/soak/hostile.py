"""Hostile constraints beside programs that stream: each is refused or written under soon, and nobody waits for it.

Usage: python -m tests.soak.hostile [--model NAME] [--streams 8] [--limit 2]

Each regular expression and schema is checked in a document of its own, beside the event loop as a server does, and run
where it is taken; then it comes as an input of a program that takes its constraint from there. Grammars go to the
engine as they are, most of which a check would refuse. Prints for each the time until it was refused or the first text
came, the time of all, the longest time that any stream was without new text meanwhile, and how it ended; the first line
is a constraint that is not hostile. Exits 1 where the first of these times is above --limit seconds. A tiny model
unless --model names another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglspec_engine.config import prepare_process

prepare_process()

from sglspec.analysis import Program, load_program  # noqa: E402 (torch reads the environment)
from sglspec.analysis.grammar import json_grammar  # noqa: E402
from sglspec.backends.local import LocalBackend, open_local  # noqa: E402
from sglspec.diagnostics import Report, SpecError  # noqa: E402
from sglspec.document.read import source_from_text  # noqa: E402
from sglspec.runtime.run import RunOptions, start  # noqa: E402
from sglspec_engine.types import EngineError, GenRequest, Sampling, TextSegment  # noqa: E402
from tests.engine import tiny  # noqa: E402

TOKENS = 64
"""Written under each constraint."""
STORY = {"sglspec": "v1", "steps": ["Once ", {"gen": "x", "max_tokens": 400, "ignore_eos": True, "temperature": 1.0}]}

REGEXES = {
    "repeated": "(a{1000}){1000}",
    "repeated thrice": "((a{100}){100}){100}",
    "states": "[ab]*a[ab]{13}",
    "states, repeated": "([ab]*a[ab]{13}){50}",
    "more states": "[ab]*a[ab]{2000}",
    "nested stars": "(a+)+b",
    "optional": "(a?){500}a{500}",
    "gaps": "(.*a.*b.*c.*d.*e){20}",
    "classes": r"(\p{L}{1,100}\s?){1,100}",
    "words": "|".join(f"word{i}x{i * 7919 % 10007}" for i in range(1500)),
    "deep": "(" * 5000 + "a" + ")" * 5000,
    "two repetitions": "foo**",
    "look-ahead": "(?=a)a",
}


def _nested(depth: int, wrap: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = wrap(schema)
    return schema


def _level(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


SCHEMAS: dict[str, dict[str, Any]] = {
    "oneOf": _nested(14, lambda s: {"oneOf": [s, _level(s)]}),
    "anyOf": _nested(9, lambda s: {"anyOf": [s, {"type": "array", "items": s}]}),
    "allOf": _nested(12, lambda s: {"allOf": [s, s]}),
    "depth": _nested(40, _level),
    "optional properties": {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(1900)}},
    "properties": {
        "type": "object",
        "properties": (many := {f"p{i}": {"type": "null"} for i in range(1900)}),
        "required": list(many),
    },
    "patterns": {
        "type": "object",
        "patternProperties": {f"^a{i}(b|c)+$": {"type": "null"} for i in range(50)},
        "additionalProperties": False,
    },
    "enum": {"enum": [f"word {i}" for i in range(20_000)]},
    "long": {"type": "string", "maxLength": 100_000},
    "pattern": {"type": "string", "pattern": "^(a+)+$"},
    "many items": {"type": "array", "items": {"type": "string", "pattern": "^([ab]*a[ab]{13})+$"}, "maxItems": 100_000},
    "chain": {
        "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(150)} | {"d150": {}},
        "$ref": "#/$defs/d0",
    },
    "to itself": {"$ref": "#"},
    "remote": {"$ref": "http://127.0.0.1:9/x"},
    "a file": {"$ref": "file:///etc/passwd"},
}
GRAMMARS = {
    **{
        name: f"start: /{REGEXES[name]}/" for name in ("repeated", "repeated thrice", "more states", "optional", "gaps")
    },
    "ambiguous": 'start: a\na: a a | "x" |',
    "deep": "start: " + "(" * 5000 + '"a"' + ")" * 5000,
    "endless": 'start: "a" start',
    "empty": "start: //",
    **{name: json_grammar(SCHEMAS[name]) for name in ("oneOf", "allOf", "optional properties", "many items", "remote")},
}


@dataclass(slots=True)
class Streams:
    """Programs that stream. pieces: texts that each has got. worst: seconds that one was without, since `reset`."""

    pieces: list[int]
    worst: float = 0.0
    _last: list[float] = field(default_factory=list[float])
    _awaited: list[tuple[Callable[[list[int]], bool], threading.Event]] = field(default_factory=list[Any])

    def reset(self) -> None:
        """Begin to measure."""
        self.worst = 0.0
        self._last = [time.perf_counter()] * len(self.pieces)

    def longest(self) -> float:
        """The longest time without new text, those that still wait included."""
        return max(self.worst, *(time.perf_counter() - last for last in self._last))

    def when(self, reached: Callable[[list[int]], bool]) -> threading.Event:
        """Set with the first piece for which `reached` is true of the numbers of pieces."""
        event = threading.Event()
        self._awaited.append((reached, event))
        return event

    async def one(self, backend: LocalBackend, index: int) -> None:
        """Stream one story after the other."""
        program = _checked(STORY)
        seed = index
        while True:
            run = start(program, {}, backend, RunOptions(seed=seed))
            try:
                async for event in run.events():
                    if event.type == "delta":
                        self._count(index)
            finally:
                run.cancel()
            seed += len(self.pieces)

    def _count(self, index: int) -> None:
        now = time.perf_counter()
        self.worst = max(self.worst, now - self._last[index])
        self._last[index] = now
        self.pieces[index] += 1
        for reached, awaited in self._awaited:
            if reached(self.pieces):
                awaited.set()


@asynccontextmanager
async def streaming(backend: LocalBackend, count: int) -> AsyncIterator[Streams]:
    """So many programs that stream meanwhile; all have begun."""
    streams = Streams([0] * count)
    streams.reset()
    tasks = [asyncio.create_task(streams.one(backend, index)) for index in range(count)]
    try:
        if not await asyncio.to_thread(streams.when(lambda pieces: min(pieces) > 1).wait, 60):
            raise AssertionError("the streams do not begin")
        yield streams
    finally:
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [one for one in done if isinstance(one, Exception)]
    if failed:
        raise failed[0]


def _checked(document: dict[str, Any]) -> Program:
    report = Report("hostile.json")
    program = load_program(source_from_text(json.dumps(document), "hostile.json"), report)
    report.raise_errors()
    assert program is not None
    return program


@dataclass(frozen=True, slots=True)
class Ended:
    """How a constraint ended: a code or a status, and the seconds until it was refused or the first text came."""

    outcome: str
    seconds: float


async def write(backend: LocalBackend, constraint: dict[str, Any], **inputs: Any) -> Ended:
    """Check a program that writes under a constraint, and run it."""
    began = time.perf_counter()
    gen = {"gen": "x", **constraint, "max_tokens": TOKENS, "temperature": 1.0}
    document: dict[str, Any] = {"sglspec": "v1", "steps": ["Write: ", gen]}
    if inputs:
        document["inputs"] = {name: "any" if isinstance(v, dict) else "string" for name, v in inputs.items()}
    try:
        program = await asyncio.to_thread(_checked, document)
    except SpecError as error:
        return Ended(f"{error.diagnostics[0].code} in its check", time.perf_counter() - began)
    run = start(program, inputs, backend, RunOptions(seed=1))
    seconds = None
    async for event in run.events():
        if seconds is None and event.type == "delta":
            seconds = time.perf_counter() - began
    result = await run.wait()
    outcome = result.status if result.error is None else f"{result.error.code} in its run"
    return Ended(outcome, seconds or time.perf_counter() - began)


async def write_by_grammar(backend: LocalBackend, grammar: str) -> Ended:
    """Write under a grammar that nobody has checked."""
    began, seconds = time.perf_counter(), None
    session = backend.engine.open()
    try:
        await session.extend([TextSegment("Write: ")])
        request = GenRequest(grammar=grammar, max_tokens=TOKENS, sampling=Sampling(temperature=1.0))
        async for delta in session.generate(request):
            seconds = seconds or time.perf_counter() - began
            if delta.finish is not None:
                return Ended(delta.finish.reason, seconds)
    except EngineError as error:
        return Ended(f"refused: {str(error).splitlines()[0][:60]}", seconds or time.perf_counter() - began)
    finally:
        await session.close()
    raise AssertionError("a generation without an end")


def attempts(backend: LocalBackend) -> dict[str, Callable[[], Awaitable[Ended]]]:
    """What is tried, by name; the first is a constraint as any other."""
    found: dict[str, Callable[[], Awaitable[Ended]]] = {
        "nothing hostile": lambda: write(backend, {"regex": "[a-z ]{200}"}),
    }
    for name, regex in REGEXES.items():
        found[f"regex: {name}"] = lambda regex=regex: write(backend, {"regex": regex})
    for name, schema in SCHEMAS.items():
        found[f"schema: {name}"] = lambda schema=schema: write(backend, {"schema": schema})
        found[f"schema: {name}, as an input"] = lambda schema=schema: write(backend, {"schema": "{{ s }}"}, s=schema)
    for name, grammar in GRAMMARS.items():
        found[f"engine: {name}"] = lambda grammar=grammar: write_by_grammar(backend, grammar)
    return found


async def endure(model: Path, streams: int) -> float:
    """Try everything and print what happened. The longest time until a refusal or a first text, in seconds."""
    backend = await open_local(model)
    slowest = 0.0
    try:
        async with streaming(backend, streams) as beside:
            for name, attempt in attempts(backend).items():
                beside.reset()
                began = time.perf_counter()
                ended = await attempt()
                took, longest = time.perf_counter() - began, beside.longest()
                times = f"{ended.seconds:5.2f} s of {took:5.2f} s, streams waited {longest:5.2f} s at most"
                print(f"{name:40} {times}: {ended.outcome}", flush=True)
                slowest = max(slowest, ended.seconds)
    finally:
        await backend.close()
    return slowest


def main() -> int:
    """See the module docstring."""
    parser = argparse.ArgumentParser(description="Hostile constraints beside programs that stream.")
    parser.add_argument("--model", help="a model by its name; a tiny one if none is named")
    parser.add_argument("--streams", type=int, default=8, help="programs that stream meanwhile")
    parser.add_argument("--limit", type=float, default=2.0, help="seconds that one constraint may take")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.model is None:
            path = tiny.build(Path(folder) / "model")
        else:
            from sglspec.models import resolve

            path = resolve(options.model)
        slowest = asyncio.run(endure(path, options.streams))
    print(f"the slowest took {slowest:.2f} s, with {options.streams} streams beside it")
    return 1 if slowest > options.limit else 0


if __name__ == "__main__":
    raise SystemExit(main())

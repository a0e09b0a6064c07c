"""Texts that a model writes under the schemas of a corpus. See constraints.py."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglspec_engine.config import prepare_process

prepare_process()

from benchmarks.corpora import Case  # noqa: E402 (torch reads the environment)
from sglspec.analysis.constraints import Constraint, ConstraintError, schema_constraint  # noqa: E402
from sglspec_engine.constrain import GrammarConstraint, Grammars  # noqa: E402
from sglspec_engine.engine import Engine  # noqa: E402
from sglspec_engine.types import EngineError, GenRequest, Sampling, TextSegment  # noqa: E402

SEEDS = (1, 2, 3)
MAX_TOKENS = 200
TOGETHER = 32
"""Texts that are written at the same time."""
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')


@dataclass(slots=True)
class Texts:
    """What came out. texts: by (schema, seed). steps: of the model, by schema. unfinished: cut by MAX_TOKENS. failed:
    ended by an error. wrong: texts that do not parse, do not fit, or hold runs of white space, and why. mask_us,
    compile_ms: processor time of each mask and of each compilation with its first mask."""

    texts: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    steps: dict[str, int] = field(default_factory=dict[str, int])
    tokens: int = 0
    forced: int = 0
    unfinished: int = 0
    wrong: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    mask_us: list[float] = field(default_factory=list[float])
    compile_ms: list[float] = field(default_factory=list[float])

    def take(self, row: Mapping[str, Any]) -> None:
        """Add one text; see `_text` for its keys."""
        name, seed = row["schema"], row["seed"]
        self.steps[name] = self.steps.get(name, 0) + row["steps"]
        if row["failed"]:
            self.failed.append(f"{name} [{seed}]: {row['failed']}")
            return
        self.texts[name, seed] = row["text"]
        self.tokens += row["tokens"]
        self.forced += row["forced"]
        self.unfinished += row["cut"]
        if row["wrong"]:
            self.wrong.append(f"{name} [{seed}]: {row['wrong']} in {row['text'][:80]!r}")


def taken(cases: Iterator[Case], count: int) -> list[tuple[Case, Constraint]]:
    """The first `count` schemas of objects that we take."""
    found: list[tuple[Case, Constraint]] = []
    for case in cases:
        if len(found) == count:
            break
        if case.schema.get("type") == "object" and case.schema.get("properties"):
            try:
                found.append((case, schema_constraint(case.schema)))
            except ConstraintError:
                continue
    return found


async def write(path: Path, cases: list[tuple[Case, Constraint]], progress: Path | None, **settings: Any) -> Texts:
    """Write a text for every schema and seed. progress: a file of one JSON object per text; those that it has are not
    written again, and each that is done is added."""
    out = Texts()
    done: set[tuple[str, int]] = set()
    for row in _kept(progress):
        out.take(row)
        done.add((row["schema"], row["seed"]))
    gate = asyncio.Semaphore(TOGETHER)

    async def one(engine: Engine, case: Case, constraint: Constraint, seed: int) -> None:
        async with gate:
            row = await _text(engine, case, constraint, seed)
        out.take(row)
        if progress is not None:
            with progress.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    with _timed(out):
        engine = Engine.load(path, **settings)
        try:
            left = ((c, k, seed) for c, k in cases for seed in SEEDS if (c.name, seed) not in done)
            await asyncio.gather(*(one(engine, *each) for each in left))
        finally:
            await engine.close()
    return out


def _kept(progress: Path | None) -> list[dict[str, Any]]:
    """What earlier runs wrote."""
    if progress is None or not progress.is_file():
        return []
    return [json.loads(line) for line in progress.read_text(encoding="utf-8").splitlines()]


async def _text(engine: Engine, case: Case, constraint: Constraint, seed: int) -> dict[str, Any]:
    """Write one text. steps: of the model. cut: whether MAX_TOKENS ended it. failed, wrong: why, or empty."""
    row: dict[str, Any] = {"schema": case.name, "seed": seed, "steps": 0, "tokens": 0, "forced": 0, "text": ""}
    row |= {"cut": False, "failed": "", "wrong": ""}
    session = engine.open()
    names = ", ".join(list(case.schema["properties"])[:12])
    await session.extend([TextSegment(f"A JSON object with {names}:\n")])
    request = GenRequest(
        grammar=constraint.grammar, max_tokens=MAX_TOKENS, noise_key=seed, sampling=Sampling(temperature=0.7)
    )
    try:
        async for delta in session.generate(request):
            row["steps"] += 1
            if delta.finish is not None:
                usage, text = delta.finish.usage, delta.finish.text
                row |= {"tokens": usage.generated_tokens, "forced": usage.forced_tokens, "text": text}
                row["cut"] = delta.finish.reason == "length"
                row["wrong"] = _fault(constraint, text, row["cut"])
    except EngineError as error:
        row["failed"] = str(error).splitlines()[0]
    await session.close()
    return row


def _fault(constraint: Constraint, text: str, cut: bool) -> str:
    """What is wrong with a text, or nothing. Of one that was cut, only white space is looked at."""
    if re.search(r"\s\s|[\n\t]", _STRING.sub("", text if not cut else text.rsplit('"', 1)[0])):
        return "a run of white space"
    if not cut:
        try:
            constraint.parse(text)
        except ValueError as problem:
            return str(problem)
    return ""


@contextmanager
def _timed(out: Texts) -> Iterator[None]:
    """Measure masks and compilations."""
    allowed, compiled = GrammarConstraint.allowed, Grammars._compile

    def mask(self: GrammarConstraint) -> Any:
        start = time.thread_time()
        found = allowed(self)
        out.mask_us.append((time.thread_time() - start) * 1e6)
        return found

    def compile(self: Grammars, grammar: str) -> GrammarConstraint:
        self.tokenizer()  # is built once
        start = time.thread_time()
        try:
            return compiled(self, grammar)
        finally:
            out.compile_ms.append((time.thread_time() - start) * 1000)

    GrammarConstraint.allowed, Grammars._compile = mask, compile
    try:
        yield
    finally:
        GrammarConstraint.allowed, Grammars._compile = allowed, compiled


def summary(on: Texts, off: Texts, cases: list[tuple[Case, Constraint]]) -> dict[str, Any]:
    """The figures of both runs."""

    def spread(values: list[float]) -> dict[str, float]:
        ordered = sorted(values) or [0.0]
        return {f"p{p}": round(ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 1) for p in (50, 90, 99, 100)}

    heavy = [c.name for c, _ in cases if len(c.schema["properties"]) >= 4 and c.schema.get("required")]
    saved = {
        label: 1 - sum(on.steps.get(n, 0) for n in names) / max(1, sum(off.steps.get(n, 0) for n in names))
        for label, names in (("all", [c.name for c, _ in cases]), ("object-heavy", heavy))
    }
    return {
        "texts": len(on.texts),
        "unfinished": on.unfinished,
        "failed": on.failed + off.failed,
        "wrong": on.wrong + off.wrong,
        "forced on and off differ": sum(off.texts.get(key) != text for key, text in on.texts.items()),
        "tokens": on.tokens,
        "forced tokens": on.forced,
        "steps saved": {label: round(value, 3) for label, value in saved.items()},
        "object-heavy schemas": len(heavy),
        "mask µs (processor)": spread(on.mask_us),
        "compile ms (processor)": spread(on.compile_ms),
    }


def measure(path: Path, cases: Iterator[Case], count: int, progress: Path | None) -> dict[str, Any]:
    """Everything above with one model. progress: a folder that remembers texts, so that a run can be gone on with."""
    chosen = taken(cases, count)
    if progress is not None:
        progress.mkdir(parents=True, exist_ok=True)
    files = [progress / name if progress is not None else None for name in ("forced.jsonl", "plain.jsonl")]
    on = asyncio.run(write(path, chosen, files[0]))
    off = asyncio.run(write(path, chosen, files[1], forced=False))
    return summary(on, off, chosen)


def show_summary(found: dict[str, Any]) -> None:
    """One line each."""
    for name, value in found.items():
        print(f"  {name}: {json.dumps(value, ensure_ascii=False)}")

"""Schemas that others wrote: which we take, and whether what we take is enforced to the letter.

Usage: python -m benchmarks.constraints [--every N] [--model NAME [--schemas N] [--progress FOLDER]] [--json FILE]

Reads corpora from the folder that SGLSPEC_CORPORA names: `maskbench-sample.jsonl.gz` (schemas with valid and invalid
instances, a sample of MaskBench) and `json-schema-test-suite.jsonl.gz` (the official suite). No invalid instance may be
accepted; valid ones that are refused are listed. With `--model` texts are generated under a sample of the schemas too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.corpora import Case, corpora, maskbench, official
from sglspec.analysis.constraints import Constraint, ConstraintError, schema_constraint
from sglspec.analysis.grammar import matches
from sglspec.analysis.subschemas import walk

OTHERS = {
    "llguidance 1.9.1 strict": (700, 629, "2 of 807", "0 of 1,163", 2.2, 56.0),
    "xgrammar 0.2.9 strict_mode": (700, 698, "79 of 870", "55 of 1,254", 47.0, 2788.0),
}
"""The libraries alone on 700 other schemas of MaskBench, measured earlier on two loaded cores, 32,000 tokens: schemas,
those taken, valid instances refused, invalid ones accepted, milliseconds of a compilation (p50, p99)."""
_PERMUTED = 5
"""Keys of the outermost object up to which all orders are tried."""


@dataclass(slots=True)
class Findings:
    """What a corpus showed. refused: (schema, code, keyword or "", message). compile_ms: of every schema, refused ones
    included. wrong: invalid instances accepted by the grammar or by the check of replies. missed: valid ones refused,
    in every order of keys that was tried."""

    schemas: int = 0
    taken: int = 0
    valid: int = 0
    invalid: int = 0
    refused: list[tuple[str, str, str, str]] = field(default_factory=list[tuple[str, str, str, str]])
    wrong: list[str] = field(default_factory=list[str])
    missed: list[str] = field(default_factory=list[str])
    compile_ms: list[float] = field(default_factory=list[float])


def examine(cases: Iterator[Case]) -> Findings:
    """Check every schema, and what it takes against its instances."""
    out = Findings()
    for case in cases:
        out.schemas += 1
        start = time.perf_counter()
        try:
            constraint = schema_constraint(case.schema)
        except ConstraintError as error:
            keyword = str(error.pointer[-1]) if error.pointer else ""
            out.refused.append((case.name, error.code, keyword, error.message))
            continue
        finally:
            out.compile_ms.append((time.perf_counter() - start) * 1000)
        out.taken += 1
        for name, value, valid in case.instances:
            _instance(out, case, constraint, f"{case.name} [{name}]", value, valid)
    return out


def _instance(out: Findings, case: Case, constraint: Constraint, name: str, value: Any, valid: bool) -> None:
    if valid:
        out.valid += 1
        if not _fits(constraint, case.schema, value) or not _accepted(constraint, value):
            out.missed.append(name)
        return
    out.invalid += 1
    if matches(constraint.grammar, _compact(value)) or _accepted(constraint, value):
        out.wrong.append(name)


def _accepted(constraint: Constraint, value: Any) -> bool:
    try:
        constraint.accepts(value)
    except ValueError:
        return False
    return True


def _fits(constraint: Constraint, schema: dict[str, Any], value: Any) -> bool:
    """Whether the value can be generated: objects are written in the order of the schema, whole numbers without a
    fraction."""
    ranks: dict[str, int] = {}
    for _, part in walk(schema):
        for name in (*part.get("properties", ()), *part.get("required", ())):
            ranks.setdefault(name, len(ranks))
    return any(matches(constraint.grammar, text) for text in _spellings(value, ranks))


def _spellings(value: Any, ranks: dict[str, int]) -> Iterator[str]:
    yield _compact(value)
    ordered = _ordered(value, ranks)
    yield _compact(ordered)
    if isinstance(ordered, dict) and len(ordered) <= _PERMUTED:
        for keys in itertools.permutations(ordered):
            yield _compact({key: ordered[key] for key in keys})


def _ordered(value: Any, ranks: dict[str, int]) -> Any:
    if isinstance(value, list):
        return [_ordered(item, ranks) for item in value]
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: ranks.get(key, len(ranks)))
        return {key: _ordered(value[key], ranks) for key in keys}
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def show(title: str, found: Findings) -> None:
    """Figures, what was refused by keyword, and every instance that went wrong."""
    times = sorted(found.compile_ms)
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    print(f"\n{title}: {found.taken} of {found.schemas} schemas taken")
    print(f"  valid instances refused   {len(found.missed)} of {found.valid}")
    print(f"  invalid instances accepted {len(found.wrong)} of {found.invalid}")
    print(f"  check: p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {times[-1]:.1f} ms")
    reasons = Counter((code, keyword) for _, code, keyword, _ in found.refused)
    print("  refused: " + ", ".join(f"{k or 'whole'} ({c}) {n}" for (c, k), n in reasons.most_common(30)))
    for label, names in (("ACCEPTED", found.wrong), ("refused", found.missed)):
        for name in names:
            print(f"    {label}: {name}")


def compare(found: Findings) -> None:
    """A table of our figures and those of others."""
    times = sorted(found.compile_ms)
    missed, wrong = f"{len(found.missed)} of {found.valid:,}", f"{len(found.wrong)} of {found.invalid:,}"
    ours = (found.schemas, found.taken, missed, wrong, times[len(times) // 2], times[int(len(times) * 0.99)])
    print(f"\n{'':28}{'taken':>16}{'valid refused':>16}{'invalid taken':>16}{'ms p50':>9}{'ms p99':>9}")
    for name, (schemas, taken, missed, wrong, p50, p99) in {"check of this project": ours, **OTHERS}.items():
        share = f"{taken:,} of {schemas:,}"
        print(f"{name:28}{share:>16}{missed:>16}{wrong:>16}{p50:>9.1f}{p99:>9.1f}")


def main() -> int:
    """See the module docstring. Exits 1 when an invalid instance was accepted."""
    parser = argparse.ArgumentParser(description="Check constraints against corpora of JSON Schemas.")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every N-th schema only")
    parser.add_argument("--model", metavar="NAME", help="generate under schemas with this model too")
    parser.add_argument("--schemas", type=int, default=100, metavar="N", help="schemas to generate under")
    parser.add_argument("--progress", type=Path, metavar="FOLDER", help="keep texts there, and go on with those kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    folder = corpora()
    if folder is None:
        parser.error("SGLSPEC_CORPORA names no folder with the corpora")
    found = {
        "maskbench": examine(maskbench(folder, options.every)),
        "official": examine(official(folder, options.every)),
    }
    show("MaskBench sample", found["maskbench"])
    show("Official test suite, drafts 7 and 2020-12", found["official"])
    compare(found["maskbench"])
    figures: dict[str, Any] = {name: asdict(one) for name, one in found.items()}
    wrong = sum(len(one.wrong) for one in found.values())
    if options.model is not None:
        wrong += _with_model(options, folder, figures)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False))
    return 1 if wrong else 0


def _with_model(options: argparse.Namespace, folder: Path, figures: dict[str, Any]) -> int:
    from benchmarks import constrained  # needs torch
    from sglspec.models import resolve

    path = resolve(options.model)
    print(f"\nTexts by {options.model}, {len(constrained.SEEDS)} seeds each, temperature 0.7")
    texts = figures["texts"] = constrained.measure(path, maskbench(folder, 7), options.schemas, options.progress)
    constrained.show_summary(texts)
    return len(texts["wrong"]) + texts["forced on and off differ"]


if __name__ == "__main__":
    raise SystemExit(main())

"""Time this engine and its peers on the same token ids, in the same run, and show ratios.

Usage: python -m benchmarks.run [--workloads single,fork8] [--quick] [--repeat 3] [--json FILE] ...

Ratios of one run are meaningful, absolute times of different days are not. Systems take turns, every repetition is a
variant of the workload that nobody has seen before, and the least time of each system counts. Peers that are not
installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sglspec_engine.config import physical_cores, prepare_process

prepare_process()

from benchmarks.peers import engine, guidance_llama, llama_cpp, openvino_genai, transformers_generate  # noqa: E402 (torch reads the environment)
from benchmarks.peers.base import System  # noqa: E402
from benchmarks.workloads import WORKLOADS  # noqa: E402
from benchmarks.workloads.base import Answer, Case, Texts, Workload  # noqa: E402
from sglspec.models import resolve  # noqa: E402

PACKAGES = ("torch", "transformers", "llguidance", "llama-cpp-python", "guidance", "openvino-genai")

PEERS: dict[str, Callable[[Path, argparse.Namespace], list[System]]] = {
    "transformers": lambda path, options: transformers_generate.load(path),
    "llama.cpp": lambda path, options: llama_cpp.load(options.gguf, options.threads),
    "guidance": lambda path, options: guidance_llama.load(options.gguf, options.threads),
    "openvino": lambda path, options: openvino_genai.load(options.gguf, options.threads),
}


@dataclass(slots=True)
class Timing:
    """One system on one workload. seconds: of every repetition. cpu: the least CPU time of one, over all threads, in
    seconds; unlike the time it hardly depends on what else runs. others: the share of the machine that other processes
    used, at the fastest one. same: streams whose tokens equal the reference's, of `streams`, over all repetitions."""

    system: str
    seconds: list[float] = field(default_factory=list[float])
    cpu: float = float("inf")
    others: float = 0.0
    same: int = 0
    streams: int = 0
    facts: dict[str, float | int] = field(default_factory=dict[str, float | int])

    @property
    def best(self) -> float:
        """The least time, in seconds."""
        return min(self.seconds)


@dataclass(slots=True)
class Result:
    """One workload. tokens: what a rate counts. reference: whose tokens the others were compared with."""

    workload: str
    title: str
    unit: str
    tokens: int = 0
    reference: str = ""
    timings: list[Timing] = field(default_factory=list[Timing])


def measure(workload: Workload, systems: Sequence[System], texts: Texts, options: argparse.Namespace) -> Result:
    """Run a workload on every system that can do it, taking turns."""
    result = Result(workload.name, workload.title, workload.unit)
    timings = {system.name: Timing(system.name) for system in systems}
    spent = dict.fromkeys(timings, 0.0)
    for repetition in range(options.repeat):
        case = workload.case(texts, repetition + 1, options.quick)
        result.tokens = case.tokens
        answers: list[tuple[System, Answer]] = []
        for system in systems:
            if spent[system.name] > options.budget:
                continue
            answer = _once(system, case, timings[system.name])
            if answer is not None:
                answers.append((system, answer))
                spent[system.name] += timings[system.name].seconds[-1]
        _compare(answers, timings, result)
    result.timings = [timing for timing in timings.values() if timing.seconds]
    return result


def _once(system: System, case: Case, timing: Timing) -> Answer | None:
    system.prepare(case)
    busy, own, began = _machine_seconds(), _own_seconds(), time.perf_counter()
    answer = system.run(case)
    seconds, used = time.perf_counter() - began, _own_seconds() - own
    if answer is None:
        return None
    timing.cpu = min(timing.cpu, used)
    if not timing.seconds or seconds < timing.best:
        foreign = _machine_seconds() - busy - used
        timing.others = max(0.0, foreign / seconds / (os.cpu_count() or 1))
        timing.facts = answer.facts
    timing.seconds.append(seconds)
    return answer


def _compare(answers: list[tuple[System, Answer]], timings: dict[str, Timing], result: Result) -> None:
    """Count equal streams. The reference is the first exact system that is not ours, else the first exact one."""
    answers = [pair for pair in answers if any(pair[1].outputs)]
    exact = [pair for pair in answers if pair[0].exact]
    foreign = [pair for pair in exact if not isinstance(pair[0], engine.Ours | engine.OneByOne | engine.Unconstrained)]
    if not exact:
        return
    reference, expected = (foreign or exact)[0]
    result.reference = reference.name
    for system, answer in answers:
        timing = timings[system.name]
        timing.streams += len(answer.outputs)
        timing.same += sum(a == b for a, b in zip(answer.outputs, expected.outputs, strict=True))


def _machine_seconds() -> float:
    """CPU seconds that all processes of the machine have used; 0 where that cannot be read."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    values = [int(value) for value in fields]
    return (sum(values[:8]) - values[3] - values[4]) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system


def show(result: Result, quick: bool) -> None:
    """Print a table. A ratio says how many times the first system's time another one takes."""
    print(f"\n{result.workload}: {result.title}{' (a smaller variant)' if quick else ''}")
    if result.reference:
        print(f"  tokens compared with: {result.reference}")
    first = result.timings[0]
    for timing in result.timings:
        rate = f" {result.tokens / timing.best:8.1f} tok/s" if result.unit == "tok/s" else ""
        ratios = f"× {timing.best / first.best:5.2f}  CPU {timing.cpu:7.2f} s × {timing.cpu / first.cpu:5.2f}"
        same = f"  same {timing.same}/{timing.streams}" if timing.streams else ""
        facts = "".join(f"  {key} {_number(value)}" for key, value in timing.facts.items())
        print(f"  {timing.system:28} {timing.best:8.2f} s{rate}  {ratios}  others {timing.others:4.0%}{same}{facts}")


def _number(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.1%}"


def _systems(path: Path, options: argparse.Namespace) -> list[System]:
    ours = [engine.Ours(path, weights=weights, threads=options.threads) for weights in options.weights.split(",")]
    systems: list[System] = [*ours, engine.OneByOne(ours[0]), engine.Unconstrained(ours[0])]
    for name in () if options.no_peers else options.peers.split(","):
        systems += PEERS[name](path, options)
    return systems


def _about(options: argparse.Namespace) -> dict[str, Any]:
    versions: dict[str, str] = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    machine = {"cpus": os.cpu_count(), "cores": physical_cores(), "system": platform.platform()}
    shown = {key: value for key, value in vars(options).items() if key not in ("json", "model", "gguf")}
    return {"machine": machine, "versions": versions, "options": shown}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct", help="name in the model store, or folder")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="some of: %(default)s")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each workload (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="small variants of the workloads")
    parser.add_argument("--weights", default="auto,fp32", help="our engines, by their `weights` (%(default)s)")
    parser.add_argument("--threads", type=int, help="threads of every system, default the physical cores")
    parser.add_argument(
        "--peers", default=",".join(PEERS), help="some of: %(default)s; those not installed are left out"
    )
    parser.add_argument("--no-peers", action="store_true", help="our engines only")
    parser.add_argument(
        "--gguf", type=Path, nargs="+", default=[], help="model files, each for llama.cpp, guidance and OpenVINO"
    )
    parser.add_argument(
        "--budget", type=float, default=60, help="seconds a system may take for a workload (%(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write the results there too")
    options = parser.parse_args()
    unknown = set(options.workloads.split(",")) - set(WORKLOADS)
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    if strangers := set(options.peers.split(",")) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(strangers))}")
    return options


def main() -> None:
    """Measure, print, write."""
    options = _options()
    systems = _systems(resolve(options.model), options)
    ours = systems[0]
    assert isinstance(ours, engine.Ours)
    texts = Texts(ours.engine.vocabulary)
    for system in systems:
        system.run(WORKLOADS["single"].case(texts, 0, True))  # the first run of anything is slow
    results: list[Result] = []
    for name in options.workloads.split(","):
        results.append(measure(WORKLOADS[name], systems, texts, options))
        show(results[-1], options.quick)
    for system in systems:
        system.close()
    if options.json is not None:
        report = {**_about(options), "results": [asdict(result) for result in results]}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

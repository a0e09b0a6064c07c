"""Engine settings, resolved once at load. Importable without torch."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Attention = Literal["auto", "cpu", "gather", "varlen", "flashinfer", "reference"]
Resolution = Literal["cpu", "gather", "varlen", "flashinfer", "reference"]
Order = Literal["fcfs", "prefix", "random"]
Forks = Literal["together", "sequential"]
Admission = Literal["optimistic", "worst_case"]
Weights = Literal["auto", "plain", "fp32", "fp16", "bf16"]

MAX_THREADS = 1024
"""More makes torch's thread pool end the process."""
_MOST = {
    "step_tokens": 65_536,
    "step_logits": 65_536,
    "grammar_workers": 256,
    "grammar_cache": 1_000_000,
    "grammar_timeout": 86_400,
    "max_context": 2**31 - 1,
    "max_kv_bytes": 2**62,
    "threads": MAX_THREADS,
}
"""Sizes beyond which a setting is a slip, or what it reserves is not there."""
_TURN = 0.001
"""Seconds that a thread keeps the interpreter while others wait. Shorter turns cost more than they bring."""
_KERNELS = ("varlen", "flashinfer")
_UNTRIED = " (never executed on hardware)"
"""What is true of everything that needs another device than a CPU, until somebody runs benchmarks/gpu_check.py."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an operator may set; every field has a default that works.

    threads: intra-op threads of torch, None for the physical cores this process may use.
    attention: "cpu" reads what branches share once for all of them; "flashinfer" and "varlen" are kernels for CUDA
    devices, by the package of that name and by torch itself; "gather" runs anywhere; "reference" is what all are
    compared with; "auto" takes the one that suits the device.
    step_tokens: tokens that go through the model in one step at most (prefill is cut into chunks of this size).
    step_logits: positions of one step whose next-token distribution is kept at most (bounds memory: one such
    position is a float per vocabulary entry).
    max_context: tokens a context may hold, None for what the model was made for.
    max_kv_bytes: memory for keys and values, None for a part of what is free at load.
    prefix_cache: keep keys and values that no session uses any more, for those that begin alike; memory that is needed
    is taken from them first. Without it only forks share.
    hints: use what programs tell about what is to come: keep what is going to be used again, free what is not, and
    compile constraints ahead. Without it the cache goes by age alone.
    admission: let requests in with room for their next tokens, and take memory back from the youngest where it runs
    out ("optimistic"), or only with room for their prompt and `max_tokens` ("worst_case").
    order: which of the waiting requests comes first: by arrival, by the longest cached prefix, or at random.
    forks: run the branches of a fork together, or one after the other.
    grammar_workers, grammar_cache, grammar_timeout: threads that compile grammars, compiled grammars that are
    kept, seconds after which a compilation counts as failed.
    healing: where a text ends inside of what could be one token, let the generation begin with that token.
    forced: compute tokens that a grammar leaves no choice together, in one step. Without, each has a step of its own;
    the text is the same.
    measure_joins: at each join of keys and values compute the context anew as well, and report how far the next token's
    distributions are apart. Costs more than the join saved.
    debug: check all books after every step and fill freed memory with NaN. Slow; for tests.
    device, dtype: where the model runs and the floating type of its weights and cache, by torch's names. dtype "auto"
    is float32 on a CPU and bfloat16 elsewhere.
    probe: at load, compare a short forward with transformers' own attention, and refuse the model if they differ.
    weights: how the CPU multiplies float32 weights. "auto": in half precision with float32 sums where the processor
    can, else as "fp32"; "fp32": exact but for the order of sums; "bf16": twice as fast for many rows on processors
    that multiply bfloat16, and the least exact; "plain": transformers' own layers, for comparison. All but "plain" also
    merge a layer's projections, on any device.
    """

    threads: int | None = None
    attention: Attention = "auto"
    step_tokens: int = 512
    step_logits: int = 128
    max_context: int | None = None
    max_kv_bytes: int | None = None
    prefix_cache: bool = True
    hints: bool = True
    admission: Admission = "optimistic"
    order: Order = "prefix"
    forks: Forks = "together"
    grammar_workers: int = 2
    grammar_cache: int = 128
    grammar_timeout: float = 20.0
    healing: bool = True
    forced: bool = True
    measure_joins: bool = False
    debug: bool = False
    probe: bool = True
    device: str = "cpu"
    dtype: str = "auto"
    weights: Weights = "auto"

    def __post_init__(self) -> None:
        """Raises ValueError for a size that could never serve a request."""
        for name in ("step_tokens", "step_logits", "grammar_workers", "grammar_cache"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("threads", "max_context", "max_kv_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1 where it is given")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise ValueError(f"{name} must be at most {most:,}")
        choices = {"attention": Attention, "admission": Admission, "order": Order, "forks": Forks, "weights": Weights}
        for name, kind in choices.items():
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}")
        if self.grammar_timeout <= 0:
            raise ValueError("grammar_timeout must be positive")

    @property
    def float_type(self) -> str:
        """`dtype` with "auto" decided."""
        if self.dtype != "auto":
            return self.dtype
        return "float32" if self.device == "cpu" else "bfloat16"

    def resolve(self) -> Resolved:
        """Decide what is left open, for this machine, with the model loaded."""
        threads = physical_cores() if self.threads is None else self.threads
        attention, why = self._attention()
        kv_bytes, source = self.max_kv_bytes, "as configured"
        if kv_bytes is None:
            kv_bytes, source = self._memory()
        reasons = (
            f"device={self.device}: {'the default' if self.device == 'cpu' else 'as configured'}",
            f"dtype={self.float_type}: {'what suits ' + self.device if self.dtype == 'auto' else 'as configured'}",
            f"threads={threads}: "
            + ("the physical cores that this process may use" if self.threads is None else "as configured"),
            f"attention={attention}: {why}",
            f"max_kv_bytes={kv_bytes}: {source}",
        )
        return Resolved(attention, threads, kv_bytes, reasons)

    def _attention(self) -> tuple[Resolution, str]:
        """The implementation, and why. torch and FlashInfer are looked at for CUDA devices only."""
        if self.attention != "auto":
            return self.attention, "as configured" + (_UNTRIED if self.attention in _KERNELS else "")
        if self.device == "cpu":
            return "cpu", "the model runs on the CPU"
        if not self.device.startswith("cuda"):
            return "gather", f"there is no kernel for {self.device}{_UNTRIED}"
        from sglspec_engine.attention import select

        name, why = select.for_cuda(self.device, self.float_type)
        return name, why + _UNTRIED

    def _memory(self) -> tuple[int, str]:
        """Bytes for keys and values where nothing is said, and why so many."""
        if self.device == "cpu":
            return free_memory() // 2, "half of the memory that is free"
        if self.device.startswith("cuda"):
            import torch

            return torch.cuda.mem_get_info(self.device)[0] * 3 // 4, f"three quarters of what is free on {self.device}"
        return 4 << 30, f"a guess, as the memory of {self.device} was not looked at"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with nothing left open. kv_bytes: memory for keys and values. reasons: why what was open is as it is,
    one line `name=value: reason` each."""

    attention: Resolution
    threads: int
    kv_bytes: int
    reasons: tuple[str, ...]


def prepare_process() -> None:
    """Set the environment that torch's thread pools read when they are first imported, and how threads take turns.

    Spinning OpenMP workers make a small linear layer tens of times slower as soon as anything else runs on the
    machine, and the tokenizers library warns after forks. Settings that are there already win. A step gives the
    interpreter away with every operator and waits up to `_TURN` to get it back from a thread that does much in Python;
    with Python's own 5 ms such a thread, a check for example, holds up all texts.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.setswitchinterval(min(_TURN, sys.getswitchinterval()))


def physical_cores() -> int:
    """Physical cores among the CPUs that this process may run on, at least 1.

    Hyper-threads of one core share its vector units, so they do not speed a matrix product up. Where the topology
    cannot be read (not Linux), the CPU count is used.
    """
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    cores: set[str] = set()
    for cpu in cpus:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, min(len(cores), _cgroup_cpus() or len(cores)))


def free_memory() -> int:
    """Bytes of memory that this process may still take, 4 GiB where the system does not say."""
    found = [4 << 30]
    try:
        rows = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = [int(row.split()[1]) << 10 for row in rows if row.startswith("MemAvailable:")] or found
        group = Path("/sys/fs/cgroup")
        limit, taken = ((group / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        found.append(max(0, int(limit) - int(taken)))  # "max" is no number: no limit
    except (OSError, ValueError):
        pass
    return min(found)


def _cgroup_cpus() -> int | None:
    """The CPU quota of the control group (version 2) in whole CPUs, None where there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else max(1, int(quota) // int(period))

"""Which attention, floating type and memory are chosen, and the reasons that are given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sglspec_engine.attention import select
from sglspec_engine.attention.base import Attention, AttentionOptions, AttentionPlan
from sglspec_engine.attention.reference import ReferenceAttention
from sglspec_engine.attention.trial import find_problem
from sglspec_engine.config import EngineConfig, Resolution, Resolved
from sglspec_engine.engine import Engine
from sglspec_engine.types import EngineError

UNTRIED = "(never executed on hardware)"


class Zeros:
    """An attention that is wrong."""

    def run(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, options: AttentionOptions
    ) -> Tensor:
        return torch.zeros(query.shape[1], query.shape[0], values.shape[-1])


def reason_for(name: str, resolved: Resolved) -> str:
    """The one line about a setting."""
    (line,) = (reason for reason in resolved.reasons if reason.startswith(f"{name}="))
    return line


def test_on_a_cpu_nothing_of_a_gpu_is_looked_at() -> None:
    resolved = EngineConfig(max_kv_bytes=7).resolve()
    assert (resolved.attention, resolved.kv_bytes) == ("cpu", 7)
    assert [reason for reason in resolved.reasons if not reason.startswith("threads=")] == [
        "device=cpu: the default",
        "dtype=float32: what suits cpu",
        "attention=cpu: the model runs on the CPU",
        "max_kv_bytes=7: as configured",
    ]
    code = (
        "import sys; from sglspec_engine.config import EngineConfig as E; E().resolve(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("works", "attention", "why"),
    [
        ({"flashinfer", "varlen"}, "flashinfer", "flashinfer gives on cuda:1 what the reference gives"),
        ({"varlen"}, "varlen", "flashinfer does not work: off by 1"),
        (set(), "gather", "flashinfer does not work: not there; varlen does not work: not there"),
    ],
)
def test_on_cuda_the_first_kernel_that_works(
    works: set[str], attention: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(name: Resolution, device: str) -> Attention:
        if not works:
            raise EngineError("unsupported", "not there")
        return ReferenceAttention() if name in works else Zeros()

    monkeypatch.setattr(select, "make", make)
    on_cpu = lambda attention, device, dtype: find_problem(attention, torch.device("cpu"), dtype)  # noqa: E731
    monkeypatch.setattr(select, "find_problem", on_cpu)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 4000))
    resolved = EngineConfig(device="cuda:1").resolve()
    assert (resolved.attention, resolved.kv_bytes) == (attention, 750)
    chosen = reason_for("attention", resolved)
    assert chosen.startswith(f"attention={attention}: {why}")
    assert chosen.endswith(UNTRIED)
    assert reason_for("dtype", resolved) == "dtype=bfloat16: what suits cuda:1"
    assert reason_for("max_kv_bytes", resolved) == "max_kv_bytes=750: three quarters of what is free on cuda:1"


def test_kernels_have_no_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 4000))
    resolved = EngineConfig(device="cuda", dtype="float32").resolve()
    assert reason_for("attention", resolved) == f"attention=gather: no kernel has float32 {UNTRIED}"


def test_other_devices_gather() -> None:
    resolved = EngineConfig(device="mps").resolve()
    assert reason_for("attention", resolved) == f"attention=gather: there is no kernel for mps {UNTRIED}"


@pytest.mark.parametrize("name", ["varlen", "flashinfer"])
def test_kernels_by_name_are_marked_and_refused_on_a_cpu(name: Resolution, tiny_llama: Path) -> None:
    resolved = EngineConfig(attention=name, max_kv_bytes=1).resolve()
    assert reason_for("attention", resolved) == f"attention={name}: as configured {UNTRIED}"
    with pytest.raises(EngineError, match=f"attention={name} needs a CUDA device, not cpu"):
        Engine.load(tiny_llama, attention=name)


def test_a_device_that_is_not_there_is_refused(tiny_llama: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(EngineError, match="there is no device 'cuda' here"):
        Engine.load(tiny_llama, device="cuda")
    with pytest.raises(EngineError, match="there is no device 'nonsense' here"):
        Engine.load(tiny_llama, device="nonsense")

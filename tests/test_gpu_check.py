"""benchmarks/gpu_check.py on a CPU: the same code with tiny sizes, and what happens when a part fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_check

SCRIPT = Path(gpu_check.__file__)
ARCHITECTURES = {"llama", "qwen2", "qwen3", "mistral", "gemma2", "phi3", "gpt_oss"}


def test_on_a_cpu_everything_holds(tmp_path: Path) -> None:
    # A machine with a GPU may have nothing but torch and transformers: these must not be asked for.
    for absent in ("llguidance", "re2", "typer"):
        (tmp_path / f"{absent}.py").write_text(f"raise ImportError('{absent} is not for this script')\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, str(SCRIPT), "--cpu", "--quick", "--json", "found.json"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = {part["name"]: part for part in json.loads((tmp_path / "found.json").read_text())["parts"]}
    assert {part["status"] for part in parts.values()} == {"ok"}
    for path in ("cpu", "gather"):
        assert {row["model"] for row in parts[f"models {path}"]["found"]} == ARCHITECTURES
        assert {row["way"] for row in parts[f"kernel {path}"]["found"]} == set(gpu_check.WAYS)
        speed = parts[f"speed tiny {path}"]["found"]
        assert [row["what"] for row in speed] == ["decode 1", "decode 8", "prefill 64"]
        assert all(row[key] > 0 for row in speed for key in row if key in ("ms", "tok/s", "of bandwidth", "of FLOPs"))


def test_a_part_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def fail(here: Any, path: str) -> Iterator[dict[str, Any]]:
        yield {"found": "before"}
        raise RuntimeError(f"{path} is broken\nwith details")

    def skip(here: Any, path: str) -> Iterator[dict[str, Any]]:
        raise gpu_check.Skip("not installed")
        yield {}

    def measure(here: Any, limits: gpu_check.Part, size: str, path: str) -> Iterator[dict[str, Any]]:
        done.append(path)
        yield {"ms": 1.0}

    monkeypatch.setattr(gpu_check, "check_kernel", fail)
    monkeypatch.setattr(gpu_check, "check_models", skip)
    monkeypatch.setattr(gpu_check, "measure_model", measure)
    assert gpu_check.main(["--cpu", "--quick", "--json", str(tmp_path / "found.json")]) == 1
    parts = {part["name"]: part for part in json.loads((tmp_path / "found.json").read_text())["parts"]}
    assert parts["kernel cpu"]["status"] == "failed" and parts["kernel cpu"]["note"] == "RuntimeError: cpu is broken"
    assert parts["kernel cpu"]["found"] == [{"found": "before"}]
    assert (parts["models cpu"]["status"], parts["models cpu"]["note"]) == ("skipped", "not installed")
    assert done == ["cpu", "gather"]


def test_a_model_that_says_something_else_is_a_failure() -> None:
    import time

    import torch

    here = gpu_check.Here(torch.device("cpu"), torch.float32, True, time.monotonic() + 100)
    oracle = gpu_check._tiny("llama", {}, here, torch.float32)
    prompt = gpu_check._prompts()[0]
    with torch.inference_mode():
        right = int(oracle(torch.tensor([prompt])).logits[0, -1].argmax())
    assert gpu_check._compare(oracle, prompt, [right], here) == 0
    with pytest.raises(gpu_check.Failure, match="token 0 is another one than transformers'"):
        gpu_check._compare(oracle, prompt, [right + 1], here)


def test_without_a_device_it_says_how_to_try_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check.torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "--cpu --quick tries this script" in capsys.readouterr().err

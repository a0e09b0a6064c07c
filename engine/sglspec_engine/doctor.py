"""What the engine would do on this machine, and why. Lines are `name=value: reason`, as in `Resolved.reasons`."""

from __future__ import annotations

import torch

from sglspec_engine.config import EngineConfig
from sglspec_engine.model.linear import choose, why_packed
from sglspec_engine.model.load import device_called, type_called


def machine_report() -> tuple[str, ...]:
    """What there is to compute with."""
    processor: str = torch.backends.cpu.get_cpu_capability()
    lines = [f"processor={processor}: the instructions that torch uses"]
    names = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    lines += [f"cuda:{i}={name}: taken with device=cuda:{i}" for i, name in enumerate(names)]
    return (*lines, *([] if names else ["cuda=none: torch sees no such device"]))


def settings_report(config: EngineConfig) -> tuple[str, ...]:
    """What would be chosen for a model that nobody has named. Raises EngineError("unsupported") for what cannot be."""
    device, kind = device_called(config.device), type_called(config.float_type)
    packing = choose(config.weights, device, kind)
    return (*config.resolve().reasons, why_packed(config.weights, packing, device, kind))

"""The local engine: language models on torch, behind sessions.

`sglspec_engine.Engine` loads it; importing this package loads neither torch nor a model, and sets nothing up.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {"Engine": "sglspec_engine.engine", "Session": "sglspec_engine.session"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for (PEP 562), with the process prepared for torch."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module("sglspec_engine.config").prepare_process()
    return getattr(import_module(_WHERE[name]), name)

"""A server in a process of its own: what clients of others meet.

It serves a tiny model; with SGLSPEC_COMPAT_MODEL the model of that name or folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.test_access import keys

_LISTENING = re.compile(r"listening on (http://\S+)")
_PATIENCE = 120.0


@pytest.fixture(scope="session")
def address(tiny_llama: Path) -> Iterator[str]:
    """Where a server with a loaded model listens."""
    model = os.environ.get("SGLSPEC_COMPAT_MODEL") or str(tiny_llama)
    command = [sys.executable, "-m", "sglspec", "serve", "--port", "0", "--model", model]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = ""
            while (found := _LISTENING.search(said)) is None:
                line = process.stderr.readline()
                assert line, f"the server ended: {said}"
                said += line
            yield _ready(found[1])
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _ready(address: str) -> str:
    until = time.monotonic() + _PATIENCE
    while httpx.get(f"{address}/health").status_code != 200:
        assert time.monotonic() < until, "the model does not load"
        time.sleep(0.05)
    return address


@pytest.fixture
def http(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=120.0) as client:
        yield client


__all__ = ["keys"]

"""The commands of the README's part on serving, as they stand there, against a server with scripted replies."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVE = (ROOT / "README.md").read_text("utf-8").partition("### Serve\n")[2].partition("\n### ")[0]
COMMANDS = re.findall(r"^```\n(.*?)^```$", SERVE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    replies = tmp_path / "replies.yaml"
    replies.write_text("story: [upon a time]\nlabel: sports\n")
    code = f"from sglspec.server import serve; serve(port=0, backend={f'scripted:{replies}'!r})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield process.stderr.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands(address: str, tmp_path: Path) -> None:
    script = "set -euo pipefail\n" + "echo; echo ----\n".join(COMMANDS).replace("http://127.0.0.1:8080", address)
    script = re.sub(r"^(curl|run=)", r"echo; \1", script, flags=re.MULTILINE)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    out = done.stdout
    bodies = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    classified, stored, ran, cancelled, state, trace = bodies
    assert classified["outputs"]["label"] == "sports"
    assert (stored["name"], stored["version"]) == ("tale", 1)
    assert ran["text"] == "Once Ada upon a time"
    assert out.count("event: run.queued") == out.count("event: run.succeeded") == 1
    assert cancelled["id"] == state["id"] == trace["run_id"]
    assert state["status"] in ("cancelled", "succeeded")

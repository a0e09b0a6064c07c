"""Running the command line as a process, with its output as it comes."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sglspec.cli import main

HERE = Path(__file__).parent
RUNNER = HERE / "runner.py"

HELLO = """\
sglspec: v1
name: hello
inputs:
  city: {type: string, default: Paris}
outputs: [country]
steps:
  - "{{ city }} is the capital of "
  - gen: country
"""

TYPED = """\
sglspec: v1
inputs:
  count: integer
  tags: {type: array, items: string, default: []}
  note: {type: string, default: none}
outputs: {count: "{{ count }}", tags: "{{ tags }}", note: "{{ note }}"}
steps:
  - "x"
"""

FORK = """\
sglspec: v1
name: tips
outputs: [tip]
steps:
  - user: How does one stay healthy?
  - assistant: Two things matter.
  - fork: topic
    in: [food, movement, sleep]
    do:
      - user: One tip on {{ topic }}.
      - gen: tip
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    env = {**os.environ, "OMP_WAIT_POLICY": "passive", "TERM": "xterm", "COLUMNS": "100", **more}
    if "NO_COLOR" not in more:
        env.pop("NO_COLOR", None)
    env.pop("PYTHONIOENCODING", None)
    return env


def command(*arguments: str, runner: str | None = None) -> list[str]:
    start = [str(RUNNER), runner] if runner else ["-m", "sglspec"]
    return [sys.executable, *start, *arguments]


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Done]:
    """Run a process to its end, in a folder of its own, with pipes."""

    def run(*arguments: str, stdin: str = "", runner: str | None = None, **env: str) -> Done:
        done = subprocess.run(
            command(*arguments, runner=runner),
            input=stdin.encode(),
            capture_output=True,
            cwd=tmp_path,
            env=environment(**env),
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """The same without a process, which is faster."""

    def run(*arguments: str, stdin: str = "", **env: str) -> Done:
        out, err = _stream(), _stream()
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            for name, value in env.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", _stream(stdin.encode()))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main(arguments)
        return Done(code, _written(out), _written(err))

    return run


def _stream(content: bytes = b"") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="backslashreplace", newline="\n")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


@pytest.fixture
def terminal(tmp_path: Path) -> Callable[..., Done]:
    """Run with standard output and error on a pseudo-terminal; `out` is everything that was shown."""

    def run(*arguments: str, runner: str | None = None, **env: str) -> Done:
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            command(*arguments, runner=runner),
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
            cwd=tmp_path,
            env=environment(**env),
        )
        os.close(follower)
        shown = b""
        while True:
            try:
                data = os.read(leader, 65536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            shown += data
        os.close(leader)
        return Done(process.wait(60), shown.decode().replace("\r\n", "\n"), "")

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return put

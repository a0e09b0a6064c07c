"""A Postgres server of its own for the tests: made in a temporary folder, on a free port, stopped at the end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_USER = "postgres"


def binaries() -> Path | None:
    """The folder of `initdb` and `pg_ctl`; Debian keeps them out of PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "pg_ctl").exists()), None)


@contextmanager
def server(folder: Path) -> Generator[str, None, None]:
    """The URL of a running server, without the name of a database."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = Path(tempfile.mkdtemp(prefix="sglspec-pg-"))
    data = home / "data"
    try:
        if os.geteuid() == 0:
            shutil.chown(home, _USER)
        _run(folder / "initdb", "-D", data, "-U", _USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-p {port} -h 127.0.0.1 -k {home} -c fsync=off"
        _run(folder / "pg_ctl", "-D", data, "-w", "-l", home / "log", "-o", options, "start")
        try:
            yield f"postgresql://{_USER}@127.0.0.1:{port}"
        finally:
            _run(folder / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _run(*command: object) -> None:
    """Postgres refuses to run as root."""
    words = [str(word) for word in command]
    if os.geteuid() == 0:
        words = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups", *words]
    # what the server says goes to its log: a pipe would stay open as long as the server runs
    subprocess.run(words, cwd="/", check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

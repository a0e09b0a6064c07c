"""Ctrl-C, SIGTERM and closed pipes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Any

import pytest

from .conftest import FORK, HELLO, command, environment

RUN = ("run", "program.yaml", "--backend", "scripted:replies.yaml")
LONG = "x" * 400


@pytest.fixture
def begin(tmp_path: Path, write):
    """Start a run that streams its events, and wait until one branch is done."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str, text: str = FORK, replies: str = f"tip: [fast, {LONG}, {LONG}]\n", runner: str = "slow"):
        write("program.yaml", text)
        write("replies.yaml", replies)
        process = subprocess.Popen(
            command(*RUN, "--trace", "trace.json", *arguments, runner=runner),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            env=environment(),
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with process:
            process.kill()


def output(process: subprocess.Popen[Any]) -> IO[Any]:
    assert process.stdout is not None
    return process.stdout


def errors(process: subprocess.Popen[Any]) -> IO[Any]:
    assert process.stderr is not None
    return process.stderr


def until(process: subprocess.Popen[str], word: str) -> None:
    """Read events until one holds the word."""
    for line in output(process):
        if word in line:
            return
    raise AssertionError(f"no {word} before the end: {errors(process).read()}")


def wait_for_file(path: Path) -> None:
    """The trace file is created right before the run."""
    limit = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < limit
        time.sleep(0.02)
    time.sleep(1.0)


def assert_partial(outputs):
    """The branch that was done has its value, the others what they had generated so far."""
    done, *cut = outputs["tip"]
    assert done == "fast"
    assert len(cut) == 2
    assert all(text is None or set(text) == {"x"} for text in cut)


def test_interrupt_in_a_fork_gives_what_there_is(begin, tmp_path):
    process = begin("--json")
    wait_for_file(tmp_path / "trace.json")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    result = json.loads(out)
    assert process.returncode == 130
    assert result["status"] == "cancelled"
    assert_partial(result["outputs"])
    assert result["error"]["code"] == "S714"
    assert err == "sglspec: interrupted\n"
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["status"] == "cancelled"


def test_interrupt_without_json_prints_the_outputs(begin, tmp_path):
    process = begin()
    wait_for_file(tmp_path / "trace.json")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert_partial(json.loads(out))
    assert "Traceback" not in err


def test_interrupt_of_a_text_stream_shows_the_cut_branches(begin):
    process = begin("--stream", "text")
    until(process, "branch 1 of 3")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "┌ branch 2 of 3" in out
    assert "└ not finished" in out
    assert err == "sglspec: interrupted\n"


def test_events_end_with_the_terminal_one(begin):
    process = begin("--stream", "events")
    until(process, "branch.finished")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["type"] == "run.cancelled"


def test_terminate(begin):
    process = begin("--stream", "events")
    until(process, "branch.finished")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 143
    assert err == "sglspec: terminated\n"


def test_second_interrupt_ends_at_once(begin):
    process = begin("--stream", "events", text=HELLO, replies=f"country: {LONG}\n", runner="stuck")
    until(process, "delta")
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize("stream", ["events", "text"])
def test_closed_pipe_ends_the_run_quietly(begin, stream):
    process = begin("--stream", stream)
    output(process).readline()
    output(process).close()
    assert process.wait(20) == 0
    assert errors(process).read() == ""


@pytest.mark.parametrize("arguments", [("--help",), ("schema",), ("run", "--help"), ("explain", "S201")])
def test_closed_pipe_of_other_commands(arguments):
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    output(process).close()
    assert process.wait(20) == 0
    assert errors(process).read() == b""
    errors(process).close()


def test_full_disk_is_said():
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command("schema"), stdout=full, stderr=subprocess.PIPE, env=environment(), check=False)
    assert done.returncode == 2
    assert b"standard output cannot be written" in done.stderr
    assert b"Traceback" not in done.stderr


def test_interrupt_while_the_model_loads_still_prints_one_object(begin, tmp_path):
    process = begin("--json", runner="loading")
    assert "loading" in errors(process).readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(out)["status"] == "cancelled"
    assert "Traceback" not in err

"""`--mcp`, end to end: a server that is a process, behind `run`, `batch`, `test`, `check` and `serve`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Done, command, environment

SERVER = Path(__file__).parent / "stdio_server.py"
SPEC = """\
sglspec: v1
name: ask
inputs: {text: {type: string, default: hi}}
outputs: [said]
steps:
  - {tool: odd.echo, with: {text: "{{ text }}"}, into: said}
tests:
  - {inputs: {text: yo}, expect: [said == "echo yo"]}
"""


@pytest.fixture
def mcp(tmp_path: Path, write, process):
    """Run a command with the server; afterwards that is gone."""
    write("replies.yaml", "{}\n")

    def run(*arguments: str, mode: str = "", slow: bool = True) -> Done:
        given = ("--mcp", f"odd={sys.executable} {SERVER} mark {mode}")
        backend = ("--backend", "scripted:replies.yaml") if slow else ()
        done = process(*arguments, *backend, *given, runner="slow" if slow else None)
        assert ended(tmp_path / "mark")
        return done

    return run


def ended(mark: Path) -> bool:
    try:
        os.kill(int(mark.read_text()), 0)
    except ProcessLookupError:
        return True
    return False


def steps(*names: str) -> str:
    """A program that calls these tools, and keeps what goes wrong."""
    calls = "".join(f"  - {{tool: odd.{name}, into: {name}, on_error: keep}}\n" for name in names)
    return f"sglspec: v1\nsteps:\n{calls}"


def test_run_batch_test_and_check(mcp, write):
    write("ask.yaml", SPEC)
    write("rows.jsonl", "".join(json.dumps({"text": f"row {n}"}) + "\n" for n in range(20)))
    done = mcp("run", "ask.yaml")
    assert (done.code, done.out, done.err) == (0, "echo hi\n", "")
    done = mcp("batch", "ask.yaml", "rows.jsonl")
    assert done.code == 0
    assert [json.loads(line)["outputs"]["said"] for line in done.out.splitlines()] == [
        f"echo row {n}" for n in range(20)
    ]
    write("wrong.yaml", SPEC.replace('text: "', 'txt: "'))
    done = mcp("check", "ask.yaml", "wrong.yaml", slow=False)
    assert done.code == 1 and "wrong.yaml:6:29: error S406" in done.out and "ask.yaml" not in done.out
    write("words.yaml", SPEC.replace("{inputs: {text: yo}, expect: [said == \"echo yo\"]}", "{replies: {odd.echo: 7}, expect: [said == 7]}"))  # fmt: skip
    done = mcp("test", "words.yaml", slow=False)
    assert (done.code, done.out) == (0, "ok   words.yaml: test 1\n1 passed, in 1 document\n")


def test_a_test_without_replies(cli, write, tmp_path: Path, tiny_llama: Path):
    """The tool runs, beside a model."""
    write("ask.yaml", SPEC)
    done = cli(
        "test", "ask.yaml", "--model", str(tiny_llama), "--mcp", f"odd={sys.executable} {SERVER} {tmp_path}/mark"
    )
    assert (done.code, done.out) == (0, "ok   ask.yaml: test 1\n1 passed, in 1 document\n")
    assert ended(tmp_path / "mark")


@pytest.mark.parametrize("mode", ["", "noisy"])
def test_what_goes_wrong_in_a_call(mcp, write, mode: str):
    write("ask.yaml", steps("fail", "rubbish", "wrong", "echo"))
    done = mcp("run", "ask.yaml", mode=mode)
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["fail"]["error"]["message"] == "The tool `odd.fail` failed: out of paper."
    assert found["wrong"]["error"]["message"] == "The tool `odd.wrong` failed: what it says does not keep the protocol."
    assert (found["rubbish"], found["echo"]) == ("rubbish ", "echo ")


def test_a_server_that_dies_in_between(mcp, write):
    write("ask.yaml", steps("die", "echo"))
    done = mcp("run", "ask.yaml")
    assert (done.code, done.err) == (0, "")
    for name, value in json.loads(done.out).items():
        assert value["error"]["message"] == f"The tool `odd.{name}` failed: Connection closed."


def test_a_call_that_takes_too_long(mcp, write):
    write("ask.yaml", "sglspec: v1\nsteps: [{tool: odd.never, timeout: 0.1}]\n")
    done = mcp("run", "ask.yaml")
    assert done.code == 3 and "S717" in done.err


@pytest.mark.parametrize(
    ("mode", "message"), [("dies", "Connection closed"), ("wrong", "what it says does not keep the protocol")]
)
def test_a_server_that_cannot_be_used(mcp, write, mode: str, message: str):
    write("ask.yaml", SPEC)
    done = mcp("run", "ask.yaml", mode=mode)
    assert done.code == 2 and f"The MCP server `odd` cannot be used: {message}." in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_told_to_stop(tmp_path: Path, write, number: signal.Signals):
    write("ask.yaml", "sglspec: v1\nsteps:\n  - {tool: odd.echo}\n  - {tool: odd.never}\n")
    write("replies.yaml", "{}\n")
    options = ("--backend", "scripted:replies.yaml", "--mcp", f"odd={sys.executable} {SERVER} mark")
    with subprocess.Popen(
        command("run", "ask.yaml", "--stream", "events", *options, runner="slow"),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    ) as run:  # fmt: skip
        assert run.stdout is not None and run.stderr is not None
        while json.loads(run.stdout.readline()).get("tool") != "odd.never":
            pass
        run.send_signal(number)
        assert json.loads(run.stdout.read().splitlines()[-1])["type"] == "run.cancelled"
        assert run.stderr.read().count("Traceback") == 0
        assert run.wait(60) == 128 + number
    assert ended(tmp_path / "mark")


@pytest.mark.parametrize("mode", ["", "deaf"])
def test_serve(tmp_path: Path, write, mode: str):
    write("ask.sglspec.yaml", SPEC)
    write("replies.yaml", "{}\n")
    options = (
        "--port",
        "0",
        "--backend",
        "scripted:replies.yaml",
        "--mcp",
        f"odd={sys.executable} {SERVER} mark {mode}",
    )
    server = subprocess.Popen(
        command("serve", "ask.sglspec.yaml", *options, runner="slow"),
        cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        assert server.stderr is not None
        url = server.stderr.readline().split()[-1]
        answer = httpx.post(f"{url}/v1/programs/ask/runs", json={"inputs": {"text": "you"}}, timeout=60).json()
        assert answer["outputs"] == {"said": "echo you"}
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        assert ended(tmp_path / "mark")
        assert server.stderr.read() == ""
    finally:
        server.kill()
        server.wait()
        if server.stderr is not None:
            server.stderr.close()

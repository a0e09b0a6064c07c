"""docs/cli.md, docs/results.md and docs/server.md say what the code has."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from sglspec.backends import DEFAULT_MODEL
from sglspec.backends.base import TraceToken, Usage
from sglspec.cli import exits
from sglspec.cli.new import TEMPLATES
from sglspec.diagnostics import Diagnostic
from sglspec.runtime.events import TERMINAL, Event
from sglspec.runtime.result import Result, Status
from sglspec_engine.types import FinishReason, Origin

ROOT = Path(__file__).parent.parent.parent
CLI = (ROOT / "docs" / "cli.md").read_text("utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text("utf-8")
SERVER = (ROOT / "docs" / "server.md").read_text("utf-8")

COMMANDS = {
    "run": ("",),
    "check": ("",),
    "plan": ("",),
    "render": ("",),
    "fmt": ("",),
    "upgrade": ("",),
    "new": ("",),
    "schema": ("",),
    "models": ("ls", "pull"),
    "explain": ("",),
    "serve": ("",),
    "keys": ("create", "list", "revoke"),
    "deploy": ("",),
    "programs": ("ls", "get", "rm"),
    "runs": ("ls", "get", "cancel", "events"),
    "doctor": ("",),
    "version": ("",),
}


def section(page: str, heading: str) -> str:
    return re.split(r"^#{2,3} ", page.split(f"# {heading}\n", 1)[1], flags=re.MULTILINE)[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option(cli, command):
    text = section(CLI, f"sglspec {command}")
    options = set[str]()
    for word in COMMANDS[command]:
        assert f"sglspec {command} {word}".rstrip() in text
        help = cli(command, *word.split(), "--help").out
        options |= set(re.findall(r"^  (--[a-z-]+)", help, re.MULTILINE))
    described = set(re.findall(r"^\| `(--[a-z-]+)", text, re.MULTILINE))
    assert options - {"--help"} == described


def test_every_exit_code():
    text = section(CLI, "Exit codes")
    for name in ("OK", "NO", "USAGE", "FAILED", "LIMIT", "UNAVAILABLE", "FAULT", "INTERRUPTED", "TERMINATED"):
        assert f"\n| {getattr(exits, name)} | " in text


def test_the_model_that_runs():
    assert f"else `{DEFAULT_MODEL}`" in section(CLI, "Which model runs")


def test_the_replies_of_the_page(cli, write):
    replies = CLI.split("```yml\n", 1)[1].split("```", 1)[0]
    write("replies.yml", replies)
    steps = "- gen: country\n- gen: tip\n- gen: tip2\n  id: tip\n- select: related\n  from: ['yes', 'no']\n"
    steps += "- gen: person\n  fields: {name: string, born: integer}\n- gen: tags\n  type: json\n"
    write("t.yaml", "sglspec: v1\nsteps:\n" + steps)
    done = cli("run", "t.yaml", "--backend", "scripted:replies.yml")
    assert json.loads(done.out) == {
        "country": "France",
        "tip": "Eat less sugar",
        "tip2": "Sleep more",
        "related": "yes",
        "person": {"name": "Ada", "born": 1815},
        "tags": ["red", "round"],
    }


PLAN = (ROOT / "docs" / "plan.md").read_text("utf-8")
CONSOLE = re.findall(r"```console\n\$ (?:(printf .*) \| )?sglspec (.*)\n((?:.*\n)*?)```", CLI + PLAN)


@pytest.mark.parametrize(("feed", "arguments", "shown"), CONSOLE, ids=lambda text: text[:24])
def test_what_the_page_shows_is_what_is_printed(cli, feed, arguments, shown, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    stdin = subprocess.run(["bash", "-c", feed or "true"], capture_output=True, check=True).stdout.decode()
    done = cli(*shlex.split(arguments), stdin=stdin)
    assert (done.code, done.out) == (0, shown)


def test_the_page_shows_something():
    assert {arguments.split()[0] for _, arguments, _ in CONSOLE} == {"render", "fmt", "upgrade", "plan"}


def test_every_template_is_in_the_page():
    text = section(CLI, "sglspec new")
    assert all(f"`{name}`" in text for name in TEMPLATES)


def test_every_key_of_a_result():
    rows = set(re.findall(r"^\| `(\w+)` \| ", section(RESULTS, "The result"), re.MULTILINE))
    assert rows == set(Result("succeeded").as_dict())
    assert all(f"`{status}`" in RESULTS for status in get_args(Status))
    rows = set(re.findall(r"^\| `(\w+)` \| ", section(RESULTS, "usage"), re.MULTILINE))
    assert rows == {field.name for field in fields(Usage)}
    rows = set(re.findall(r"^\| `(\w+)` \| ", section(RESULTS, "Diagnostics"), re.MULTILINE))
    assert rows == {field.name for field in fields(Diagnostic)}


def test_every_finish_and_origin():
    rows = set(re.findall(r"^\| `(\w+)` \| ", section(RESULTS, "meta"), re.MULTILINE))
    assert rows == {*get_args(FinishReason), "finish", "cancelled"}
    trace = section(RESULTS, "The trace")
    rows = set(re.findall(r"^\| `(\w+)` \| the", trace, re.MULTILINE)) - {"tokens", "branches"}
    assert (rows - {"origin"}) | {"input", "tool"} == set(get_args(Origin))
    sample = json.loads(trace.split("```json\n")[1].split("```")[0])
    assert set(sample) == {field.name for field in fields(TraceToken)}


def stream_of(page: str) -> list[dict[str, Any]]:
    block = next(block for block in page.split("```") if block.lstrip().startswith('{"seq": 0'))
    return [json.loads(line) for line in block.strip().splitlines()]


def without_time(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


def test_the_stream_of_the_page_is_what_is_printed(cli, write):
    document = next(block for block in RESULTS.split("```yaml\n")[1:] if block.startswith("sglspec:")).split("```")[0]
    write("tips.yaml", document)
    write("replies.yaml", "tip: [Eat less sugar, Go to bed early]\nbest: sleep\n")
    done = cli("run", "tips.yaml", "--backend", "scripted:replies.yaml", "--seed", "7", "--stream", "events")
    assert without_time([json.loads(line) for line in done.out.splitlines()]) == without_time(stream_of(RESULTS))


def test_every_type_of_event():
    """The table has the types that the class names, and for each one the keys that the stream shows."""
    table = section(RESULTS, "Events")
    rows = dict(re.findall(r"^\| ((?:`[a-z]+\.?[a-z]+`(?:, )?)+) \| [^|]+ \| (.*) \|$", table, re.MULTILINE))
    types = {name: keys for names, keys in rows.items() for name in re.findall("`([a-z.]+)`", names)}
    named = re.sub(r"\s+", " ", (Event.__doc__ or "").split("one of ")[1].split(", and the terminal")[0])
    assert set(types) - {"type"} == {*named.split(", "), *TERMINAL}
    for event in stream_of(RESULTS):
        for key in set(event) - {"seq", "type", "time", "branch", "step"}:
            assert f"`{key}`" in types[event["type"]], (event["type"], key)


def test_the_environment_variables():
    text = section(CLI, "Environment variables")
    code = "".join(path.read_text("utf-8") for path in (ROOT / "sglspec").rglob("*.py"))
    names = set(re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", code))
    assert [name for name in names if name not in text] == []


def test_the_samples_of_the_server():
    blocks = re.findall(r"^data: (.*)$", SERVER, re.MULTILINE)
    keys = [set(re.findall(r'"(\w+)":', block)) for block in blocks]
    assert all({"run_id", "seq", "type", "time", "branch"} <= one for one in keys)
    assert any("origin" in one for one in keys)
    for page in (CLI, RESULTS, SERVER):
        for link in re.findall(r"\]\(([\w./]+\.md)", page):
            assert (ROOT / "docs" / link).is_file()

"""The commands of docs/cli.md are run as a reader would type them, in a folder with the files that they name.

Those that need a model's weights, another machine or a server that goes on are read as the command line would read
them: `tests/cli/test_remote.py`, the tests of the server and those with a model run such ones.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from sglspec.cli.app import app

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "cli.md").read_text("utf-8")
FENCES: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, fence in FENCES if not kind for line in fence.splitlines()]
READ_ONLY = re.compile(r"sglspec (serve|deploy|programs|runs|models pull|doctor --model)\b|--server |--model smollm2")

JUDGE = (ROOT / "examples" / "04-essay-judge.sglspec.yaml").read_text("utf-8")
QA = 'sglspec: v1\ninputs: {question: string}\nsteps:\n  - "{{ question }} "\n  - gen: answer\n'
REPLIES = 'answer: Paris\nrelated: "no"\n'
FILES = {
    "judge.sglspec.yaml": JUDGE,
    "qa.sglspec.yaml": QA,
    "old.sglspec.yaml": "sglspec: 1\nsteps:\n  - generate: answer\n",
    "essay.txt": "Salt is underrated.",
    "essays.jsonl": '{"essay": "Salt."}\n{"essay": "Pepper."}\n',
    "questions.csv": "Q,answer\nCapital?,Paris\n",
    "replies.yml": REPLIES,
}
MODEL_FREE = ("--backend", "scripted:replies.yml")


def words(command: str) -> tuple[str, list[str]]:
    """What a shell does first, and the arguments of `sglspec`."""
    before, _, rest = command.rpartition("sglspec ") if "|" in command else ("", "", command.removeprefix("sglspec "))
    arguments = shlex.split(rest)
    if ">" in arguments:
        arguments = arguments[: arguments.index(">")]
    return before.strip().removesuffix("|"), arguments


def read(arguments: list[str]) -> None:
    """Raises what is wrong with the arguments of a command."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("sglspec", list(arguments))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("examples", "specs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize("command", [one for one in COMMANDS if not READ_ONLY.search(one)])
def test_a_command_runs(cli: Callable[..., Any], folder: Path, command: str):
    before, arguments = words(command)
    stdin = subprocess.run(
        ["bash", "-c", before or "true"], cwd=folder, capture_output=True, check=True
    ).stdout.decode()
    if arguments[0] in ("run", "batch"):
        arguments += MODEL_FREE
    home = str(folder / "home")
    if arguments[:2] == ["keys", "revoke"]:
        made = cli("keys", "create", "alice", "--store", "programs.db", "--json", SGLSPEC_HOME=home)
        arguments[2] = re.findall(r'"id": "(\w+)"', made.out)[0]
    done = cli(*arguments, stdin=stdin, SGLSPEC_HOME=home)
    # `--diff` and `--check` say that something would change
    assert done.code == 0 or (done.code == 1 and "--diff" in arguments and done.out), done


@pytest.mark.parametrize("command", [one for one in COMMANDS if READ_ONLY.search(one)])
def test_a_command_can_be_read(command: str):
    read(words(command)[1])


def test_every_command_is_one():
    assert all("sglspec " in command for command in COMMANDS)
    assert len([one for one in COMMANDS if not READ_ONLY.search(one)]) >= 30


# -- the examples of options ---------------------------------------------------------------------------------------

NEEDED = {
    "run": ["SPEC"], "test": [], "check": ["SPEC"], "batch": ["SPEC", "ROWS"], "plan": ["SPEC"], "render": ["SPEC"],
    "fmt": ["SPEC"], "upgrade": ["SPEC"], "new": ["NAME"], "serve": [], "deploy": ["SPEC"], "doctor": [],
    "models pull": ["NAME"], "keys create": ["NAME"], "programs ls": [], "programs get": ["NAME"], "runs ls": [],
    "runs get": ["ID"], "runs events": ["ID"], "keys list": [],
}  # fmt: skip
"""Arguments of commands."""
ROWS = [
    (section.split("\n", 1)[0], option, example)
    for section in PAGE.split("\n## sglspec ")[1:]
    for option, example in re.findall(r"^\| `(-[^|]*)` \|.*\| `((?:[^`])*)` \|$", section, re.MULTILINE)
]


@pytest.mark.parametrize(("command", "option", "example"), ROWS, ids=lambda text: text[:20])
def test_the_example_of_an_option_can_be_read(command: str, option: str, example: str):
    given = shlex.split(example.replace("\\|", "|").split(" | ")[0])
    assert given[0] in option
    problems: list[str] = []
    for name, needed in NEEDED.items():
        if name.split()[0] == command:
            try:
                read([*name.split(), *needed, *given])
                return
            except Exception as error:
                problems.append(f"{name}: {error}")
    raise AssertionError(problems)


def test_there_are_examples_of_options():
    assert len(ROWS) >= 60


# -- the documents -------------------------------------------------------------------------------------------------

DOCUMENTS = [fence for kind, fence in FENCES if kind == "yaml"]


def test_the_tests_of_the_page_pass(cli: Callable[..., Any], write: Callable[[str, str], Path]):
    (document,) = [one for one in DOCUMENTS if "\ntests:" in one]
    write("t.yaml", document)
    done = cli("test", "t.yaml", "-k", "quick")
    assert done.out == "ok   t.yaml: a glad text\n1 passed, in 1 document\n"
    assert cli("test", "t.yaml").out.endswith("2 passed, in 1 document\n")


def test_the_examples_from_other_rows(cli: Callable[..., Any], write: Callable[[str, str], Path]):
    (document,) = [one for one in DOCUMENTS if "shots" in one]
    write("qa.yaml", document)
    write("replies.yml", REPLIES)
    rows = "".join(f'{{"question": "{n}?", "answer": "{n}!"}}\n' for n in range(5))
    write("train.jsonl", rows)
    options = re.findall(r"`(--few-shot shots=3 --few-shot-from train.jsonl)`", PAGE)[0].split()
    done = cli("batch", "qa.yaml", "-", *options, *MODEL_FREE, stdin='{"question": "Where?"}\n')
    assert done.code == 0 and '"status": "succeeded"' in done.out
